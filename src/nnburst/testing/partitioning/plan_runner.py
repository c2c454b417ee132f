"""PlanRunner: executes plans step by step in this process, every device by the reference executor.

An oracle for planning: a plan is right if it computes what the whole model computes. It has no memory, no
driver and no thread, and gives the whole model to the CPU whenever the framework would (RT:R11, R14).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from nnburst.hal.enums import ErrorStatus, OperandLifeTime, OperandType
from nnburst.hal.limits import DEFAULT_LOOP_TIMEOUT_NS
from nnburst.hal.model import Model, Operand
from nnburst.hal.operand_types import DTYPES, size_bytes
from nnburst.hal.timing import OutputShape
from nnburst.runtime.planning.models.finish import finish
from nnburst.runtime.planning.models.finished_model import FinishedModel
from nnburst.runtime.planning.plan import (
    CompoundPlan,
    ExecutionStep,
    GotoStep,
    IfStep,
    Part,
    PartitioningMode,
    Plan,
    SourceOperand,
    WhileStep,
)
from nnburst.runtime.planning.planner import Planner
from nnburst.testing.conformance.run_result import RunResult, Unsupported
from nnburst.testing.conformance.runners import LocalPrepared, LocalRunner
from nnburst.testing.partitioning.device import CpuStandIn
from nnburst.testing.partitioning.drawn_device import DrawnDevice

Array = npt.NDArray[Any]
#: Bytes of the first guess at an output whose size only the execution finds out.
_GUESS: Final = 4


class StepFailed(Exception):
    """A step failed, or gave a tensor without elements to another; the CPU takes the whole model."""


class PlanRunner:
    """Prepares models over a list of devices. See `nnburst.testing.conformance.runners.Runner`.

    Attributes:
        devices: drawn ones and the CPU behind them.
        counts: how many plans and steps of which kind there were, and how many fell back.
    """

    def __init__(self, devices: Sequence[DrawnDevice]) -> None:
        """Plan over these devices and the CPU."""
        self.devices: list[DrawnDevice | CpuStandIn] = [*devices, CpuStandIn()]
        self.counts: Counter[str] = Counter()
        self.last_plan: Plan | None = None
        self.last_source: FinishedModel | None = None
        self._local = LocalRunner("reference")

    def prepare(self, model: Model, pools: Sequence[bytes]) -> PlanRun:
        """Finish and plan in mode 1; each part must be one that the reference executor prepares."""
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
        """Nothing is held."""


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
        """Execute once; the whole model on the CPU if a step fails."""
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
        """There is no driver."""
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
        #: What an outer output is, once a branch was chosen.
        self._aliases: dict[SourceOperand, SourceOperand] = {}
        #: Loops that are under way, and whether their body is what ran last.
        self._ran_body: dict[int, bool] = {}

    def run(
        self, inputs: Sequence[Array | None], output_sizes: Sequence[int], loop_timeout_ns: int
    ) -> RunResult:
        """Run the steps; outputs get what room they need, and are compared with `output_sizes` at the end."""
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
                raise StepFailed  # no driver takes an input without elements (RT:R11)
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
