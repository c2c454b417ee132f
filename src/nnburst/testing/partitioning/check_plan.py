"""What must hold of every plan, whatever the model and the devices."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Sequence

from nnburst.executor.operations import SIGNATURES
from nnburst.hal.enums import OperandLifeTime
from nnburst.hal.errors import InvalidArgument
from nnburst.hal.model import Model, Operand, Subgraph
from nnburst.hal.validation import validate_model
from nnburst.runtime.planning.candidate import Candidate
from nnburst.runtime.planning.models.finished_model import FinishedModel
from nnburst.runtime.planning.plan import (
    CompoundPlan,
    ExecutionStep,
    GotoStep,
    IfStep,
    OperandPair,
    Plan,
    SimplePlan,
    SourceOperand,
    WhileStep,
)

_L = OperandLifeTime
_KNOWN_FROM_THE_START = frozenset(
    {_L.CONSTANT_COPY, _L.CONSTANT_REFERENCE, _L.NO_VALUE, _L.SUBGRAPH}
)


def broken_rules(plan: Plan, source: FinishedModel, devices: Sequence[Candidate]) -> list[str]:
    """What is wrong with a plan, one sentence each.

    Every operation of every source model runs exactly once; steps can run in their order and have all that
    they read; step models are valid for their devices, which support all of them, and compute what the source
    model's operations do; what others read is a step's output, and nothing else that is temporary.
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
    """Step models must have the source's operands and operations under other numbers."""
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
    """Goes through the steps in order and keeps what is written by then.

    Attributes:
        wrong: sentences.
    """

    def __init__(self, plan: CompoundPlan, source: FinishedModel) -> None:
        self.wrong: list[str] = []
        self._plan = plan
        self._source = source
        self._known: set[SourceOperand] = set()
        #: For each step the control flow that ends before it: what must be written by then, and its outputs.
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
        for read, (model, operands) in reversed(self._ends[index]):  # what began last ends first
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
    """Exactly the temporaries that others read are outputs; the same for downstream outputs."""
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
