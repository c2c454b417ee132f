"""DriverPart: a model or step that a driver has prepared, and its bursts."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Final, cast

import numpy as np

from nnburst.client.burst.bound_request import BoundRequest
from nnburst.client.execution.aidl_results import rounded
from nnburst.client.execution.buffer import Buffer
from nnburst.client.execution.fenced_execution import FencedExecution
from nnburst.client.execution.sync_fence import SyncFence
from nnburst.client.memory.arguments import Array, ExecutionResult, Parameter, seconds_until
from nnburst.client.resilient.resilient_burst import ResilientBurst
from nnburst.client.resilient.resilient_prepared_model import ResilientPreparedModel
from nnburst.hal.closing import Closing
from nnburst.hal.enums import ResultCode
from nnburst.hal.errors import DeadObject, GeneralFailure, MissedDeadline, NnburstError
from nnburst.hal.limits import DEFAULT_LOOP_TIMEOUT_NS
from nnburst.hal.timing import OutputShape
from nnburst.runtime.argument import Argument, Options, Outcome

#: Seconds that a call or a run gets if nothing else limits how long it may take: no wait is without an end.
PATIENCE: Final = 600.0


class DriverPart:
    """A model or step that a driver has prepared. Thread-safe; prepared again by `revive` alone.

    Attributes:
        prepared: the client's, with what it needs to be prepared again.
        takes_fences: whether it can begin behind fences: the driver's level has them, and the shapes
            of all outputs are known.
    """

    def __init__(self, prepared: ResilientPreparedModel, *, has_fences: bool = True) -> None:
        """Own `prepared`."""
        self.prepared: Final = prepared
        self.takes_fences: Final = has_fences and all(p.known for p in prepared.outputs)

    def revive(self, seconds: float | None, began_ns: int | None) -> None:
        """Connect and prepare again if the driver has died.

        Raises:
            NnburstError: it is not there again after `seconds`, or has died since `began_ns`.
        """
        self.prepared.recover(seconds, began_ns)

    def execute(
        self, inputs: Sequence[Argument], outputs: Sequence[Argument], options: Options
    ) -> Outcome:
        """Execute over the socket: pools where they are, other memory by a copy."""
        try:
            current = self.prepared.last
            arrays = self._arrays(inputs, outputs)
            left = seconds_left(options.deadline_ns)
            if options.loop_timeout_ns == DEFAULT_LOOP_TIMEOUT_NS:
                result = current.execute(
                    *arrays, measure=options.measure, timeout=left, attributes=options.attributes
                )
            else:
                pending = current.execute_async(
                    *arrays,
                    measure=options.measure,
                    timeout=left,
                    loop_timeout_ns=options.loop_timeout_ns,
                    attributes=options.attributes,
                )
                result = pending.result(left)
        except NnburstError as error:
            return Outcome.of(error)
        return self.outcome(result, outputs)

    def execute_fenced(
        self,
        inputs: Sequence[Argument],
        outputs: Sequence[Argument],
        options: Options,
        wait_for: Sequence[SyncFence],
        duration: float | None,
    ) -> FencedStep:
        """Have it execute once fences have signalled; arguments lie in pools or in its buffers.

        Args:
            inputs: read once the fences have signalled.
            outputs: written after that.
            options: how.
            wait_for: stay the caller's, who may close them.
            duration: seconds that it may take from the last fence on; None for no limit.

        Raises:
            NnburstError: the driver refuses, or is dead.
        """
        fenced = self.prepared.last.execute_fenced(
            *self._arrays(inputs, outputs),
            wait_for=wait_for,
            duration=duration,
            timeout=seconds_left(options.deadline_ns),
            measure=options.measure,
            attributes=options.attributes,
        )
        return FencedStep(self, fenced, outputs)

    def _arrays(
        self, inputs: Sequence[Argument], outputs: Sequence[Argument]
    ) -> tuple[list[Array | Buffer | None], list[Array | Buffer | None]]:
        prepared = self.prepared
        return (
            [_input(p, a) for p, a in zip(prepared.inputs, inputs, strict=True)],
            [_output(p, a) for p, a in zip(prepared.outputs, outputs, strict=True)],
        )

    def outcome(self, result: ExecutionResult, outputs: Sequence[Argument]) -> Outcome:
        """What an execution gave; an output that only fits what it was rounded up to is too small."""
        shapes = []
        for parameter, argument, shape in zip(
            self.prepared.outputs, outputs, result.output_shapes, strict=True
        ):
            needed = parameter.dtype.itemsize * math.prod(shape.dimensions)
            fits = argument.bytes is None or needed <= argument.bytes.size
            shapes.append(OutputShape(shape.dimensions, fits))
        enough = all(shape.is_sufficient for shape in shapes)
        code = ResultCode.NO_ERROR if enough else ResultCode.OUTPUT_INSUFFICIENT_SIZE
        return Outcome(code, tuple(shapes), result.timing)

    def open_burst(self, *, driver_spins: bool = True) -> DriverBurst:
        """A burst on it; see `Burst.open`."""
        return DriverBurst(self, self.prepared.open_burst(driver_spins=driver_spins))

    def close(self) -> None:
        """Release it."""
        self.prepared.close()


class FencedStep(Closing):
    """An execution on a part that begins behind fences.

    Attributes:
        fence: signals when it is done; closed with this.
    """

    def __init__(
        self, part: DriverPart, fenced: FencedExecution, outputs: Sequence[Argument]
    ) -> None:
        """Own `fenced`."""
        self._part: Final = part
        self._fenced: Final = fenced
        self._outputs: Final = outputs
        self.fence: Final = fenced.fence

    def outcome(self, seconds: float) -> Outcome:
        """Wait for it; MISSED_DEADLINE_TRANSIENT if it is not done after `seconds`."""
        try:
            result = self._fenced.result(max(seconds, 0.001))
            fenced = rounded(self._fenced.info().fenced)
        except NnburstError as error:
            return Outcome.of(error)
        return replace(self._part.outcome(result, self._outputs), fenced_timing=fenced)

    def close(self) -> None:
        """Give it up; what is under way goes on."""
        self._fenced.close()


class DriverBurst:
    """A burst on a part. One execution at a time."""

    def __init__(self, part: DriverPart, burst: ResilientBurst) -> None:
        """Own `burst`."""
        self._part: Final = part
        self._burst: Final = burst

    def revive(self, seconds: float | None, began_ns: int | None) -> None:
        """Connect, prepare and open again if the driver has died.

        Raises:
            NnburstError: it is not there again after `seconds`, or has died since `began_ns`.
        """
        self._burst.recover(seconds, began_ns)

    def execute(
        self, inputs: Sequence[Argument], outputs: Sequence[Argument], options: Options
    ) -> Outcome:
        """Execute over the burst; what only the socket carries (loop timeout, attributes) goes there."""
        if options.attributes or options.loop_timeout_ns != DEFAULT_LOOP_TIMEOUT_NS:
            return self._part.execute(inputs, outputs, options)
        try:
            burst = self._burst.last
            arrays = self._part._arrays(inputs, outputs)
            result = burst.execute(
                *arrays, measure=options.measure, timeout=seconds_left(options.deadline_ns)
            )
        except NnburstError as error:
            return Outcome.of(error)
        return self._part.outcome(result, outputs)

    def bind(self, inputs: Sequence[Argument], outputs: Sequence[Argument]) -> BoundRequest:
        """Bind arguments in pools to the burst as it is now; `revive` comes before.

        Raises:
            NnburstError: an argument does not fit or lies in no pool, or the driver is dead.
        """
        ins, outs = self._part._arrays(inputs, outputs)
        burst = self._burst.last
        if not burst.is_alive:
            raise DeadObject("burst: its driver has died, and the next computation opens it again")
        return burst.bind(cast("list[Array | None]", ins), cast("list[Array | None]", outs))

    def holds(self, request: BoundRequest) -> bool:
        """Whether a request is bound to the burst as it is now, and can be run."""
        burst = self._burst.last
        return burst.is_alive and not request.closed and burst._has(request)

    def has_replaced(self, request: BoundRequest) -> bool:
        """Whether the burst that a request is bound to has died, and another is open in its place."""
        burst = self._burst.last
        return burst.is_alive and not burst._has(request)

    @property
    def has_known_outputs(self) -> bool:
        """Whether the model declares all shapes of the outputs."""
        return all(parameter.known for parameter in self._part.prepared.outputs)

    def outcome(self, result: ExecutionResult, outputs: Sequence[Argument]) -> Outcome:
        """What a run of a bound request gave."""
        return self._part.outcome(result, outputs)

    def close(self) -> None:
        """Close it."""
        self._burst.close()


def _input(parameter: Parameter, argument: Argument) -> Array | Buffer | None:
    if argument.buffer is not None or argument.bytes is None:
        return argument.buffer
    dimensions = () if parameter.scalar else argument.dimensions
    length = parameter.dtype.itemsize * math.prod(dimensions)
    if length > argument.bytes.size or 0 in dimensions:
        raise GeneralFailure(
            f"{parameter.name}: dimensions {list(dimensions)} do not fit {argument.bytes.size} bytes"
        )
    found: Array = argument.bytes[:length].view(parameter.dtype).reshape(dimensions)
    return found


def _output(parameter: Parameter, argument: Argument) -> Array | Buffer | None:
    """An array for an output; one for a shape that is not known is as long as its room."""
    if argument.buffer is not None:
        return argument.buffer
    if argument.bytes is None:
        raise GeneralFailure(f"{parameter.name}: it is omitted, which no driver takes")
    if parameter.known:
        found: Array = argument.bytes[: parameter.size].view(parameter.dtype)
        return found.reshape(parameter.dimensions)
    count = argument.bytes.size // parameter.dtype.itemsize
    if not count:
        return np.empty(1, parameter.dtype)  # less than one element: whatever comes is too much
    room: Array = argument.bytes[: count * parameter.dtype.itemsize].view(parameter.dtype)
    return room


def seconds_left(deadline_ns: int | None) -> float:
    """Until a deadline on CLOCK_BOOTTIME.

    Raises:
        MissedDeadline: it has passed.
    """
    if deadline_ns is None:
        return PATIENCE
    left = seconds_until(deadline_ns)
    if left <= 0:
        raise MissedDeadline("the deadline has passed before the driver was called")
    return left
