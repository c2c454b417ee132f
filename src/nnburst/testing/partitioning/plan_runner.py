"""Runs plans over random devices in this process, checks their rules, and compares them with the whole model.

A plan is right if its results are those of the whole model. The runner has no shared memory, driver or
thread, and runs the whole model on the CPU in the cases in which the framework would (RT:R11, R14).
"""

from __future__ import annotations

import zlib
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt

from nnburst.executor.operations import SIGNATURES
from nnburst.hal.enums import ErrorStatus, FeatureLevel, OperandLifeTime, OperandType
from nnburst.hal.errors import GeneralFailure, InvalidArgument, NnburstError, error_for
from nnburst.hal.limits import DEFAULT_LOOP_TIMEOUT_NS
from nnburst.hal.model import DTYPES, Model, Operand, Operation, Subgraph, size_bytes
from nnburst.hal.types import Capabilities, OutputShape
from nnburst.hal.validation import validate_model
from nnburst.runtime.planning.finished_model import FinishedModel, finish
from nnburst.runtime.planning.plan import (
    Candidate,
    CompoundPlan,
    ExecutionStep,
    GotoStep,
    IfStep,
    OperandPair,
    Part,
    PartitioningMode,
    Plan,
    SimplePlan,
    SourceOperand,
    WhileStep,
)
from nnburst.runtime.planning.planner import Planner
from nnburst.testing.conformance.comparison import RunResult, Unsupported
from nnburst.testing.conformance.runners import LocalPrepared, LocalRunner
from nnburst.testing.conformance.vectors import build
from nnburst.testing.models.random_graphs import PRIMARY, generate
from nnburst.testing.models.random_graphs.graphs import as_vector
from nnburst.testing.partitioning.run import CpuStandIn, uniform

# -- rules of plans --------------------------------------------------------------------------------
_L = OperandLifeTime
_KNOWN_FROM_THE_START = frozenset(
    {_L.CONSTANT_COPY, _L.CONSTANT_REFERENCE, _L.NO_VALUE, _L.SUBGRAPH}
)


def broken_rules(plan: Plan, source: FinishedModel, devices: Sequence[Candidate]) -> list[str]:
    """The rules that a plan breaks, one sentence each.

    Every operation of every source model runs exactly once; steps can run in their order, with all that they
    read; step models are valid, supported by their devices, and compute the same as the source model's
    operations. The outputs of a step are exactly the temporaries that other steps read.
    """
    if isinstance(plan, SimplePlan):
        return _wrong_models([(plan.device, plan.model)], devices)
    parts = [(step.device, step.model) for step in plan.execution_steps]
    return [
        *_wrong_models(parts, devices),
        *_wrong_operations(plan, source),
        *_wrong_copies(plan, source),
        *_Walk(plan, source).wrong,
        *_wrong_outputs(plan),
    ]


def _wrong_models(parts: Sequence[tuple[int, Model]], devices: Sequence[Candidate]) -> list[str]:
    wrong = []
    for number, (device, model) in enumerate(parts):
        candidate = devices[device]
        try:
            validate_model(model, SIGNATURES, feature_level=candidate.feature_level)
        except InvalidArgument as error:
            wrong.append(f"part {number} on {candidate.name}: {error}")
    return wrong


def _wrong_operations(plan: CompoundPlan, source: FinishedModel) -> list[str]:
    planned: defaultdict[int, Counter[int]] = defaultdict(Counter)
    for step in plan.steps:
        if isinstance(step, ExecutionStep):
            planned[step.source_model].update(step.operations)
        elif isinstance(step, IfStep | WhileStep):
            planned[step.source_model][step.operation] += 1
    wrong = []
    for number, subgraph in enumerate(plan.source_models):
        wanted = Counter(range(len(source.subgraph(subgraph).operations)))
        if planned[number] != wanted:
            wrong.append(f"source model {number} runs operations {dict(planned[number])}")
    return wrong


def _wrong_copies(plan: CompoundPlan, source: FinishedModel) -> list[str]:
    """Find step models whose operands and operations differ from the source's in more than their numbers."""
    wrong = []
    for step in plan.execution_steps:
        graph = source.subgraph(plan.source_models[step.source_model])
        main = step.model.main
        if main.input_indexes != tuple(pair.step for pair in step.inputs):
            wrong.append(f"step {step.index}: inputs {main.input_indexes}")
        if main.output_indexes != tuple(pair.step for pair in step.outputs):
            wrong.append(f"step {step.index}: outputs {main.output_indexes}")
        numbers: dict[int, int] = {}
        kinds = Counter(graph.operations[number].type for number in step.operations)
        if kinds != Counter(operation.type for operation in main.operations):
            wrong.append(f"step {step.index}: other operations than the source's")
        for number in step.operations:
            operation = graph.operations[number]
            for index in (*operation.inputs, *operation.outputs):
                numbers.setdefault(index, len(numbers))
        pairs = [OperandPair(*pair) for pair in numbers.items()]
        wrong += [
            f"step {step.index}: operand {pair.step} is not the source's {pair.source}"
            for pair in pairs
            if not _is_copy(step, source, graph.operands[pair.source], main.operands[pair.step])
        ]
    return wrong


def _is_copy(step: ExecutionStep, source: FinishedModel, old: Operand, new: Operand) -> bool:
    for name in ("type", "dimensions", "scale", "zero_point", "extra_params"):
        if getattr(old, name) != getattr(new, name):
            return False
    if new.lifetime == _L.CONSTANT_COPY:
        was, now = old.location, new.location
        found = source.model.operand_values[was.offset : was.offset + was.length]
        return step.model.operand_values[now.offset : now.offset + now.length] == found
    if new.lifetime == _L.CONSTANT_REFERENCE:
        was, now = old.location, new.location
        same_range = (was.offset, was.length) == (now.offset, now.length)
        return same_range and step.pools[now.pool_index] == was.pool_index
    return True


#: Operands of a source model.
_Operands = tuple[int, Sequence[int]]


class _Walk:
    """Visits the steps in order and keeps the set of operands that are written so far.

    Attributes:
        wrong: the broken rules so far, as sentences.
    """

    def __init__(self, plan: CompoundPlan, source: FinishedModel) -> None:
        self.wrong: list[str] = []
        self._plan = plan
        self._source = source
        self._known: set[SourceOperand] = set()
        #: For each step, the control flow that ends before it: operands that must be written, and its
        #: outputs.
        self._ends: defaultdict[int, list[tuple[Sequence[_Operands], _Operands]]] = defaultdict(
            list
        )
        self._write(0, source.model.main.input_indexes)
        for index, step in enumerate(plan.steps):
            self._arrive(index)
            if step.index != index:
                self.wrong.append(f"step {index} calls itself {step.index}")
            if isinstance(step, ExecutionStep):
                self._read(index, step.source_model, [pair.source for pair in step.inputs])
                self._write(step.source_model, [pair.source for pair in step.outputs])
            elif isinstance(step, IfStep):
                self._enter_if(step)
            elif isinstance(step, WhileStep):
                self._enter_while(step)
            elif isinstance(step, GotoStep) and not 0 <= step.target <= len(plan.steps):
                self.wrong.append(f"step {index} goes to {step.target}")
        self._arrive(len(plan.steps))
        self._read(len(plan.steps), 0, source.model.main.output_indexes)

    def _graph(self, model: int) -> Subgraph:
        return self._source.subgraph(self._plan.source_models[model])

    def _enter_if(self, step: IfStep) -> None:
        self._read(step.index, step.source_model, [step.condition, *step.outer_inputs])
        self._write(step.then_model, step.then_inputs)
        self._write(step.else_model, step.else_inputs)
        leave = self._plan.steps[step.else_step - 1]
        if not isinstance(leave, GotoStep):
            self.wrong.append(f"step {step.index}: its then-branch does not end with a jump")
            return
        read = [(step.then_model, step.then_outputs), (step.else_model, step.else_outputs)]
        self._ends[leave.target].append((read, (step.source_model, step.outer_outputs)))

    def _enter_while(self, step: WhileStep) -> None:
        self._read(step.index, step.source_model, step.outer_inputs)
        self._write(step.cond_model, step.cond_inputs)
        self._write(step.body_model, step.body_inputs)
        for end in (step.body_step, step.exit_step):
            back = self._plan.steps[end - 1]
            if not isinstance(back, GotoStep) or back.target != step.index:
                self.wrong.append(f"step {step.index}: step {end - 1} does not go back to it")
        read = [(step.cond_model, [step.cond_output]), (step.body_model, step.body_outputs)]
        self._ends[step.exit_step].append((read, (step.source_model, step.outer_outputs)))

    def _arrive(self, index: int) -> None:
        for read, (model, operands) in reversed(self._ends[index]):  # inner control flow ends first
            for inner, outputs in read:
                self._read(index, inner, outputs)
            self._write(model, operands)

    def _read(self, step: int, model: int, operands: Sequence[int]) -> None:
        for index in operands:
            operand = SourceOperand(model, index)
            given = self._graph(model).operands[index].lifetime in _KNOWN_FROM_THE_START
            if operand not in self._known and not given:
                self.wrong.append(f"step {step} reads {operand}, which nothing has written")

    def _write(self, model: int, operands: Sequence[int]) -> None:
        for index in operands:
            operand = SourceOperand(model, index)
            if operand in self._known:
                self.wrong.append(f"{operand} is written twice")
            self._known.add(operand)


def _wrong_outputs(plan: CompoundPlan) -> list[str]:
    """Find steps whose outputs, or downstream outputs, are not exactly the temporaries that others read."""
    read: set[SourceOperand] = set()
    by_steps: set[SourceOperand] = set()
    for step in plan.steps:
        if isinstance(step, ExecutionStep):
            here = {SourceOperand(step.source_model, pair.source) for pair in step.inputs}
            by_steps |= here
            read |= here
        elif isinstance(step, IfStep | WhileStep):
            outside = [*step.outer_inputs]
            outside += [step.condition] if isinstance(step, IfStep) else []
            read |= {SourceOperand(step.source_model, index) for index in outside}
    wrong = []
    for step in plan.execution_steps:
        outputs = [SourceOperand(step.source_model, pair.source) for pair in step.outputs]
        wrong += [
            f"step {step.index}: nothing reads temporary {pair.source}"
            for pair in step.temps_out
            if SourceOperand(step.source_model, pair.source) not in read
        ]
        downstream = tuple(n for n in range(len(step.model_outputs)) if outputs[n] in by_steps)
        if step.downstream_outputs != downstream:
            wrong.append(f"step {step.index}: downstream outputs {step.downstream_outputs}")
    return wrong


# -- random devices --------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class DrawnDevice:
    """A simulated device whose answers depend only on its name and its numbers.

    Attributes:
        name: name of the device.
        feature_level: feature level of the device.
        cost: performance figure of every operand type.
        share: share of the operations that it supports, chosen by name, operation and operand types.
        answers: whether it reports its supported operations, or an error.
        prepares: share of the models that it prepares.
        executes: share of the models that it executes.
    """

    name: str
    feature_level: FeatureLevel
    cost: float
    share: float
    answers: bool = True
    prepares: float = 1.0
    executes: float = 1.0
    version_string: str = "drawn"
    is_cpu: bool = False

    @property
    def capabilities(self) -> Capabilities:
        """Capabilities with one figure for everything."""
        return uniform(self.cost)

    def supported_operations(self, model: Model, pools: Sequence[int]) -> list[bool]:
        """A pseudo-random part of the reference executor's operations."""
        del pools
        if not self.answers:
            raise GeneralFailure(f"{self.name}: gives no answer")
        return [self._takes(operation, model.main) for operation in model.main.operations]

    def refusal(self, model: Model) -> NnburstError | None:
        """The reason why it does not prepare a model; None if it does."""
        if self._lot("prepare", str(len(model.main.operands))) < self.prepares:
            return None
        return error_for(ErrorStatus.GENERAL_FAILURE, f"{self.name}: does not prepare this model")

    def failure(self, model: Model) -> NnburstError | None:
        """The reason why it does not execute a model; None if it does."""
        if self._lot("execute", str(len(model.main.operands))) < self.executes:
            return None
        return error_for(ErrorStatus.GENERAL_FAILURE, f"{self.name}: does not execute this model")

    def _takes(self, operation: Operation, graph: Subgraph) -> bool:
        if operation.type not in SIGNATURES:
            return False
        types = [graph.operands[index].type for index in operation.inputs]
        return self._lot(str(int(operation.type)), str(types)) < self.share

    def _lot(self, *words: str) -> float:
        """A pseudo-random number in [0, 1) that depends only on the words."""
        return zlib.crc32("/".join((self.name, *words)).encode()) / 2**32


def draw_devices(rng: np.random.Generator, *, faults: bool) -> list[DrawnDevice]:
    """Draw one to four devices.

    Args:
        rng: random generator.
        faults: whether some devices do not answer, refuse models or fail to execute them.
    """

    def share_of_faults() -> float:
        return float(rng.uniform(0.3, 1)) if faults and rng.random() < 0.25 else 1.0

    return [
        DrawnDevice(
            name=f"drawn{number}-{int(rng.integers(1 << 30))}",
            feature_level=FeatureLevel(int(rng.integers(1, 9)) if rng.random() < 0.5 else 8),
            cost=float(rng.uniform(0.2, 1.2)),
            share=float(rng.choice([0.2, 0.5, 0.8, 1.0])),
            answers=not faults or rng.random() > 0.05,
            prepares=share_of_faults(),
            executes=share_of_faults(),
        )
        for number in range(int(rng.integers(1, 5)))
    ]


# -- Running a plan --------------------------------------------------------------------------------


Array = npt.NDArray[Any]
#: Bytes first allocated for an output whose size only the execution finds out.
_GUESS: Final = 4


class StepFailed(Exception):
    """A step failed, or passed a tensor without elements on; the whole model then runs on the CPU."""


class PlanRunner:
    """Prepares models over a list of devices. See `nnburst.testing.conformance.runners.Runner`.

    Attributes:
        devices: the simulated devices, followed by the CPU.
        counts: number of plans and steps by kind, and of fallbacks.
    """

    def __init__(self, devices: Sequence[DrawnDevice]) -> None:
        """Plan over these devices and the CPU."""
        self.devices: list[DrawnDevice | CpuStandIn] = [*devices, CpuStandIn()]
        self.counts: Counter[str] = Counter()
        self.last_plan: Plan | None = None
        self.last_source: FinishedModel | None = None
        self._local = LocalRunner("reference")

    def prepare(self, model: Model, pools: Sequence[bytes]) -> PlanRun:
        """Finish and plan in mode 1; the reference executor must be able to prepare each part."""
        source = finish(model)

        def prepare(part: Part) -> LocalPrepared:
            refusal = self.devices[part.device].refusal(part.model)
            if refusal is not None:
                raise refusal
            return self._local.prepare(part.model, [pools[index] for index in part.pools])

        planner = Planner(
            source, self.devices, prepare=prepare, release=lambda prepared: prepared.close()
        )
        planned = planner.plan(PartitioningMode.WITH_FALLBACK)
        self.last_plan, self.last_source = planned.plan, source
        self.counts[type(planned.plan).__name__] += 1
        self.counts["fell back at compilation"] += planned.fell_back
        whole = self._local.prepare(model, pools)
        return PlanRun(self, source, pools, planned.plan, planned.prepared, whole)

    def close(self) -> None:
        """Do nothing, since the runner holds no resources."""


class PlanRun:
    """A plan that can be executed."""

    def __init__(
        self,
        runner: PlanRunner,
        source: FinishedModel,
        pools: Sequence[bytes],
        plan: Plan,
        prepared: Sequence[LocalPrepared],
        whole: LocalPrepared,
    ) -> None:
        """`prepared` are the parts of `plan`, `whole` is the client's model."""
        self._runner = runner
        self._source = source
        self._pools = pools
        self._plan = plan
        self._prepared = prepared
        self._whole = whole

    def run(
        self,
        inputs: Sequence[Array | None],
        output_sizes: Sequence[int],
        loop_timeout_ns: int = DEFAULT_LOOP_TIMEOUT_NS,
    ) -> RunResult:
        """Execute once; if a step fails, execute the whole model on the CPU."""
        counts = self._runner.counts
        try:
            if isinstance(self._plan, CompoundPlan):
                steps = _Steps(self._runner, self._source, self._pools, self._plan, self._prepared)
                return steps.run(inputs, output_sizes, loop_timeout_ns)
            failure = self._runner.devices[self._plan.device].failure(self._plan.model)
            if failure is None:
                counts["whole models on devices"] += 1
                return self._prepared[0].run(inputs, output_sizes, loop_timeout_ns)
        except StepFailed:
            pass
        counts["fell back at execution"] += 1
        return self._whole.run(inputs, output_sizes, loop_timeout_ns)

    def run_in_buffers(self, inputs: Sequence[Array | None]) -> RunResult:
        """Raise Unsupported, since there is no driver."""
        del inputs
        raise Unsupported("not available: buffers are a driver's")

    def close(self) -> None:
        """Release the parts."""
        for prepared in (*self._prepared, self._whole):
            prepared.close()


class _Steps:
    """One execution of a compound plan."""

    def __init__(
        self,
        runner: PlanRunner,
        source: FinishedModel,
        pools: Sequence[bytes],
        plan: CompoundPlan,
        prepared: Sequence[LocalPrepared],
    ) -> None:
        self._runner = runner
        self._source = source
        self._pools = pools
        self._plan = plan
        indexes = [step.index for step in plan.execution_steps]
        self._prepared = dict(zip(indexes, prepared, strict=True))
        self._values: dict[SourceOperand, Array | None] = {}
        #: The operand that each outer output comes from, once a branch was chosen.
        self._aliases: dict[SourceOperand, SourceOperand] = {}
        #: Loops that are running, and whether their body ran last.
        self._ran_body: dict[int, bool] = {}

    def run(
        self, inputs: Sequence[Array | None], output_sizes: Sequence[int], loop_timeout_ns: int
    ) -> RunResult:
        """Run the steps with enough room for outputs, and compare with `output_sizes` at the end."""
        main = self._source.model.main
        for index, value in zip(main.input_indexes, inputs, strict=True):
            self._values[SourceOperand(0, index)] = value
        at = 0
        while at < len(self._plan.steps):
            step = self._plan.steps[at]
            if isinstance(step, GotoStep):
                at = step.target
            elif isinstance(step, IfStep):
                at = self._choose(step)
            elif isinstance(step, WhileStep):
                at = self._loop(step)
            else:
                self._execute(step, loop_timeout_ns)
                at += 1
        found = [self._array(0, index) for index in main.output_indexes]
        sufficient = [v.nbytes <= size for v, size in zip(found, output_sizes, strict=True)]
        shapes = [OutputShape(v.shape, fits) for v, fits in zip(found, sufficient, strict=True)]
        status = ErrorStatus.NONE if all(sufficient) else ErrorStatus.OUTPUT_INSUFFICIENT_SIZE
        return RunResult(status, tuple(shapes), tuple(v.tobytes() for v in found), "")

    def _choose(self, step: IfStep) -> int:
        taken = bool(self._array(step.source_model, step.condition).reshape(-1)[0])
        model = step.then_model if taken else step.else_model
        inputs = step.then_inputs if taken else step.else_inputs
        outputs = step.then_outputs if taken else step.else_outputs
        self._pass(step.source_model, step.outer_inputs, model, inputs)
        for outer, inner in zip(step.outer_outputs, outputs, strict=True):
            self._aliases[SourceOperand(step.source_model, outer)] = SourceOperand(model, inner)
        return step.then_step if taken else step.else_step

    def _loop(self, step: WhileStep) -> int:
        ran_body = self._ran_body.get(step.index)
        if ran_body is None:
            self._pass(step.source_model, step.outer_inputs, step.cond_model, step.cond_inputs)
        elif ran_body:
            count = len(step.body_outputs)
            self._pass(
                step.body_model, step.body_outputs, step.cond_model, step.cond_inputs[:count]
            )
        elif self._array(step.cond_model, step.cond_output).reshape(-1)[0]:
            self._pass(step.cond_model, step.cond_inputs, step.body_model, step.body_inputs)
            self._ran_body[step.index] = True
            return step.body_step
        else:
            count = len(step.outer_outputs)
            self._pass(
                step.cond_model, step.cond_inputs[:count], step.source_model, step.outer_outputs
            )
            del self._ran_body[step.index]
            return step.exit_step
        self._ran_body[step.index] = False
        return step.cond_step

    def _pass(self, giver: int, given: Sequence[int], taker: int, taken: Sequence[int]) -> None:
        values = [self._value(SourceOperand(giver, index)) for index in given]
        for index, value in zip(taken, values, strict=True):
            self._values[SourceOperand(taker, index)] = value

    def _execute(self, step: ExecutionStep, loop_timeout_ns: int) -> None:
        self._runner.counts["steps"] += 1
        device = self._runner.devices[step.device]
        if device.failure(step.model) is not None:
            if device.is_cpu:
                raise StepFailed
            self._runner.counts["steps that the CPU took"] += 1
        main = step.model.main
        described = [main.operands[index] for index in main.output_indexes]
        inputs = [
            self._value(SourceOperand(step.source_model, pair.source)) for pair in step.inputs
        ]
        sizes = [_size(operand) or _GUESS for operand in described]
        result = self._prepared[step.index].run(inputs, sizes, loop_timeout_ns)
        while result.status is ErrorStatus.OUTPUT_INSUFFICIENT_SIZE:
            sizes = [
                max(size, _size_of(operand, shape.dimensions))
                for size, operand, shape in zip(sizes, described, result.shapes, strict=True)
            ]
            result = self._prepared[step.index].run(inputs, sizes, loop_timeout_ns)
        if result.status is not ErrorStatus.NONE:
            raise StepFailed
        self._keep(step, described, result)

    def _keep(self, step: ExecutionStep, described: Sequence[Operand], result: RunResult) -> None:
        for number, (pair, operand) in enumerate(zip(step.outputs, described, strict=True)):
            dims = result.shapes[number].dimensions if result.shapes else operand.dimensions
            is_read = pair in step.temps_out or number in step.downstream_outputs
            if is_read and 0 in dims:
                raise StepFailed  # no driver accepts an input without elements (RT:R11)
            data = result.outputs[number][: _size_of(operand, dims)]
            value = np.frombuffer(data, DTYPES[OperandType(operand.type)]).reshape(dims)
            self._values[SourceOperand(step.source_model, pair.source)] = value

    def _array(self, model: int, index: int) -> Array:
        value = self._value(SourceOperand(model, index))
        assert value is not None, f"operand {index} of source model {model} has no value"
        return value

    def _value(self, operand: SourceOperand) -> Array | None:
        while operand in self._aliases:
            operand = self._aliases[operand]
        if operand in self._values:
            return self._values[operand]
        subgraph = self._source.subgraph(self._plan.source_models[operand.source_model])
        return self._constant(subgraph.operands[operand.operand])

    def _constant(self, operand: Operand) -> Array | None:
        at = operand.location
        if operand.lifetime == OperandLifeTime.NO_VALUE:
            return None
        copied = operand.lifetime == OperandLifeTime.CONSTANT_COPY
        memory = self._source.model.operand_values if copied else self._pools[at.pool_index]
        data = memory[at.offset : at.offset + at.length]
        return np.frombuffer(data, DTYPES[OperandType(operand.type)]).reshape(operand.dimensions)


def _size(operand: Operand) -> int:
    return size_bytes(OperandType(operand.type), operand.dimensions)


def _size_of(operand: Operand, dimensions: Sequence[int]) -> int:
    return size_bytes(OperandType(operand.type), dimensions)


# -- Campaigns: random graphs over random devices --------------------------------------------------


#: Sizes of graphs: 5 and 40 operations.
SIZES: Final = ("small", "large")
#: One in this many plans has devices that refuse and fail.
_FAULTY_EVERY: Final = 3


class Finding(NamedTuple):
    """One graph over its devices.

    Attributes:
        graph: name of the graph.
        reason: the fault; empty without one.
        counts: plans, steps and fallbacks, as `PlanRunner` counts them.
    """

    graph: str
    reason: str
    counts: Counter[str]


def run_seeds(seeds: range) -> Iterator[Finding]:
    """Run a graph for each seed, small and large in turn, over one to four random devices and the CPU."""
    local = LocalRunner("reference")
    for seed in seeds:
        size = SIZES[seed % 2]
        kind = PRIMARY[size][seed // 2 % len(PRIMARY[size])]
        graph = generate(size, kind, seed)
        rng = np.random.default_rng(seed)
        runner = PlanRunner(draw_devices(rng, faults=seed % _FAULTY_EVERY == 0))
        vector = as_vector(graph)
        model, pools = (built := build(vector)).model, built.pools
        inputs = [vector.array_of(operand) for operand in vector.inputs]
        sizes = [max(1, len(vector.buffers[o.data or 0])) for o in vector.outputs]
        try:
            found = runner.prepare(model, pools).run(inputs, sizes)
            expected = local.prepare(model, pools).run(inputs, sizes)
        except NnburstError as error:
            yield Finding(graph.name, f"{error.status.name}: {error}", runner.counts)
            continue
        assert runner.last_plan is not None
        assert runner.last_source is not None
        broken = broken_rules(runner.last_plan, runner.last_source, runner.devices)
        different = [
            f"output {n} differs"
            for n, (a, b) in enumerate(zip(found.outputs, expected.outputs, strict=True))
            if a != b[: len(a)]
        ]
        if found.status is not expected.status:
            different.append(f"{found.status.name}, expected {expected.status.name}")
        yield Finding(graph.name, "; ".join([*broken, *different]), runner.counts)
