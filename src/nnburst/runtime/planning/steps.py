"""Schedules the operations of a model on devices, and builds the steps of the plan.

`best_schedule` finds the schedule of least latency from the costs of steps; it is a pure function, whose sets
of operations are bit masks over the run order. `Partitioner` instead turns the best device of each operation
into steps (RT:P10 and P11). `StepBuilder` collects one step, and makes its model when all steps are known
(RT:P13 to P17). `Boundaries` finds the values that cross the steps' boundaries (RT:P14, P15, P18), and
`StepRoles` the step inputs and outputs of each main input and output (RT:P20).
"""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from math import inf
from typing import Final, NamedTuple

from nnburst.hal.enums import FeatureLevel, OperandLifeTime, OperationType
from nnburst.hal.errors import GeneralFailure
from nnburst.hal.model import Operation, Subgraph
from nnburst.runtime.planning.finished_model import (
    WRITTEN,
    FinishedModel,
    ReadyOperations,
    run_order,
)
from nnburst.runtime.planning.plan import (
    Candidate,
    Direction,
    ExecutionStep,
    GotoStep,
    IfStep,
    OperandPair,
    SourceOperand,
    Step,
    StepRole,
    WhileStep,
)
from nnburst.runtime.planning.slices import ModelMaker, has_unknown_size

#: If a model has more reachable sets of executed operations, each step is a run of consecutive operations.
MAX_STATES: Final = 400


class ScheduledStep(NamedTuple):
    """A device, and the operations that it runs as one step, ascending."""

    device: int
    operations: tuple[int, ...]

    @property
    def mask(self) -> int:
        """The operations as a bit mask."""
        return sum(1 << number for number in self.operations)


Schedule = tuple[ScheduledStep, ...]


@dataclass(slots=True)
class StepCosts:
    """The costs of steps in seconds; infinite if a device cannot run the operation or step.

    Attributes:
        fixed: for each device, the cost of every step besides its operations.
        single: for each device and operation, the cost that the operation adds to a step.
        known: measured costs of steps, by device and mask; they replace the estimate.
    """

    fixed: list[float]
    single: list[list[float]]
    known: dict[tuple[int, int], float] = field(default_factory=dict)

    def of(self, step: ScheduledStep) -> float:
        """The cost of a step, known or estimated."""
        estimate = self.fixed[step.device] + sum(
            self.single[step.device][number] for number in step.operations
        )
        return self.known.get((step.device, step.mask), estimate)


def best_schedule(readers_wait: Sequence[int], costs: StepCosts) -> Schedule:
    """Find the cheapest way to run all operations.

    Args:
        readers_wait: for each operation, the mask of the operations whose results it reads.
        costs: the costs of steps.

    Returns:
        Steps in an order in which they can run; empty if there is no way. Two successive steps may be on the
        same device if that costs less than one step.
    """
    masks, following = _every_state(readers_wait) or _run_order(len(readers_wait))
    # For each state: the cost to reach it, the state before the last step, and that step's device.
    reached: list[tuple[float, int, int]] = [(inf, 0, 0)] * len(masks)
    reached[0] = (0.0, 0, 0)
    for start in range(
        len(masks)
    ):  # states that lead to a state have fewer operations and came before
        before = reached[start][0]
        for device, fixed in enumerate(costs.fixed):
            for end, added in _ends(start, costs.single[device], following):
                known = costs.known.get((device, masks[end] ^ masks[start]), fixed + added)
                if before + known < reached[end][0]:
                    reached[end] = (before + known, start, device)
    return () if reached[-1][0] == inf else _path(masks, reached)


class _Lattice(NamedTuple):
    """The states of an execution: the reachable sets of executed operations.

    Attributes:
        masks: the operations of each state; states with fewer operations come first, the complete one last.
        following: for each state, the operations that can run next, and the states after them.
    """

    masks: list[int]
    following: list[list[tuple[int, int]]]


def _every_state(readers_wait: Sequence[int]) -> _Lattice | None:
    """All reachable sets of executed operations; None if there are too many."""
    numbers = {0: 0}
    following: list[list[tuple[int, int]]] = []
    for state in (masks := [0]):  # the list grows during the loop
        following.append([])
        for number, waits in enumerate(readers_wait):
            after = state | 1 << number
            if after != state and not waits & ~state:
                if after not in numbers:
                    numbers[after] = len(masks)
                    masks.append(after)
                following[-1].append((number, numbers[after]))
        if len(masks) > MAX_STATES:
            return None
    return _Lattice(masks, following)


def _run_order(count: int) -> _Lattice:
    """The states if operations are executed only in run order."""
    masks = [(1 << number) - 1 for number in range(count + 1)]
    return _Lattice(masks, [[(number, number + 1)] for number in range(count)] + [[]])


def _ends(
    start: int, single: Sequence[float], following: Sequence[Sequence[tuple[int, int]]]
) -> Iterator[tuple[int, float]]:
    """The states after one more step from `start`, and the cost that its operations add."""
    found = {start}
    waiting = [(start, 0.0)]
    while waiting:
        state, added = waiting.pop()
        for number, end in following[state]:
            if end not in found and single[number] != inf:
                found.add(end)
                waiting.append((end, added + single[number]))
                yield end, added + single[number]


def _path(masks: Sequence[int], reached: Sequence[tuple[float, int, int]]) -> Schedule:
    steps = []
    end = len(masks) - 1
    while end:
        _, start, device = reached[end]
        mask = masks[end] ^ masks[start]
        numbers = tuple(n for n in range(mask.bit_length()) if mask >> n & 1)
        steps.append(ScheduledStep(device, numbers))
        end = start
    return tuple(reversed(steps))


_L = OperandLifeTime


class StepBuilder:
    """Collects the operations of one step, and the values that cross its boundary.

    Attributes:
        index: position of the step in the plan.
        source_model: number of the source model.
        device: position of the device that executes.
        temps_written: temporaries of the source model that the step writes.
    """

    def __init__(
        self, source: FinishedModel, index: int, source_model: int, subgraph: int, device: int
    ) -> None:
        """Start without operations."""
        self.index = index
        self.source_model = source_model
        self.device = device
        self.temps_written: list[int] = []
        self._source = source
        self._graph = source.subgraph(subgraph)
        self._added: list[int] = []
        self._operations: list[Operation] = []
        self._numbers: dict[int, int] = {}
        self._consumers: list[int] = []
        self._model_inputs: list[OperandPair] = []
        self._model_outputs: list[OperandPair] = []
        self._temps_in: list[OperandPair] = []
        self._outputs_in: list[OperandPair] = []

    @property
    def temps_in(self) -> Sequence[OperandPair]:
        """Temporaries that the step reads and other steps write."""
        return self._temps_in

    @property
    def outputs_in(self) -> Sequence[OperandPair]:
        """Outputs of the source model that the step reads and other steps write."""
        return self._outputs_in

    def add(self, number: int) -> None:
        """Add an operation of the source model; the operations whose results it reads must come before."""
        operation = self._graph.operations[number]
        inputs = tuple([self._read(index) for index in operation.inputs])
        outputs = tuple([self._write(index) for index in operation.outputs])
        self._added.append(number)
        self._operations.append(Operation(operation.type, inputs, outputs))

    def finish(
        self, device: Candidate, temps_out: Collection[int], downstream: Collection[int]
    ) -> ExecutionStep:
        """Make the step.

        Args:
            device: device that executes the step.
            temps_out: those of `temps_written` that others read.
            downstream: model outputs of the source model that other steps read.

        Raises:
            GeneralFailure: RT:P16, the step has no inputs or no outputs; RT:P17, the step writes a temporary
                of unknown size and the device is below feature level 3.
        """
        out = tuple(OperandPair(i, self._numbers[i]) for i in sorted(temps_out))
        before = len(self._model_outputs)
        dynamic = tuple(
            before + position
            for position, pair in enumerate(out)
            if has_unknown_size(self._graph.operands[pair.source])
        )
        where = f"step {self.index} on {device.name}"
        if dynamic and device.feature_level < FeatureLevel.V1_2:
            operand = out[dynamic[0] - before].source
            raise GeneralFailure(
                f"{where}: temporary {operand} has an unknown size, which a device of feature level"
                f" {int(device.feature_level)} cannot report; level 3 can"
            )
        inputs = (*self._model_inputs, *self._temps_in, *self._outputs_in)
        outputs = (*self._model_outputs, *out)
        if not inputs or not outputs:
            missing = "outputs" if inputs else "inputs"
            raise GeneralFailure(f"{where}: the step has no {missing}, which no driver takes")
        maker = ModelMaker(self._source.model)
        main = self._step_graph(maker, inputs, outputs)
        return ExecutionStep(
            index=self.index,
            source_model=self.source_model,
            device=self.device,
            operations=tuple(self._added),
            model=maker.build(main, relaxed=self._source.relaxed[0]),
            pools=maker.pools,
            model_inputs=tuple(self._model_inputs),
            model_outputs=tuple(self._model_outputs),
            temps_in=tuple(self._temps_in),
            outputs_in=tuple(self._outputs_in),
            temps_out=out,
            downstream_outputs=tuple(
                n for n, pair in enumerate(self._model_outputs) if pair.source in downstream
            ),
            dynamic_outputs=dynamic,
        )

    def _step_graph(
        self, maker: ModelMaker, inputs: Sequence[OperandPair], outputs: Sequence[OperandPair]
    ) -> Subgraph:
        lifetimes: dict[int, OperandLifeTime] = {}
        lifetimes |= dict.fromkeys([pair.step for pair in inputs], _L.SUBGRAPH_INPUT)
        lifetimes |= dict.fromkeys([pair.step for pair in outputs], _L.SUBGRAPH_OUTPUT)
        source = self._graph.operands
        operands = tuple(
            [
                maker.operand(
                    source[index],
                    self._consumers[number],
                    lifetimes.get(number, source[index].lifetime),
                )
                for index, number in self._numbers.items()
            ]
        )
        # There are no trailing defaults: the source model has none, and steps add none.
        order = run_order(operands, self._operations)
        return Subgraph(
            operands,
            tuple([self._operations[number] for number in order]),
            tuple([pair.step for pair in inputs]),
            tuple([pair.step for pair in outputs]),
        )

    def _read(self, index: int) -> int:
        number = self._numbers.get(index)
        if number is None:
            number = self._add_operand(index)
            lifetime = self._graph.operands[index].lifetime
            if lifetime == _L.TEMPORARY_VARIABLE:
                self._temps_in.append(OperandPair(index, number))
            elif lifetime == _L.SUBGRAPH_INPUT:
                self._model_inputs.append(OperandPair(index, number))
            elif lifetime == _L.SUBGRAPH_OUTPUT:
                self._outputs_in.append(OperandPair(index, number))
        self._consumers[number] += 1
        return number

    def _write(self, index: int) -> int:
        number = self._add_operand(index)
        if self._graph.operands[index].lifetime == _L.SUBGRAPH_OUTPUT:
            self._model_outputs.append(OperandPair(index, number))
        else:
            self.temps_written.append(index)
        return number

    def _add_operand(self, index: int) -> int:
        number = len(self._consumers)
        self._numbers[index] = number
        self._consumers.append(0)
        return number


# -- partitioner -----------------------------------------------------------------------------------


#: Limit of steps, since each mention of a branch adds its steps, so that a few nested models could ask for
#: any number. DEVIATES: the original has no limit.
MAX_STEPS: Final = 65536

RawStep = StepBuilder | IfStep | WhileStep | GotoStep


class Partitioner:
    """Creates the steps of one plan.

    Attributes:
        steps: the steps in order; execution steps must still be finished.
        source_models: the subgraph of each source model.
    """

    def __init__(
        self, source: FinishedModel, find: Callable[[int], Sequence[int]], interpreter: int
    ) -> None:
        """Start without steps.

        Args:
            source: the model.
            find: returns the device of each operation of a subgraph.
            interpreter: the number that stands for interpreted control flow, after all devices.
        """
        self.steps: list[RawStep] = []
        self.source_models: list[int] = []
        self._source = source
        self._find = find
        self._interpreter = interpreter

    def lay_out_main(self, best: Sequence[int]) -> None:
        """Create the steps of the main model, and of the models that it refers to."""
        self._lay_out(self._mention(0), best)

    def _mention(self, subgraph: int) -> int:
        """Add a source model for a mention of a subgraph; return its number."""
        self.source_models.append(subgraph)
        return len(self.source_models) - 1

    def _lay_out(self, source_model: int, best: Sequence[int]) -> None:
        subgraph = self.source_models[source_model]
        graph = self._source.subgraph(subgraph)
        waiting = ReadyOperations(graph.operands, graph.operations)
        queues: list[deque[int]] = [deque() for _ in range(self._interpreter + 1)]

        def enqueue(numbers: Sequence[int]) -> None:
            for number in numbers:
                queues[best[number]].append(number)

        enqueue(waiting.first)
        while (device := next((n for n in self._highest_first if queues[n]), None)) is not None:
            queue = queues[device]
            interpreted = device == self._interpreter
            step = None if interpreted else self._new_step(source_model, subgraph, device)
            while queue:
                number = queue.popleft()
                if step is None:
                    self._interpret(source_model, graph, number)
                else:
                    step.add(number)
                enqueue(waiting.done(number))

    @property
    def _highest_first(self) -> range:
        return range(self._interpreter, -1, -1)

    def _new_step(self, source_model: int, subgraph: int, device: int) -> StepBuilder:
        step = StepBuilder(self._source, self._next(), source_model, subgraph, device)
        self.steps.append(step)
        return step

    def _next(self) -> int:
        if len(self.steps) >= MAX_STEPS:
            raise GeneralFailure(f"model: its plan would have more than {MAX_STEPS} steps")
        return len(self.steps)

    def _interpret(self, source_model: int, graph: Subgraph, number: int) -> None:
        operation = graph.operations[number]
        if operation.type == OperationType.IF:
            self._lay_out_if(source_model, graph, number, operation)
        else:
            self._lay_out_while(source_model, graph, number, operation)

    def _lay_out_if(
        self, source_model: int, graph: Subgraph, number: int, operation: Operation
    ) -> None:
        condition, then, other, *outer = operation.inputs
        then_model, else_model = (self._mention(_referenced(graph, i)) for i in (then, other))
        index = self._reserve()
        then_step = self._inner(then_model)
        leave = self._reserve()
        else_step = self._inner(else_model)
        self.steps[leave] = GotoStep(leave, len(self.steps))
        inside = [
            self._source.subgraph(self.source_models[model]) for model in (then_model, else_model)
        ]
        self.steps[index] = IfStep(
            index=index,
            source_model=source_model,
            operation=number,
            condition=condition,
            then_step=then_step,
            else_step=else_step,
            then_model=then_model,
            else_model=else_model,
            outer_inputs=tuple(outer),
            outer_outputs=operation.outputs,
            then_inputs=inside[0].input_indexes,
            then_outputs=inside[0].output_indexes,
            else_inputs=inside[1].input_indexes,
            else_outputs=inside[1].output_indexes,
        )

    def _lay_out_while(
        self, source_model: int, graph: Subgraph, number: int, operation: Operation
    ) -> None:
        cond, body, *outer = operation.inputs
        cond_model, body_model = (self._mention(_referenced(graph, i)) for i in (cond, body))
        index = self._reserve()
        cond_step = self._inner(cond_model)
        decide = self._reserve()
        self.steps[decide] = GotoStep(decide, index)
        body_step = self._inner(body_model)
        again = self._reserve()
        self.steps[again] = GotoStep(again, index)
        conditions, bodies = (
            self._source.subgraph(self.source_models[model]) for model in (cond_model, body_model)
        )
        self.steps[index] = WhileStep(
            index=index,
            source_model=source_model,
            operation=number,
            cond_step=cond_step,
            body_step=body_step,
            exit_step=len(self.steps),
            cond_model=cond_model,
            body_model=body_model,
            outer_inputs=tuple(outer),
            outer_outputs=operation.outputs,
            cond_inputs=conditions.input_indexes,
            cond_output=conditions.output_indexes[0],
            body_inputs=bodies.input_indexes,
            body_outputs=bodies.output_indexes,
        )

    def _reserve(self) -> int:
        """Reserve a step that is filled in when its targets are known; return its index."""
        index = self._next()
        self.steps.append(GotoStep(index, index))
        return index

    def _inner(self, source_model: int) -> int:
        """Create the steps of a referenced model; return the index of the first."""
        first = len(self.steps)
        self._lay_out(source_model, self._find(self.source_models[source_model]))
        return first


def _referenced(graph: Subgraph, operand: int) -> int:
    """The number of the subgraph that a SUBGRAPH operand refers to."""
    return graph.operands[operand].location.offset + 1


# -- boundaries ------------------------------------------------------------------------------------


class Boundaries:
    """Finds the values that one step writes and others read, and constants that control flow reads.

    Attributes:
        temps_out: for each execution step, by index, the temporaries that others read.
        downstream: for each source model, the outputs that an execution step reads and another one writes.
        boundary_constants: constants that interpreted control flow reads, each once.
    """

    def __init__(
        self, source: FinishedModel, steps: Sequence[RawStep], source_models: Sequence[int]
    ) -> None:
        """Examine all steps."""
        self.temps_out: defaultdict[int, set[int]] = defaultdict(set)
        self.downstream: defaultdict[int, set[int]] = defaultdict(set)
        writers = {
            SourceOperand(step.source_model, index): step.index
            for step in steps
            if isinstance(step, StepBuilder)
            for index in step.temps_written
        }
        constants: dict[SourceOperand, None] = {}
        for step in steps:
            if isinstance(step, StepBuilder):
                reads = [pair.source for pair in step.temps_in]
                self.downstream[step.source_model] |= {pair.source for pair in step.outputs_in}
            elif isinstance(step, IfStep | WhileStep):
                reads = _read_outside(step)
            else:
                continue
            for index in reads:
                operand = SourceOperand(step.source_model, index)
                if operand in writers:
                    self.temps_out[writers[operand]].add(index)
                graph = source.subgraph(source_models[operand.source_model])
                if graph.operands[index].is_constant:
                    constants[operand] = None
        self.boundary_constants = tuple(constants)


def _read_outside(step: IfStep | WhileStep) -> list[int]:
    condition = [step.condition] if isinstance(step, IfStep) else []
    return [*condition, *step.outer_inputs]


# -- roles -----------------------------------------------------------------------------------------


class StepRoles:
    """Finds the roles of every operand of a plan."""

    def __init__(self, steps: Sequence[Step]) -> None:
        """Collect direct roles, and the operands that interpreted control flow makes equal."""
        self._direct: defaultdict[SourceOperand, list[StepRole]] = defaultdict(list)
        self._inner: defaultdict[SourceOperand, list[SourceOperand]] = defaultdict(list)
        for step in steps:
            if isinstance(step, ExecutionStep):
                self._add_step(step)
            elif isinstance(step, IfStep):
                self._add_if(step)
            elif isinstance(step, WhileStep):
                self._add_while(step)

    def of(self, operand: SourceOperand) -> tuple[StepRole, ...]:
        """All roles of an operand, sorted."""
        found: set[StepRole] = set()
        seen = {operand}
        waiting = [operand]
        while waiting:
            current = waiting.pop()
            found.update(self._direct.get(current, ()))
            further = set(self._inner.get(current, ())) - seen
            seen |= further
            waiting += further
        return tuple(sorted(found, key=lambda role: (role.step, role.direction.value, role[2])))

    def _add_step(self, step: ExecutionStep) -> None:
        for direction, pairs in (
            (Direction.INPUT, step.inputs),
            (Direction.OUTPUT, step.outputs),
        ):
            for position, pair in enumerate(pairs):
                operand = SourceOperand(step.source_model, pair.source)
                self._direct[operand].append(StepRole(step.index, direction, position))

    def _add_if(self, step: IfStep) -> None:
        for model, inputs, outputs in (
            (step.then_model, step.then_inputs, step.then_outputs),
            (step.else_model, step.else_inputs, step.else_outputs),
        ):
            self._stand_for(step.source_model, step.outer_inputs, model, inputs)
            self._stand_for(step.source_model, step.outer_outputs, model, outputs)

    def _add_while(self, step: WhileStep) -> None:
        cond, body = step.cond_model, step.body_model
        self._stand_for(step.source_model, step.outer_inputs, cond, step.cond_inputs)
        self._stand_for(body, step.body_outputs, cond, step.cond_inputs)
        self._stand_for(cond, step.cond_inputs, body, step.body_inputs)

    def _stand_for(
        self, outer_model: int, outer: Sequence[int], inner_model: int, inner: Sequence[int]
    ) -> None:
        for outside, inside in zip(outer, inner, strict=False):
            self._inner[SourceOperand(outer_model, outside)].append(
                SourceOperand(inner_model, inside)
            )


# -- scheduled steps -------------------------------------------------------------------------------


def scheduled_steps(source: FinishedModel, schedule: Schedule) -> list[StepBuilder]:
    """Make a builder for each step of a schedule; a device gets control flow as one operation."""
    return [_builder(source, index, step) for index, step in enumerate(schedule)]


def lone_step(source: FinishedModel, step: ScheduledStep, device: Candidate) -> ExecutionStep:
    """Make one step by itself, as if all steps before it had run.

    Raises:
        GeneralFailure: the step has no inputs or outputs, or the device cannot report a size (RT:P16, P17).
    """
    builder = _builder(source, 0, step)
    inside = set(step.operations)
    read_outside = {
        index
        for number, operation in enumerate(source.model.main.operations)
        if number not in inside
        for index in operation.inputs
    }
    return builder.finish(device, read_outside & set(builder.temps_written), read_outside)


def readers_wait(source: FinishedModel) -> list[int]:
    """For each operation of the main model, the mask of the operations whose results it reads."""
    main = source.model.main
    writers = {
        index: number
        for number, operation in enumerate(main.operations)
        for index in operation.outputs
    }
    return [
        _mask(writers[i] for i in operation.inputs if main.operands[i].lifetime in WRITTEN)
        for operation in main.operations
    ]


def _mask(numbers: Iterable[int]) -> int:
    mask = 0
    for number in numbers:
        mask |= 1 << number
    return mask


def _builder(source: FinishedModel, index: int, step: ScheduledStep) -> StepBuilder:
    builder = StepBuilder(source, index, 0, 0, step.device)
    for number in step.operations:
        builder.add(number)
    return builder
