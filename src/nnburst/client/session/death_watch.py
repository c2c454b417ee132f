"""Watches a driver's death word, so that a wait on it ends within milliseconds of its death."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Final

from nnburst._native import ffi, lib
from nnburst.fmq.shared_memory import Bytes, SharedMemory

#: No wait without a deadline; the watcher only looks again.
_SLICE_NS: Final = 60_000_000_000
_DIED: Final = 0
_TIMED_OUT: Final = 2


class DeathWatch:
    """One thread that sleeps until the word of a dead holder is set. Thread-safe."""

    def __init__(self, fd: int, died: Callable[[], None]) -> None:
        """Own `fd` and call `died` once, on the watching thread, if the holder dies before `close`.

        Raises:
            InvalidArgument: `fd` is not sealed shared memory.
        """
        memory = SharedMemory.adopt(fd, ffi.sizeof("uint32_t"))
        with memory:
            self._view: Bytes | None = memory.map(writable=False)
            self._word = ffi.cast("nnb_atomic_u32 *", self._view.ctypes.data)
        self._stop_storage = ffi.new("uint32_t *")
        self._stop = ffi.cast("nnb_atomic_u32 *", self._stop_storage)
        self._died = died
        self._thread = threading.Thread(target=self._watch, name="nnburst death watch", daemon=True)
        self._thread.start()

    def _watch(self) -> None:
        outcome = _TIMED_OUT
        while outcome == _TIMED_OUT:
            outcome = lib.nnb_death_word_watch_unlocked(self._word, self._stop, _SLICE_NS)
        if outcome == _DIED:
            self._died()

    def close(self) -> None:
        """Stop watching and unmap the word; twice is fine."""
        if self._thread is threading.current_thread():
            return  # `died` closes what it is called by: the word goes with this object
        while self._thread.is_alive():
            # The wake can fall between the watcher's look and its sleep, so it is repeated.
            lib.nnb_death_word_release(self._word, self._stop)
            self._thread.join(0.01)
        self._view = None
