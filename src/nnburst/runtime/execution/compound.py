"""Computes a plan of several steps once, with its control flow and its fallbacks (RT:R2 to R16)."""

from __future__ import annotations

import logging
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final, Protocol

from nnburst.hal import vlog
from nnburst.hal.enums import ResultCode
from nnburst.hal.errors import GeneralFailure, NnburstError
from nnburst.hal.limits import INT32_MAX
from nnburst.hal.model import SCALARS
from nnburst.hal.types import OutputShape
from nnburst.hal.utils import failure_level
from nnburst.runtime.argument import (
    Argument,
    BurstController,
    Options,
    Outcome,
    PreparedPart,
    checked_outcome,
)
from nnburst.runtime.execution.temporaries import (
    GivenValue,
    PooledValue,
    SourceModels,
    Temporaries,
    Value,
    element_size,
    known_size,
    padded,
)
from nnburst.runtime.extensions import TYPES
from nnburst.runtime.planning.plan import (
    CompoundPlan,
    ExecutionStep,
    GotoStep,
    IfStep,
    SourceOperand,
    WhileStep,
)
from nnburst.tracing.slices import Layer, Phase, trace

logger = logging.getLogger("nnburst.runtime")

#: Bytes that a temporary may have at most; so a step is not repeated without an end.
_LARGEST: Final = INT32_MAX + 1
#: The outcome of a loop that runs too long; the computation is not tried again.
_TIMEOUT: Final = Outcome(
    ResultCode.MISSED_DEADLINE_TRANSIENT, message="a WHILE has run longer than its loop timeout"
)


class Parts(Protocol):
    """The parts and bursts that execute the steps."""

    def part(self, step: int) -> PreparedPart:
        """The part that the device of execution step number `step` has prepared."""

    def burst(self, step: int) -> BurstController | None:
        """The burst of the step, if this computation uses bursts."""

    def on_cpu(self, step: int) -> PreparedPart:
        """The part that the CPU has prepared for the step.

        Raises:
            NnburstError: the CPU cannot prepare the step.
        """

    def settle(self) -> None:
        """Wait until the earlier steps have ended, so that their results can be read here.

        Raises:
            NnburstError: a step has failed.
        """

    def is_cpu(self, device: int) -> bool:
        """Whether a device is the CPU."""

    def name(self, device: int) -> str:
        """The name of a device, for messages."""


@dataclass(slots=True)
class _Loop:
    """The progress of an interpreted WHILE; deleted when the loop ends."""

    iteration: int = -1
    began: float = 0.0
    decides: bool = False
    inputs: list[Value] = field(default_factory=list)


class CompoundComputation:
    """One computation of a plan. Used once, by one thread."""

    def __init__(
        self,
        plan: CompoundPlan,
        models: SourceModels,
        temporaries: Temporaries,
        parts: Parts,
        options: Options,
    ) -> None:
        """Keep the arguments.

        Args:
            plan: the plan to compute.
            models: the models that the plan's operands belong to.
            temporaries: the memory between the steps, for this computation alone.
            parts: the parts and bursts that execute the steps.
            options: settings; steps are never timed (RT:R22).
        """
        self._plan: Final = plan
        self._models: Final = models
        self._temporaries: Final = temporaries
        self._parts: Final = parts
        self._options: Final = Options(
            False, options.deadline_ns, options.loop_timeout_ns, is_final=options.is_final
        )
        self._values: Final[dict[SourceOperand, Value]] = {}
        self._numbers: Final = {step.index: n for n, step in enumerate(plan.execution_steps)}
        self._loops: Final[dict[int, _Loop]] = {}
        self._insufficient: Final[set[SourceOperand]] = set()
        #: Whether a step may still write into the temporaries; then they are not used again.
        self.is_tainted = False
        #: Seconds that each step took last, by its index.
        self.seconds: Final[dict[int, float]] = {}
        #: The position of the device for each executed step; -1 is the CPU.
        self.executed: Final[list[int]] = []

    def run(
        self, inputs: Sequence[Argument], outputs: Sequence[Argument], *, allow_fallback: bool
    ) -> tuple[Outcome, bool]:
        """Execute the steps.

        Returns:
            The outcome, and whether the CPU is to compute the whole model instead.
        """
        graph = self._models.graph(0)
        self._bind(graph.input_indexes, inputs)
        self._bind(graph.output_indexes, outputs)
        for (source, number), value in self._temporaries.values.items():
            if not number:
                value.dimensions = self._models.operand(source).dimensions
                self._values[source] = value
        try:
            return self._run(allow_fallback=allow_fallback)
        except NnburstError as error:  # a failure of the interpreter itself (RT:R13)
            return Outcome.of(error), allow_fallback

    def _run(self, *, allow_fallback: bool) -> tuple[Outcome, bool]:
        position = 0
        while position < len(self._plan.steps):
            step = self._plan.steps[position]
            if isinstance(step, GotoStep):
                position = step.target
            elif isinstance(step, IfStep):
                position = self._choose(step)
            elif isinstance(step, WhileStep):
                following = self._iterate(step)
                if following is None:
                    return _TIMEOUT, False
                position = following
            else:
                outcome, whole = self._execute(step, allow_fallback=allow_fallback)
                if outcome.code != ResultCode.NO_ERROR:
                    return outcome, whole
                position += 1
        return Outcome(output_shapes=self._output_shapes()), False

    def _bind(self, operands: Sequence[int], arguments: Sequence[Argument]) -> None:
        for operand, argument in zip(operands, arguments, strict=True):
            self._values[SourceOperand(0, operand)] = GivenValue(argument)

    def _output_shapes(self) -> tuple[OutputShape, ...]:
        sources = [SourceOperand(0, operand) for operand in self._models.graph(0).output_indexes]
        return tuple(
            OutputShape(self._values[source].dimensions, source not in self._insufficient)
            for source in sources
        )

    # -- execution steps -------------------------------------------------------------------------------------

    def _execute(self, step: ExecutionStep, *, allow_fallback: bool) -> tuple[Outcome, bool]:
        """Run one step; return its outcome, and whether the CPU is to compute the whole model instead."""
        outcome = self._attempt(step, on_cpu=False)
        if outcome.has_result:
            return self._unless_empty(step, outcome, allow_fallback=allow_fallback)
        if not allow_fallback or self._options.is_over:
            return outcome, False
        name = self._parts.name(step.device)
        if self._parts.is_cpu(step.device):
            return outcome, True
        logger.log(
            failure_level(),
            "step %d failed on %s (%s: %s): the CPU executes it",
            step.index,
            name,
            outcome.code.name,
            outcome.message,
        )
        repeated = self._attempt(step, on_cpu=True)
        if repeated.has_result:
            return self._unless_empty(step, repeated, allow_fallback=allow_fallback)
        return outcome, True

    def _unless_empty(
        self, step: ExecutionStep, outcome: Outcome, *, allow_fallback: bool
    ) -> tuple[Outcome, bool]:
        """The outcome; a failure if an output for another step is empty: no driver takes it (RT:R11)."""
        if outcome.code == ResultCode.OUTPUT_INSUFFICIENT_SIZE:
            return Outcome(outcome.code, self._output_shapes(), message=outcome.message), False
        read = {*step.downstream_outputs, *range(len(step.model_outputs), len(step.outputs))}
        dimensions = [self._value(step, pair.source).dimensions for pair in step.outputs]
        if not any(0 in dimensions[n] for n in read):
            return outcome, False
        message = f"step {step.index} gives a tensor without elements"
        return Outcome(ResultCode.OP_FAILED, message=message), allow_fallback

    def _attempt(self, step: ExecutionStep, *, on_cpu: bool) -> Outcome:
        """Run a step until its temporaries are large enough (RT:R11, R12)."""
        number = self._numbers[step.index]
        device = None if on_cpu or self._parts.is_cpu(step.device) else step.device
        try:
            executor = self._executor(number, on_cpu=on_cpu)
            lengths = self._first_lengths(step)
            while True:
                self._allocate(step, lengths)
                inputs = [self._value(step, pair.source).argument(device) for pair in step.inputs]
                outputs = [self._value(step, pair.source).argument(device) for pair in step.outputs]
                began = time.perf_counter()
                with trace(Layer.RUNTIME, Phase.EXECUTION, self._title(step, on_cpu=on_cpu)):
                    outcome = executor.execute(inputs, outputs, self._options)
                self.seconds[step.index] = time.perf_counter() - began
                outcome = self._checked(step, outputs, outcome)
                vlog.write(
                    "execution", "%s: %s", self._title(step, on_cpu=on_cpu), outcome.code.name
                )
                if not self._grow(step, outcome, lengths):
                    break
        except NnburstError as error:
            outcome = Outcome.of(error)
        if outcome.code == ResultCode.NO_ERROR:
            self.executed.append(-1 if device is None else device)
        if outcome.code in (
            ResultCode.MISSED_DEADLINE_TRANSIENT,
            ResultCode.MISSED_DEADLINE_PERSISTENT,
        ):
            self.is_tainted = True
        return outcome

    def _title(self, step: ExecutionStep, *, on_cpu: bool) -> str:
        """The name of an attempt in a trace."""
        device = f"the CPU after {self._parts.name(step.device)}"
        return f"step {step.index} on {device if on_cpu else self._parts.name(step.device)}"

    def _executor(self, number: int, *, on_cpu: bool) -> PreparedPart | BurstController:
        if on_cpu:
            self._parts.settle()
            return self._parts.on_cpu(number)
        return self._parts.burst(number) or self._parts.part(number)

    def _value(self, step: ExecutionStep, operand: int) -> Value:
        return self._values[SourceOperand(step.source_model, operand)]

    def _checked(
        self, step: ExecutionStep, outputs: Sequence[Argument], outcome: Outcome
    ) -> Outcome:
        """Note the shapes that an outcome reports; OP_FAILED if they are impossible (RT:R10)."""
        operands = [
            self._models.operand(SourceOperand(step.source_model, pair.source))
            for pair in step.outputs
        ]
        outcome = checked_outcome(
            outcome,
            [output.dimensions for output in outputs],
            [operand.type not in SCALARS for operand in operands],
            [element_size(operand) for operand in operands],
        )
        for pair, shape in zip(step.outputs, outcome.output_shapes, strict=False):
            source = SourceOperand(step.source_model, pair.source)
            self._values[source].dimensions = shape.dimensions
            if shape.is_sufficient:
                self._insufficient.discard(source)
            else:
                self._insufficient.add(source)
        return outcome

    # -- temporaries of unknown size -------------------------------------------------------------------------

    def _first_lengths(self, step: ExecutionStep) -> dict[int, int]:
        """The first guess of each length: the length of the last computation, or one element (RT:R3)."""
        known = self._temporaries.lengths.get(step.index)
        if known is not None:
            return known
        lengths = self._temporaries.lengths.setdefault(step.index, {})
        for position in step.dynamic_outputs:
            source = SourceOperand(step.source_model, step.outputs[position].source)
            lengths[position] = padded(element_size(self._models.operand(source)))
        return lengths

    def _allocate(self, step: ExecutionStep, lengths: dict[int, int]) -> None:
        if not lengths:
            return
        total = sum(lengths.values())
        pool = self._temporaries.dynamic_pool(step.index, total, step.device)
        spare = (pool.size - total) // len(lengths) // 64 * 64
        offset = 0
        for position, length in lengths.items():
            source = SourceOperand(step.source_model, step.outputs[position].source)
            known = self._values.get(source)
            dimensions = (
                self._models.operand(source).dimensions if known is None else known.dimensions
            )
            self._values[source] = PooledValue(pool, offset, length + spare, dimensions)
            offset += length + spare

    def _grow(self, step: ExecutionStep, outcome: Outcome, lengths: dict[int, int]) -> bool:
        """Enlarge the temporaries that were too small; True if the step must run again (RT:R11, R12)."""
        if outcome.code != ResultCode.OUTPUT_INSUFFICIENT_SIZE:
            return False
        outputs = range(len(step.model_outputs))
        sources = [SourceOperand(step.source_model, pair.source) for pair in step.outputs]
        if any(sources[n] in self._insufficient for n in outputs) or not lengths:
            return False
        grown = False
        for position, length in lengths.items():
            source = sources[position]
            operand, value = self._models.operand(source), self._values[source]
            needed = padded(known_size(operand, value.dimensions))
            if needed == 0 and source in self._insufficient:
                needed = 2 * value.room
            if needed > _LARGEST:
                raise _too_large(step)
            if needed > value.room:
                lengths[position], grown = needed, True
            else:
                lengths[position] = max(length, value.room)
        return grown

    # -- interpreted control flow ----------------------------------------------------------------------------

    def _choose(self, step: IfStep) -> int:
        """The first step of the branch that the condition picks; its operands get outer values (RT:R6)."""
        self._parts.settle()
        condition = self._values[SourceOperand(step.source_model, step.condition)]
        then = bool(condition.bytes(1)[0])
        model = step.then_model if then else step.else_model
        inputs = step.then_inputs if then else step.else_inputs
        outputs = step.then_outputs if then else step.else_outputs
        for inner, outer in zip(inputs, step.outer_inputs, strict=True):
            self._alias(model, inner, step.source_model, outer)
        for inner, outer in zip(outputs, step.outer_outputs, strict=True):
            self._alias(model, inner, step.source_model, outer)
        return step.then_step if then else step.else_step

    def _alias(self, inner_model: int, inner: int, outer_model: int, outer: int) -> None:
        self._values[SourceOperand(inner_model, inner)] = self._values[
            SourceOperand(outer_model, outer)
        ]

    def _iterate(self, step: WhileStep) -> int | None:
        """The next step of a loop; None if the loop has run too long (RT:R7)."""
        self._parts.settle()
        loop = self._loops.setdefault(step.index, _Loop())
        outer = [self._values[SourceOperand(step.source_model, n)] for n in step.outer_inputs]
        if not loop.decides:
            loop.iteration += 1
            if not loop.iteration:
                loop.began = time.monotonic()
                loop.inputs = outer
            else:
                written = [
                    self._values[SourceOperand(step.body_model, n)] for n in step.body_outputs
                ]
                loop.inputs = [*written, *outer[len(written) :]]
            for inner, value in zip(step.cond_inputs, loop.inputs, strict=True):
                self._values[SourceOperand(step.cond_model, inner)] = value
            loop.decides = True
            return step.cond_step
        loop.decides = False
        if time.monotonic() - loop.began > self._options.loop_timeout_ns / 1e9:
            return None
        decision = self._values[SourceOperand(step.cond_model, step.cond_output)]
        if not decision.bytes(1)[0]:
            self._leave(step, loop)
            return step.exit_step
        for inner, value in zip(step.body_inputs, loop.inputs, strict=True):
            self._values[SourceOperand(step.body_model, inner)] = value
        for operand in step.body_outputs:
            source = SourceOperand(step.body_model, operand)
            self._values[source] = self._temporaries.values[source, loop.iteration % 2]
        return step.body_step

    def _leave(self, step: WhileStep, loop: _Loop) -> None:
        for operand, value in zip(step.outer_outputs, loop.inputs, strict=False):
            source = SourceOperand(step.source_model, operand)
            size = TYPES.size_bytes(self._models.operand(source))
            target = self._values[source]
            if target is not value:
                target.bytes(size)[...] = value.bytes(size)
        del self._loops[step.index]


def _too_large(step: ExecutionStep) -> GeneralFailure:
    return GeneralFailure(f"step {step.index}: a temporary would need more than 2^31 bytes")
