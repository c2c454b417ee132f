"""What a synchronous execution returns: a status in HIDL, a result or an exception in AIDL.

A buffer that is too small is an error status in HIDL and an ordinary result in AIDL.

NNAPI: aidl/utils PreparedModel.cpp convertExecutionResults, aidl adapter PreparedModel.cpp.
"""

from __future__ import annotations

from typing import NamedTuple

from nnburst.compat.conversion import timing
from nnburst.compat.conversion.timing import ExecutionTiming
from nnburst.compat.layouts import aidl
from nnburst.hal.enums import ErrorStatus, FeatureLevel
from nnburst.hal.errors import error_for
from nnburst.hal.timing import OutputShape


class ExecutionOutcome(NamedTuple):
    """Canonical: how an execution ended, the shapes of its outputs, and how long it took."""

    status: ErrorStatus
    output_shapes: tuple[OutputShape, ...] = ()
    timing: ExecutionTiming = ExecutionTiming()


def to_canonical(result: aidl.ExecutionResult, level: FeatureLevel) -> ExecutionOutcome:
    """From AIDL's result.

    Raises:
        InvalidArgument: its timing is not one of `level`.
    """
    status = ErrorStatus.OUTPUT_INSUFFICIENT_SIZE
    if result.output_sufficient_size:
        status = ErrorStatus.NONE
    took = timing.to_canonical(result.timing, level)
    return ExecutionOutcome(status, result.output_shapes, took)


def to_aidl(outcome: ExecutionOutcome) -> aidl.ExecutionResult:
    """Into AIDL's result.

    Raises:
        NnburstError: the one that stands for the status, if that is neither NONE nor
            OUTPUT_INSUFFICIENT_SIZE.
    """
    if outcome.status not in (ErrorStatus.NONE, ErrorStatus.OUTPUT_INSUFFICIENT_SIZE):
        raise error_for(outcome.status, f"execution: {outcome.status.name}", outcome.output_shapes)
    return aidl.ExecutionResult(
        outcome.status == ErrorStatus.NONE,
        outcome.output_shapes,
        timing.to_hal(outcome.timing, FeatureLevel.AIDL_V1),
    )
