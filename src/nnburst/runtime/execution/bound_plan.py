"""Binds arguments to the bursts of a plan's steps, which then run by one C call."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final, Protocol

import numpy as np

from nnburst.client.arguments import ExecutionResult
from nnburst.client.burst.steps import IN_USE, BoundSteps, run_steps
from nnburst.client.memory import Memory as Pool
from nnburst.client.memory import find_memory
from nnburst.client.session.gate import Gate
from nnburst.client.staging import Layout
from nnburst.fmq.cores import each_may_spin
from nnburst.hal.enums import ResultCode
from nnburst.hal.errors import (
    BurstBusy,
    Closed,
    DeadObject,
    MissedDeadline,
    NnburstError,
)
from nnburst.hal.limits import UINT32_MAX
from nnburst.hal.types import OutputShape
from nnburst.hal.utils import Closing, failure_level
from nnburst.runtime.argument import (
    SUCCESS,
    Argument,
    BurstController,
    Bytes,
    Options,
    Outcome,
    PreparedPart,
)
from nnburst.runtime.devices.cpu_device import CpuBurst
from nnburst.runtime.devices.driver_device import DriverBurst, DriverPart
from nnburst.runtime.execution.temporaries import CompoundMemory, GivenValue, Temporaries, Value
from nnburst.runtime.planning.plan import CompoundPlan, ExecutionStep, SourceOperand

logger = logging.getLogger("nnburst.runtime")


class Bursts(Closing):
    """The burst of each part of a plan; None for those that have none.

    Attributes:
        of_parts: the bursts, in the order of the execution steps.
        gate: admits one user of the bursts at a time.
        temporaries: temporaries of executions that are not bound; closed with this object. The next
            execution may use them even if the last one was abandoned, since each burst first waits until
            its driver has finished.
    """

    def __init__(self, of_parts: Sequence[BurstController | None]) -> None:
        """Own the bursts."""
        self.of_parts: Final = tuple(of_parts)
        self.gate: Final = Gate(IN_USE)
        self.temporaries: Temporaries | None = None

    def check_temporaries(self) -> None:
        """Close the temporaries if a driver with a burst has died; the next execution gets new ones."""
        if self.temporaries is not None and any(
            burst is not None and burst.died_ns is not None for burst in self.of_parts
        ):
            self.temporaries.close()
            self.temporaries = None

    def close(self) -> None:
        """Close all bursts, even if closing one of them fails."""
        if self.temporaries is not None:
            self.temporaries.close()
        for burst in self.of_parts:
            if burst is not None:
                try:
                    burst.close()
                except NnburstError:
                    continue


def open_bursts(parts: Sequence[PreparedPart], is_closed: Callable[[], bool]) -> Bursts:
    """Open a burst for each part whose device has bursts.

    Drivers spin only if there is a core for each of them and one for this process. Otherwise a spinning
    driver would keep the next step's driver from running.

    Args:
        parts: the parts of the plan.
        is_closed: returns whether another thread has released the parts meanwhile.

    Raises:
        Closed: another thread has released the parts.
    """
    drivers = [part for part in parts if isinstance(part, DriverPart)]
    spins = len(drivers) == 1 or each_may_spin(part.prepared.pid for part in drivers)
    bursts: list[BurstController | None] = []
    for part in parts:
        try:
            if isinstance(part, DriverPart):
                bursts.append(part.open_burst(driver_spins=spins))
            else:
                bursts.append(part.open_burst())
        except NnburstError as error:
            if is_closed():
                Bursts(bursts).close()
                raise Closed("the compilation was closed while bursts were opened") from error
            logger.log(
                failure_level(), "a step has no burst (%s): it executes the ordinary way", error
            )
            bursts.append(None)
    return Bursts(bursts)


#: Nanoseconds of a timeout that may pass before the run begins without being subtracted.
_NOTHING_NS: Final = 100_000

# -- bound plan ------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Copy:
    """Bytes of the application that bursts do not reach, and the pool's bytes that steps use instead.

    Attributes:
        given: the application's bytes.
        pooled: the bytes in a pool.
    """

    given: Bytes
    pooled: Bytes


class _StepBurst(Protocol):
    """A driver's burst that a step is bound to, or the CPU's substitute for one."""

    @property
    def has_known_outputs(self) -> bool:
        """Whether the model declares the shapes of all outputs."""

    def bind(self, inputs: Sequence[Argument], outputs: Sequence[Argument]) -> Any:  # noqa: ANN401
        """Bind arguments."""

    def holds(self, request: Any) -> bool:  # noqa: ANN401 - one that `bind` made
        """Whether a request can still be run."""

    def has_replaced(self, request: Any) -> bool:  # noqa: ANN401
        """Whether the request's burst has been replaced by another one."""

    def outcome(self, result: Any, outputs: Sequence[Argument]) -> Outcome:  # noqa: ANN401
        """The outcome of a request's run."""


@dataclass(frozen=True, slots=True)
class _Step:
    """A step's burst and its arguments, which all lie in pools."""

    burst: _StepBurst
    inputs: list[Argument]
    outputs: list[Argument]


class BoundPlan(Closing):
    """A plan with bound arguments. One run at a time; the caller copies `inputs` before, `outputs` after it.

    Attributes:
        steps: the requests of the steps.
        inputs: copies to make before each run.
        outputs: copies to make after each run.
        arguments: inputs and outputs of the model as the steps use them, in pools.
        temporaries: temporaries of this plan alone; None for a plan of one step.
        is_stale: whether the plan must be bound anew before the next run: a driver has died, or a run was
            interrupted.
        is_tainted: whether a driver may still write to the temporaries when this plan is closed. The next
            run may use them nevertheless, since each burst first waits for its own late result.
        outcome: outcome of the last successful run.
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
        self.is_stale = self.is_tainted = False
        self._closed = False
        shapes = tuple(OutputShape(output.dimensions, True) for output in staged.outputs)
        self.outcome = Outcome(output_shapes=shapes)
        requests = [step.burst.bind(step.inputs, step.outputs) for step in steps]
        self.steps: Final = BoundSteps(requests, gate, timeout)

    @property
    def needs_python(self) -> bool:
        """Whether the CPU has a step, which Python computes."""
        return self.steps.in_process

    @property
    def is_known(self) -> bool:
        """Whether the model declares the shapes of all values that the steps write."""
        return all(step.burst.has_known_outputs for step in self._each)

    @property
    def is_current(self) -> bool:
        """Whether the plan may be run: no step has failed and no burst was replaced since it was bound."""
        pairs = zip(self._each, self.steps.requests, strict=True)
        return not self.is_stale and all(step.burst.holds(request) for step, request in pairs)

    @property
    def is_replaced(self) -> bool:
        """Whether a burst of this plan was replaced because its driver had died."""
        pairs = zip(self._each, self.steps.requests, strict=True)
        return any(step.burst.has_replaced(request) for step, request in pairs)

    def run(self) -> int:
        """Copy the inputs and run all steps; returns their status, which `conclude` takes."""
        self.copy_in()
        return run_steps(self.steps.struct)

    def run_until(self, timeout_ns: int | None, began_ns: int) -> int:
        """Run as `run` does, with the rest of a timeout that began at `began_ns` on CLOCK_MONOTONIC."""
        gone_ns = time.monotonic_ns() - began_ns
        if timeout_ns is None or gone_ns < _NOTHING_NS:
            return self.run()
        try:
            self.steps.set_timeout(max(timeout_ns - gone_ns, 1))
            return self.run()
        finally:
            self.steps.set_timeout(timeout_ns)

    def copy_in(self) -> None:
        """Copy the inputs that bursts do not reach into the pool that the steps read."""
        for copy in self.inputs:
            copy.pooled[...] = copy.given

    def copy_out(self) -> None:
        """Copy the outputs that bursts do not reach into the application's memory."""
        for copy in self.outputs:
            copy.given[...] = copy.pooled

    def conclude(self, code: int) -> Sequence[BurstController] | None:
        """Finish a run that ended with `code`.

        Returns:
            None if all steps succeeded. If one failed: substitutes for the bursts of all steps up to it,
            which return the outcomes of these steps; an execution on them continues after the failed step.

        Raises:
            BurstBusy: another run is under way; this one has not begun.
            Closed: a burst or a pool was closed.
        """
        outcome = SUCCESS

        def accept(at: int, result: ExecutionResult) -> bool:
            nonlocal outcome
            step = self._each[at]
            outcome = step.burst.outcome(result, step.outputs)
            if outcome.code != ResultCode.NO_ERROR:
                return False
            if len(self._each) == 1:
                self.outcome = outcome
            return True

        try:
            if self.steps.conclude(code, accept):
                return None
        except BurstBusy:
            raise
        except NnburstError as error:
            if isinstance(error, Closed):
                if not self.is_replaced:
                    self.is_stale = self.is_tainted = True
                    raise
                error = _dead()
            outcome = Outcome.of(error)
        except BaseException:
            self.is_stale = self.is_tainted = True
            raise
        self._has_failed()
        return [*([_Ended(SUCCESS)] * self.steps.at), _Ended(outcome)]

    def _has_failed(self) -> None:
        """Note that a step has failed, for the next run and for the temporaries."""
        self.is_tainted = True
        by_bursts = self._memory is None or self._memory.all_go_by_bursts
        self.is_stale = not (by_bursts and self.is_current)

    def run_step(self, number: int, timeout: float) -> Sequence[BurstController] | None:
        """Run one step; the steps before it have been run.

        Args:
            number: the step's number.
            timeout: seconds; the step fails at once if no time is left.

        Returns:
            The same as `conclude`.

        Raises:
            Closed: a burst or a pool was closed.
        """
        step, request = self._each[number], self.steps.requests[number]
        try:
            if timeout <= 0:
                raise MissedDeadline(f"the deadline has passed before step {number}")
            outcome = step.burst.outcome(request.run(timeout), step.outputs)
        except Closed:
            if not self.is_replaced:
                self.is_stale = self.is_tainted = True
                raise
            outcome = Outcome.of(_dead())
        except NnburstError as error:
            outcome = Outcome.of(error)
        if outcome.code == ResultCode.NO_ERROR:
            if len(self._each) == 1:
                self.outcome = outcome
            return None
        self._has_failed()
        return [*([_Ended(SUCCESS)] * number), _Ended(outcome)]

    def close(self) -> None:
        """Release the memory of this plan; twice is fine."""
        if self._closed:
            return
        self._closed = True
        self._staged.close()
        if self.temporaries is not None and self._memory is not None:
            self._memory.release(self.temporaries, usable=not self.is_tainted)


def _dead() -> DeadObject:
    """The error for a burst that was replaced by another one."""
    return DeadObject("the driver has died; another burst is open in the place of this one")


class _Ended:
    """The substitute for the burst of a step that has already run; returns the step's outcome."""

    def __init__(self, outcome: Outcome) -> None:
        self._outcome: Final = outcome

    died_ns: Final = None

    def revive(self) -> None:
        """Do nothing: the step has run."""

    def execute(
        self,
        inputs: Sequence[Argument],  # noqa: ARG002 - the step has run
        outputs: Sequence[Argument],  # noqa: ARG002
        options: Options,  # noqa: ARG002
    ) -> Outcome:
        """The outcome of the step."""
        return self._outcome

    def close(self) -> None:
        """Do nothing: this object owns no burst."""


class _Staged(Closing):
    """Arguments of the model where bursts reach them; a new pool takes those that lie elsewhere."""

    def __init__(self, inputs: Sequence[Argument], outputs: Sequence[Argument]) -> None:
        self.copies_in: list[Copy] = []
        self.copies_out: list[Copy] = []
        layout = Layout()
        places = [
            None
            if argument.bytes is None or _is_reached(argument.bytes)
            else layout.place(argument.bytes.size)
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


def _is_reached(array: Bytes) -> bool:
    """Whether an array lies in a pool, at an offset that packets of bursts can hold."""
    found = find_memory(array)
    return found is not None and found[1] <= UINT32_MAX


def bind_simple(
    inputs: Sequence[Argument], outputs: Sequence[Argument], bursts: Bursts, timeout: float
) -> BoundPlan | None:
    """Bind a plan of one step; None if there is no burst, or an argument lies in a buffer.

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
    """Bind a static plan; None with control flow, unknown shapes, buffers, or a step without a burst.

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
    """The bursts that the steps of a plan are bound to; None if the plan can never be bound."""
    if plan is None:
        return [burst for burst in bursts.of_parts if isinstance(burst, DriverBurst)] or None
    found = [
        burst
        for burst in bursts.of_parts
        if isinstance(burst, DriverBurst | CpuBurst) and burst.has_known_outputs
    ]
    return found if _is_static(plan) and len(found) == len(bursts.of_parts) else None


def _is_static(plan: CompoundPlan) -> bool:
    """Whether a plan is a sequence of steps whose temporaries have known sizes."""
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
