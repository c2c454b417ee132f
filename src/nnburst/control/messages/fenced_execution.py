"""IPreparedModel::executeFenced and IFencedExecutionCallback."""

from __future__ import annotations

from nnburst.control.messages.message import (
    Call,
    Count,
    Handle,
    Nanoseconds,
    RequestMessage,
    Result,
)
from nnburst.hal.enums import ErrorStatus
from nnburst.hal.limits import UINT64_MAX


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


class Fenced(Result, frozen=True):
    """Answer to `ExecuteFenced`: the execution's callback; the fd is its sync fence, if it is not done."""

    handle: Handle
    is_done: bool = False

    @property
    def fd_count(self) -> int:
        """The fence."""
        return 0 if self.is_done else 1


class GetExecutionInfo(Call, frozen=True):
    """IFencedExecutionCallback::getExecutionInfo."""

    handle: Handle


class ExecutionInfo(Result, frozen=True):
    """Answer to `GetExecutionInfo`; nanoseconds on both sides, UINT64_MAX if not measured.

    Attributes:
        status: how the execution went.
        launched: device and driver time since the call.
        fenced: the same since the last fence signalled.
        reason: for people, if it failed.
    """

    status: ErrorStatus
    launched: tuple[int, int] = (UINT64_MAX, UINT64_MAX)
    fenced: tuple[int, int] = (UINT64_MAX, UINT64_MAX)
    reason: str = ""
