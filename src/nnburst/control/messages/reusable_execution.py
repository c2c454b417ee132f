"""IExecution: a request that is bound once and executed many times."""

from __future__ import annotations

import msgspec

from nnburst.control.messages.message import Call, Count, Handle, Nanoseconds
from nnburst.hal.extensions.attributes import Hints
from nnburst.hal.limits import DEFAULT_LOOP_TIMEOUT_NS
from nnburst.hal.request import Request


class CreateReusableExecution(Call, frozen=True):
    """IPreparedModel::createReusableExecution; one fd for each pool of the request, in order."""

    handle: Handle
    request: Request
    measure: bool = False
    loop_timeout_ns: Nanoseconds = DEFAULT_LOOP_TIMEOUT_NS
    hints: Hints | msgspec.UnsetType = msgspec.UNSET

    @property
    def fd_count(self) -> int:
        """The pools."""
        return self.request.memory_count


class ExecuteReusable(Call, frozen=True):
    """IExecution::executeSynchronously."""

    handle: Handle
    deadline_ns: Nanoseconds | None = None


class ExecuteReusableFenced(Call, frozen=True):
    """IExecution::executeFenced; one fd for each fence."""

    handle: Handle
    wait_for: Count = 0
    deadline_ns: Nanoseconds | None = None
    duration_ns: Nanoseconds | None = None

    @property
    def fd_count(self) -> int:
        """The fences."""
        return self.wait_for
