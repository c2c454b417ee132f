"""Requests over the same shapes: bound once by the driver, which their private pools stay with (ADR 25)."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Hashable, Sequence
from typing import Any, Final

import numpy as np

from nnburst.client.execution.staged_request import StagedRequest
from nnburst.client.memory.arguments import ExecutionResult
from nnburst.client.memory.memory import find_memory
from nnburst.client.memory.staging import PrivatePool
from nnburst.control.connection import Connection
from nnburst.control.messages.prepared_model import Executed
from nnburst.hal.limits import NO_TIMING
from nnburst.hal.timing import Timing

#: Requests of one model that the driver keeps bound, and those that are known to have been there once.
_MOST: Final = 8
_MOST_SEEN: Final = 64
#: Bytes of a private pool; if more is copied, being bound saves little.
LARGEST: Final = 256 * 1024
_NOT_MEASURED: Final = Timing()


class RememberedRequest:
    """One request that the driver has bound. One thread at a time."""

    __slots__ = ("handle", "key", "measure", "private", "staged")

    def __init__(
        self,
        key: Hashable,
        handle: int,
        staged: StagedRequest,
        measure: bool,
        private: PrivatePool,
    ) -> None:
        """Own `handle` and `private`."""
        self.key = key
        self.handle = handle
        self.staged = staged
        self.measure = measure
        self.private = private

    def result(self, executed: Executed, outputs: Sequence[Any]) -> ExecutionResult:
        """What it gave, in the given arrays or in new ones."""
        shapes = self.staged.shapes(executed)
        timing = _in_microseconds(executed.timing) if self.measure else _NOT_MEASURED
        return ExecutionResult(self.staged.outputs(outputs), shapes, timing)


class RememberedRequests:
    """The requests of one prepared model. Thread-safe.

    Each is used by one thread at a time; another thread with such arrays needs another one. The one used
    longest ago goes if there are many.
    """

    def __init__(self, connection: Connection) -> None:
        """Remember what the driver behind `connection` has bound."""
        self._connection = connection
        self._lock = threading.Lock()
        self._idle: OrderedDict[Hashable, list[RememberedRequest]] = OrderedDict()
        self._all: dict[int, RememberedRequest] = {}
        self._seen: OrderedDict[Hashable, None] = OrderedDict()
        self._closed = False

    def take(self, key: Hashable) -> RememberedRequest | None:
        """A request that is not in use, until `release` or `abandon`."""
        with self._lock:
            idle = self._idle.get(key)
            return idle.pop() if idle else None

    def release(self, request: RememberedRequest) -> None:
        """It may be used again: its execution has ended."""
        with self._lock:
            if self._all.get(request.handle) is request:
                self._idle.setdefault(request.key, []).append(request)
                self._idle.move_to_end(request.key)

    def abandon(self, request: RememberedRequest) -> None:
        """Do not use it again. Its execution may be under way still, so its pool is not used again."""
        with self._lock:
            mine = self._all.pop(request.handle, None) is request
            if not self._idle.get(request.key):
                self._idle.pop(request.key, None)
        if mine:
            self._connection.release_later(request.handle)

    def saw(self, key: Hashable) -> bool:
        """Note that such arrays were executed on; whether they had been before."""
        with self._lock:
            before = key in self._seen
            self._seen[key] = None
            self._seen.move_to_end(key)
            if len(self._seen) > _MOST_SEEN:
                self._seen.popitem(last=False)
        return before

    def add(self, request: RememberedRequest) -> bool:
        """Remember a request that is in use; False after `close`, and it is released."""
        with self._lock:
            if not self._closed:
                self._all[request.handle] = request
                return True
        self._connection.release_later(request.handle)
        return False

    def make_room(self) -> bool:
        """Whether one more may be bound; forgets the one used longest ago if there are many."""
        with self._lock:
            if self._closed:
                return False
            if len(self._all) < _MOST:
                return True
            oldest = next((requests for requests in self._idle.values() if requests), None)
            request = oldest.pop() if oldest else None
            if request is None:
                return False
            del self._all[request.handle]
            if not oldest:
                del self._idle[request.key]
        self._connection.release_later(request.handle)
        request.private.release()
        return True

    def close(self) -> None:
        """Let the driver forget all, those under way when they end. Takes no call."""
        with self._lock:
            self._closed = True
            forgotten, self._all = self._all, {}
            self._idle.clear()
        for handle in forgotten:
            self._connection.release_later(handle)


def request_key(inputs: object, outputs: object, measure: bool) -> Hashable | None:
    """What a request over private arrays depends on; None for any other.

    Everything that decides whether an array fits is in the key, so arrays whose key is remembered need no
    check.
    """
    if type(inputs) not in (list, tuple) or type(outputs) not in (list, tuple, type(None)):
        return None
    key: list[object] = [bool(measure)]
    for array in (*inputs, len(inputs), *(outputs or ())):  # type: ignore[misc, arg-type]
        if type(array) is np.ndarray:
            flags = array.flags
            if not flags.c_contiguous or (array.base is not None and find_memory(array)):
                return None
            key.append((array.shape, array.dtype, flags.writeable))
        elif array is None or type(array) is int:
            key.append(array)
        else:
            return None
    return tuple(key)


def _in_microseconds(timing: Timing) -> Timing:
    """Nanoseconds as HIDL's ways to execute have them: microseconds, rounded up."""
    both = (timing.time_on_device, timing.time_in_driver)
    return Timing(*(value if value == NO_TIMING else -(-value // 1000) for value in both))
