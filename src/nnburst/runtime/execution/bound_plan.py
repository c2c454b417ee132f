"""BoundPlan: arguments bound to the bursts of a plan's steps, which then run by one call of C's."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final, Protocol

import numpy as np

from nnburst.client.burst.steps import BoundSteps, run_steps
from nnburst.client.memory.arguments import ExecutionResult
from nnburst.client.memory.memory import Memory as Pool
from nnburst.client.memory.memory import find_memory
from nnburst.client.memory.staging import Layout
from nnburst.client.session.gate import Gate
from nnburst.hal.closing import Closing
from nnburst.hal.enums import ResultCode
from nnburst.hal.errors import BurstBusy, Closed, MissedDeadline, NnburstError, error_for_code
from nnburst.hal.timing import OutputShape
from nnburst.runtime.argument import (
    SUCCESS,
    Argument,
    BurstController,
    Bytes,
    Options,
    Outcome,
)
from nnburst.runtime.devices.cpu_device import CpuBurst
from nnburst.runtime.devices.driver_part import DriverBurst
from nnburst.runtime.execution.bursts import Bursts
from nnburst.runtime.execution.compound_memory import CompoundMemory
from nnburst.runtime.execution.temporaries import Temporaries
from nnburst.runtime.execution.values import GivenValue, Value
from nnburst.runtime.planning.plan import CompoundPlan, ExecutionStep, SourceOperand


@dataclass(frozen=True, slots=True)
class Copy:
    """Bytes of the application's that lie in no pool, and the pool's bytes that stand for them.

    Attributes:
        given: the application's.
        pooled: in a pool.
    """

    given: Bytes
    pooled: Bytes


class _StepBurst(Protocol):
    """What a step is bound to: a driver's burst, or what stands for one on the CPU."""

    @property
    def has_known_outputs(self) -> bool:
        """Whether the model declares all shapes of the outputs."""

    def bind(self, inputs: Sequence[Argument], outputs: Sequence[Argument]) -> Any:  # noqa: ANN401
        """Arguments, bound."""

    def holds(self, request: Any) -> bool:  # noqa: ANN401 - one that `bind` made
        """Whether a request can be run."""

    def has_replaced(self, request: Any) -> bool:  # noqa: ANN401
        """Whether another burst is open in the place of a request's."""

    def outcome(self, result: Any, outputs: Sequence[Argument]) -> Outcome:  # noqa: ANN401
        """What a run of a request gave."""


@dataclass(frozen=True, slots=True)
class _Step:
    """One step's burst and its arguments, all in pools."""

    burst: _StepBurst
    inputs: list[Argument]
    outputs: list[Argument]


class BoundPlan(Closing):
    """Arguments of a plan, bound. One run at a time; its caller copies `inputs` before, `outputs` behind.

    Attributes:
        steps: the requests.
        inputs: what is copied before a run.
        outputs: what is copied behind it.
        arguments: of the model, inputs and outputs, as the steps have them: in pools.
        temporaries: of this plan alone; None for a plan of one step.
        is_stale: whether the next run is to be of a plan that is bound anew: a driver may still write to the
            temporaries, or has died.
        outcome: of the last run that went well.
    """

    def __init__(
        self,
        gate: Gate,
        steps: Sequence[_Step],
        staged: _Staged,
        memory: CompoundMemory | None,
        temporaries: Temporaries | None,
        timeout: float,
    ) -> None:
        """Use `bind_plan`."""
        self._each: Final = tuple(steps)
        self._staged: Final = staged
        self._memory: Final = memory
        self.temporaries: Final = temporaries
        self.inputs: Final = tuple(staged.copies_in)
        self.outputs: Final = tuple(staged.copies_out)
        self.arguments: Final = staged.inputs, staged.outputs
        self.is_stale = False
        self._closed = False
        shapes = tuple(OutputShape(output.dimensions, True) for output in staged.outputs)
        self.outcome = Outcome(output_shapes=shapes)
        requests = [step.burst.bind(step.inputs, step.outputs) for step in steps]
        self.steps: Final = BoundSteps(requests, gate, timeout)

    @property
    def needs_python(self) -> bool:
        """Whether a step is the CPU's, which computes in Python."""
        return self.steps.in_process

    @property
    def is_known(self) -> bool:
        """Whether the model declares the shapes of all that the steps write."""
        return all(step.burst.has_known_outputs for step in self._each)

    @property
    def is_current(self) -> bool:
        """Whether it may be run: nothing has failed, and each burst is still the one that it is bound to."""
        pairs = zip(self._each, self.steps.requests, strict=True)
        return not self.is_stale and all(step.burst.holds(request) for step, request in pairs)

    @property
    def is_replaced(self) -> bool:
        """Whether a burst that it is bound to has died, and another is open in its place."""
        pairs = zip(self._each, self.steps.requests, strict=True)
        return any(step.burst.has_replaced(request) for step, request in pairs)

    def run(self) -> int:
        """Copy the inputs and run all steps; their status, which `conclude` finishes."""
        self.copy_in()
        return run_steps(self.steps.struct)

    def copy_in(self) -> None:
        """Bring what lies in no pool to where the steps read it."""
        for copy in self.inputs:
            copy.pooled[...] = copy.given

    def copy_out(self) -> None:
        """Bring what the steps wrote to where the application wants it."""
        for copy in self.outputs:
            copy.given[...] = copy.pooled

    def conclude(self, code: int) -> Sequence[BurstController] | None:
        """Finish a run that ended with `code`.

        Returns:
            None if all steps ended well. If one failed: what stands for the bursts of the steps up to it, so
            that who executes on them goes on as if these steps had been executed there.

        Raises:
            BurstBusy: another run is inside; this one has not begun.
            Closed: a burst or a pool was closed.
        """
        outcome = SUCCESS

        def accept(at: int, result: ExecutionResult) -> None:
            nonlocal outcome
            step = self._each[at]
            outcome = step.burst.outcome(result, step.outputs)
            if outcome.code != ResultCode.NO_ERROR:
                raise error_for_code(outcome.code, outcome.message, outcome.output_shapes)
            if len(self._each) == 1:
                self.outcome = outcome

        try:
            self.steps.conclude(code, accept)
        except BurstBusy:
            raise
        except NnburstError as error:
            self.is_stale = self.temporaries is not None or not self.is_current
            if isinstance(error, Closed):
                raise
            if outcome.code == ResultCode.NO_ERROR:
                outcome = Outcome.of(error)
            return [*([_Ended(SUCCESS)] * self.steps.at), _Ended(outcome)]
        except BaseException:
            self.is_stale = True
            raise
        return None

    def run_step(self, number: int, timeout: float) -> Sequence[BurstController] | None:
        """Run one step; the steps before it have been run.

        Args:
            number: of the step.
            timeout: seconds; the step fails at once if no time is left.

        Returns:
            As `conclude`.

        Raises:
            Closed: a burst or a pool was closed.
        """
        step, request = self._each[number], self.steps.requests[number]
        try:
            if timeout <= 0:
                raise MissedDeadline(f"the deadline has passed before step {number}")
            outcome = step.burst.outcome(request.run(timeout), step.outputs)
        except Closed:
            self.is_stale = True
            raise
        except NnburstError as error:
            outcome = Outcome.of(error)
        if outcome.code == ResultCode.NO_ERROR:
            if len(self._each) == 1:
                self.outcome = outcome
            return None
        self.is_stale = self.temporaries is not None or not self.is_current
        return [*([_Ended(SUCCESS)] * number), _Ended(outcome)]

    def close(self) -> None:
        """Give the memory up that is this plan's; twice is fine."""
        if self._closed:
            return
        self._closed = True
        self._staged.close()
        if self.temporaries is not None and self._memory is not None:
            self._memory.release(self.temporaries, usable=not self.is_stale)


class _Ended:
    """Stands for a burst that a step has been executed on."""

    def __init__(self, outcome: Outcome) -> None:
        self._outcome: Final = outcome

    def revive(self, seconds: float | None, began_ns: int | None) -> None:
        """Nothing: it has ended."""

    def execute(
        self,
        inputs: Sequence[Argument],  # noqa: ARG002 - they were there when it ran
        outputs: Sequence[Argument],  # noqa: ARG002
        options: Options,  # noqa: ARG002
    ) -> Outcome:
        """What came of it."""
        return self._outcome

    def close(self) -> None:
        """Nothing: the burst is another's."""


class _Staged(Closing):
    """Arguments of the model in pools: those that lie in none get bytes of one pool together."""

    def __init__(self, inputs: Sequence[Argument], outputs: Sequence[Argument]) -> None:
        self.copies_in: list[Copy] = []
        self.copies_out: list[Copy] = []
        layout = Layout()
        places = [
            layout.place(argument.bytes.size)
            if argument.bytes is not None and find_memory(argument.bytes) is None
            else None
            for argument in (*inputs, *outputs)
        ]
        self._pool = Pool(layout.size) if layout.size else None
        count = len(inputs)
        self.inputs = self._moved(inputs, places[:count], self.copies_in)
        self.outputs = self._moved(outputs, places[count:], self.copies_out)

    def _moved(
        self, arguments: Sequence[Argument], places: Sequence[int | None], copies: list[Copy]
    ) -> list[Argument]:
        moved = []
        for argument, place in zip(arguments, places, strict=True):
            if place is None or self._pool is None or argument.bytes is None:
                moved.append(argument)
                continue
            pooled: Bytes = self._pool.array(np.uint8, (argument.bytes.size,), place)
            copies.append(Copy(argument.bytes, pooled))
            moved.append(Argument(pooled, argument.dimensions))
        return moved

    def close(self) -> None:
        if self._pool is not None:
            self._pool.close()


def bind_simple(
    inputs: Sequence[Argument], outputs: Sequence[Argument], bursts: Bursts, timeout: float
) -> BoundPlan | None:
    """Bind a plan of one step; None if that cannot be: no burst, or arguments in buffers.

    Raises:
        NnburstError: an argument does not fit, or the driver cannot be reached.
    """
    found = bursts_to_bind(None, bursts)
    if found is None or not _are_plain(inputs, outputs):
        return None
    staged = _Staged(inputs, outputs)
    return _bound(
        bursts, [_Step(found[0], staged.inputs, staged.outputs)], staged, None, None, timeout
    )


def bind_compound(
    memory: CompoundMemory,
    inputs: Sequence[Argument],
    outputs: Sequence[Argument],
    bursts: Bursts,
    timeout: float,
) -> BoundPlan | None:
    """Bind a static plan; None for others: a step without burst, control flow, unknown shapes, buffers.

    Raises:
        NnburstError: an argument does not fit, or a driver cannot be reached.
    """
    plan = memory.plan
    found = bursts_to_bind(plan, bursts)
    if found is None or not _are_plain(inputs, outputs):
        return None
    if any(0 in argument.dimensions for argument in (*inputs, *outputs)):
        return None
    temporaries = memory.take()
    staged = _Staged(inputs, outputs)
    try:
        values = _values(memory, staged, temporaries)
        steps = [
            _bind_step(step, burst, values)
            for step, burst in zip(plan.execution_steps, found, strict=True)
        ]
    except BaseException:
        staged.close()
        memory.release(temporaries)
        raise
    return _bound(bursts, steps, staged, memory, temporaries, timeout)


def bursts_to_bind(
    plan: CompoundPlan | None, bursts: Bursts
) -> Sequence[DriverBurst | CpuBurst] | None:
    """What the steps of a plan, or the one of a simple plan, are bound to; None if that can never be."""
    if plan is None:
        return [burst for burst in bursts.of_parts if isinstance(burst, DriverBurst)] or None
    found = [
        burst
        for burst in bursts.of_parts
        if isinstance(burst, DriverBurst | CpuBurst) and burst.has_known_outputs
    ]
    return found if _is_static(plan) and len(found) == len(bursts.of_parts) else None


def _is_static(plan: CompoundPlan) -> bool:
    """Whether all that a plan does is known beforehand: steps in a row, and temporaries of known sizes."""
    return not plan.dynamic_temporaries and all(
        isinstance(step, ExecutionStep) for step in plan.steps
    )


def _are_plain(inputs: Sequence[Argument], outputs: Sequence[Argument]) -> bool:
    return all(argument.buffer is None for argument in (*inputs, *outputs)) and not any(
        argument.is_omitted for argument in outputs
    )


def _values(
    memory: CompoundMemory, staged: _Staged, temporaries: Temporaries
) -> dict[SourceOperand, Value]:
    graph = memory.models.graph(0)
    values: dict[SourceOperand, Value] = {
        source: value for (source, number), value in temporaries.values.items() if not number
    }
    for operands, arguments in (
        (graph.input_indexes, staged.inputs),
        (graph.output_indexes, staged.outputs),
    ):
        for operand, argument in zip(operands, arguments, strict=True):
            values[SourceOperand(0, operand)] = GivenValue(argument)
    return values


def _bind_step(
    step: ExecutionStep, burst: DriverBurst | CpuBurst, values: dict[SourceOperand, Value]
) -> _Step:
    device = None if isinstance(burst, CpuBurst) else step.device
    return _Step(
        burst,
        *(
            [
                values[SourceOperand(step.source_model, pair.source)].argument(device)
                for pair in pairs
            ]
            for pairs in (step.inputs, step.outputs)
        ),
    )


def _bound(
    bursts: Bursts,
    steps: Sequence[_Step],
    staged: _Staged,
    memory: CompoundMemory | None,
    temporaries: Temporaries | None,
    timeout: float,
) -> BoundPlan:
    try:
        return BoundPlan(bursts.gate, steps, staged, memory, temporaries, timeout)
    except BaseException:
        staged.close()
        if memory is not None and temporaries is not None:
            memory.release(temporaries)
        raise
