"""IPreparedModel: executions that are waited for, or launched and notified of."""

from __future__ import annotations

from nnburst.control.messages.message import Callback, RequestMessage, Result, Upcall
from nnburst.hal.enums import ErrorStatus
from nnburst.hal.limits import DEFAULT_LOOP_TIMEOUT_NS
from nnburst.hal.timing import OutputShape, Timing


class ExecuteSynchronously(RequestMessage, frozen=True):
    """Execute once and wait for it."""


class Executed(Result, frozen=True):
    """Answer to `ExecuteSynchronously`."""

    output_shapes: tuple[OutputShape, ...] = ()
    timing: Timing = Timing()


class Execute(RequestMessage, frozen=True, kw_only=True):
    """Start an execution; `NotifyExecuted` reports the outcome.

    Attributes:
        callback: what `NotifyExecuted` names; 0 means no callback (device:E1).
        deadline_ns: a plain number here, for device:E3.
        loop_timeout_ns: likewise.
    """

    callback: Callback
    deadline_ns: int | None = None
    loop_timeout_ns: int = DEFAULT_LOOP_TIMEOUT_NS


class NotifyExecuted(Upcall, frozen=True):
    """IExecutionCallback::notify (upcall); comes exactly once for each `callback`.

    Attributes:
        callback: of the call.
        status: how it went.
        reason: for people, if it failed.
        output_shapes: with NONE and OUTPUT_INSUFFICIENT_SIZE.
        timing: if it was measured.
    """

    callback: Callback
    status: ErrorStatus
    reason: str = ""
    output_shapes: tuple[OutputShape, ...] = ()
    timing: Timing = Timing()
