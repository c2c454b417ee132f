"""Makes fences: an execution can wait for some, and signals one at its end.

    fence, signaller = SyncFence.create()
    fenced = hal.execute_fenced(prepared, [x], wait_for=[fence])
    signaller.signal()                      # x is ready: the driver begins
    y = fenced.result().outputs[0]

A fence is a descriptor (`fileno`), so it can be sent to other processes and waited for by any event loop.
"""

from __future__ import annotations

import math
import os
import select
import socket
import time
import weakref
from typing import Final, Self

from nnburst.client.arguments import check_timeout
from nnburst.control.fences import (
    FenceStatus,
    Signaller,
    adopt_fence,
    create_fence,
    fence_status,
)
from nnburst.hal.errors import Closed, MissedDeadline, ResourceExhausted
from nnburst.hal.limits import INT32_MAX
from nnburst.hal.utils import Closing, check_integer, polled
from nnburst.tracing.slices import Layer, Phase, trace

#: Seconds between two looks of a wait at whether another thread has closed the fence. Closing cannot wake the
#: wait: a shutdown of the socket would put duplicates, for which other executions wait, into the error state.
_LOOK_AGAIN: Final = 0.1


class SyncFence(Closing):
    """A fence, which an execution waits for or signals when it is done. Thread-safe. A context manager.

    It is one end of a socketpair: readable once the fence has signalled or is in the error state.
    """

    def __init__(self, fd: int) -> None:
        """Own `fd`, the descriptor of a fence.

        Raises:
            InvalidArgument: `fd` is not a fence; it is closed.
        """
        self._socket: socket.socket = adopt_fence(check_integer("fd", fd, ~INT32_MAX, INT32_MAX))
        weakref.finalize(self, self._socket.close)

    @classmethod
    def create(cls) -> tuple[Self, Signaller]:
        """Make a new fence and its signaller; the caller closes both.

        Raises:
            ResourceExhausted: this process may have no more descriptors.
        """
        fence, signaller = create_fence()
        return cls(fence.detach()), signaller

    @property
    def status(self) -> FenceStatus:
        """Its state now: ACTIVE, SIGNALLED, or ERROR.

        Raises:
            Closed: it was closed.
        """
        self.fileno()
        return fence_status(self._socket)

    def wait(self, timeout: float = 30.0) -> FenceStatus:
        """Wait until the fence is no longer ACTIVE, and return its state.

        Args:
            timeout: seconds to wait.

        Raises:
            MissedDeadline: it is still ACTIVE after that time.
            Closed: it was closed before or meanwhile.
        """
        deadline = time.monotonic() + check_timeout(timeout)
        poller = select.poll()
        poller.register(self.fileno(), select.POLLIN)
        with trace(Layer.IPC, Phase.EXECUTION, "wait for a fence"):
            while (status := self.status) == FenceStatus.ACTIVE:
                left = deadline - time.monotonic()
                if left <= 0:
                    raise MissedDeadline(f"timeout: the fence did not signal in {timeout:g} s")
                polled(poller, math.ceil(min(left, _LOOK_AGAIN) * 1000))
            return status

    def fileno(self) -> int:
        """Its descriptor, borrowed: valid until `close`.

        Raises:
            Closed: it was closed.
        """
        fd = self._socket.fileno()
        if fd < 0:
            raise Closed("the fence is closed")
        return fd

    def duplicate(self) -> int:
        """A new descriptor of the same fence, which the caller closes.

        Raises:
            Closed: it was closed.
            ResourceExhausted: this process may have no more descriptors.
        """
        fd = self.fileno()
        try:
            return os.dup(fd)
        except OSError as error:
            raise ResourceExhausted(
                f"the fence's descriptor cannot be duplicated: {error}"
            ) from error

    def _fail(self) -> None:
        """Put the fence into the error state, unless it was signalled before: its signaller is gone."""
        try:
            self._socket.shutdown(socket.SHUT_RDWR)
        except OSError:
            pass  # it is closed, or the other end was closed first

    def close(self) -> None:
        """Close the descriptor. Twice is fine."""
        self._socket.close()

    def __repr__(self) -> str:
        state = "closed" if self._socket.fileno() < 0 else fence_status(self._socket).name
        return f"<nnburst.hal.SyncFence: {state}>"
