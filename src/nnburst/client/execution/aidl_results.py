"""Results of the ways to execute that AIDL has: their timing is in nanoseconds."""

from __future__ import annotations

from typing import Any, Final

import msgspec

from nnburst.client.execution.placed_request import PlacedRequest
from nnburst.client.memory.arguments import ExecutionResult
from nnburst.compat.conversion.timing import ExecutionTiming, to_hal
from nnburst.control.messages.prepared_model import Executed
from nnburst.hal.enums import FeatureLevel
from nnburst.hal.limits import NO_TIMING
from nnburst.hal.timing import OutputShape, Timing

_NOT_MEASURED: Final = Timing()
_NO_NANOSECONDS: Final = ExecutionTiming(None, None)


def precise(device: int, driver: int) -> ExecutionTiming:
    """A timing of a message in nanoseconds; 2**64 - 1 means unknown."""
    both = (None if value == NO_TIMING else value for value in (device, driver))
    return ExecutionTiming(*both)


def rounded(timing: ExecutionTiming) -> Timing:
    """The same in microseconds, as HIDL has it."""
    hidl = to_hal(timing, FeatureLevel.V1_3)
    return hidl if isinstance(hidl, Timing) else Timing()


def with_timing(
    outputs: list[Any], shapes: tuple[OutputShape, ...], timing: Timing
) -> ExecutionResult:
    """A result whose timing came in nanoseconds: both are there."""
    if timing == _NOT_MEASURED:
        return ExecutionResult(outputs, shapes, _NOT_MEASURED, _NO_NANOSECONDS)
    nanoseconds = precise(timing.time_on_device, timing.time_in_driver)
    return ExecutionResult(outputs, shapes, rounded(nanoseconds), nanoseconds)


def in_microseconds(placed: PlacedRequest, executed: Executed) -> ExecutionResult:
    """The result of an execution whose timing came in nanoseconds: both are there."""
    timing = precise(executed.timing.time_on_device, executed.timing.time_in_driver)
    result = placed.result(Executed(executed.output_shapes, rounded(timing)))
    return msgspec.structs.replace(result, timing_ns=timing)
