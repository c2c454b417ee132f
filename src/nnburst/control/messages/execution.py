"""IPreparedModel and IExecution: every way to execute but the burst."""

from __future__ import annotations

from nnburst.control.messages.message import Callback, Count, Handle, Message, Nanoseconds
from nnburst.hal.enums import ErrorStatus
from nnburst.hal.limits import DEFAULT_LOOP_TIMEOUT_NS, UINT64_MAX
from nnburst.hal.request import Request
from nnburst.hal.timing import OutputShape, Timing


class RequestMessage(Message, frozen=True):
    """What brings a request: one fd for each pool of it that is shared memory, in order.

    Attributes:
        handle: the prepared model (or what the call says).
        request: inputs and outputs.
        measure: whether to time it.
        deadline_ns: CLOCK_BOOTTIME at which the result is useless.
        loop_timeout_ns: limit of a WHILE.
    """

    handle: Handle
    request: Request
    measure: bool = False
    deadline_ns: Nanoseconds | None = None
    loop_timeout_ns: Nanoseconds = DEFAULT_LOOP_TIMEOUT_NS

    @property
    def fd_count(self) -> int:
        """The pools."""
        return self.request.memory_count


class ExecuteSynchronously(RequestMessage, frozen=True):
    """Execute once and wait for it."""


class Executed(Message, frozen=True):
    """Answer to `ExecuteSynchronously`."""

    output_shapes: tuple[OutputShape, ...] = ()
    timing: Timing = Timing()


class Execute(RequestMessage, frozen=True, kw_only=True):
    """Launch an execution; `NotifyExecuted` says how it went.

    Attributes:
        callback: what `NotifyExecuted` names; 0 means no callback (device:E1).
        deadline_ns: a plain number here, for device:E3.
        loop_timeout_ns: likewise.
    """

    callback: Callback
    deadline_ns: int | None = None
    loop_timeout_ns: int = DEFAULT_LOOP_TIMEOUT_NS


class NotifyExecuted(Message, frozen=True):
    """IExecutionCallback::notify (upcall); comes exactly once for each `callback`.

    Attributes:
        callback: of the call.
        status: how it went.
        reason: for people, where it failed.
        output_shapes: with NONE and OUTPUT_INSUFFICIENT_SIZE.
        timing: where it was measured.
    """

    callback: Callback
    status: ErrorStatus
    reason: str = ""
    output_shapes: tuple[OutputShape, ...] = ()
    timing: Timing = Timing()


class ExecuteFenced(RequestMessage, frozen=True):
    """Execute once the sync fences have signalled; after the pools, one fd for each fence.

    Attributes:
        wait_for: how many fences there are.
        duration_ns: how long it may take from the moment they have signalled.
    """

    wait_for: Count = 0
    duration_ns: Nanoseconds | None = None

    @property
    def fd_count(self) -> int:
        """Pools and fences."""
        return self.request.memory_count + self.wait_for


class Fenced(Message, frozen=True):
    """Answer to `ExecuteFenced`: the execution's callback; the fd is its sync fence, where it is not done."""

    handle: Handle
    is_done: bool = False

    @property
    def fd_count(self) -> int:
        """The fence."""
        return 0 if self.is_done else 1


class GetExecutionInfo(Message, frozen=True):
    """IFencedExecutionCallback::getExecutionInfo."""

    handle: Handle


class ExecutionInfo(Message, frozen=True):
    """Answer to `GetExecutionInfo`; nanoseconds on both sides, UINT64_MAX where not measured.

    Attributes:
        status: how the execution went.
        launched: device and driver time since the call.
        fenced: the same since the last fence signalled.
        reason: for people, where it failed.
    """

    status: ErrorStatus
    launched: tuple[int, int] = (UINT64_MAX, UINT64_MAX)
    fenced: tuple[int, int] = (UINT64_MAX, UINT64_MAX)
    reason: str = ""


class CreateReusableExecution(Message, frozen=True):
    """IPreparedModel::createReusableExecution; one fd for each pool of the request, in order."""

    handle: Handle
    request: Request
    measure: bool = False
    loop_timeout_ns: Nanoseconds = DEFAULT_LOOP_TIMEOUT_NS

    @property
    def fd_count(self) -> int:
        """The pools."""
        return self.request.memory_count


class ExecuteReusable(Message, frozen=True):
    """IExecution::executeSynchronously."""

    handle: Handle
    deadline_ns: Nanoseconds | None = None


class ExecuteReusableFenced(Message, frozen=True):
    """IExecution::executeFenced; one fd for each fence."""

    handle: Handle
    wait_for: Count = 0
    deadline_ns: Nanoseconds | None = None
    duration_ns: Nanoseconds | None = None

    @property
    def fd_count(self) -> int:
        """The fences."""
        return self.wait_for
