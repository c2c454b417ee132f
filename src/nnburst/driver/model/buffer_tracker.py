"""The buffers of one client by their tokens, which requests name them by.

NNAPI: BufferTracker.cpp: tokens count from 1, and the one freed last is handed out first.
"""

from __future__ import annotations

import threading
from collections.abc import Callable

from nnburst.control.objects import ObjectTable, Reference
from nnburst.driver.model.buffers import DeviceBuffer
from nnburst.hal.errors import Closed, InvalidArgument


class BufferTracker:
    """Tokens to buffers. Thread-safe. A token is known as long as the handle of its buffer is.

    It is handed out again when the last execution that uses the buffer is done, too.
    """

    def __init__(self, objects: ObjectTable) -> None:
        """Register buffers in `objects`."""
        self._objects = objects
        self._lock = threading.Lock()
        self._handles: dict[int, int] = {}
        self._free: list[int] = []
        self._issued = 0

    def add(self, make: Callable[[int, Callable[[], None]], DeviceBuffer]) -> tuple[int, int]:
        """Handle and token of a new buffer.

        Args:
            make: allocates it, given its token and what to call when it is closed.

        Raises:
            ResourceExhausted: the client holds as many as it may.
            NnburstError: what `make` raises.
        """
        token = self._take()
        try:
            buffer = make(token, lambda: self._release(token))
        except BaseException:
            self._release(token)
            raise
        handle = self._objects.add(buffer)
        with self._lock:
            # A client may guess the handle and release it before it gets it.
            if self._objects.find(handle) is buffer:
                self._handles[token] = handle
        return handle, token

    def acquire(self, token: int) -> Reference[DeviceBuffer]:
        """Use the buffer behind a token.

        Raises:
            InvalidArgument: it does not exist.
        """
        with self._lock:
            handle = self._handles.get(token)
        if handle is not None:
            try:
                return self._objects.acquire(handle, DeviceBuffer)
            except Closed:
                pass  # released, and still used
        raise InvalidArgument(f"token: {token} does not name a buffer")

    def _take(self) -> int:
        with self._lock:
            if self._free:
                return self._free.pop()
            self._issued += 1
            return self._issued

    def _release(self, token: int) -> None:
        with self._lock:
            self._handles.pop(token, None)
            self._free.append(token)
