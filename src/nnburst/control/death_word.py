"""Reports the death of a process at once, by a word in shared memory (`csrc/liveness.h`).

The end of a socket is the reliable sign of a death, but comes later: the kernel writes the word before it
frees the process's memory, and ends the socket after that.
"""

from __future__ import annotations

import logging
import os
import threading
from collections.abc import Callable
from typing import Final

from nnburst._native import ffi, lib
from nnburst.control.channel import Fds
from nnburst.fmq.shared_memory import Bytes, SharedMemory, address_of
from nnburst.hal.utils import start_thread

logger = logging.getLogger(__name__)


class Liveness:
    """The descriptors by which one peer can observe the death of this process."""

    def __init__(self) -> None:
        """Open the pidfd of this process: unlike a process number, it cannot be reused."""
        self._pidfd = os.pidfd_open(os.getpid())
        self._memory = SharedMemory.create(4096, "death word", read_only_for_others=True)
        self._view = self._memory.map_then_protect()
        word = ffi.cast("nnb_atomic_u32 *", address_of(self._view))
        failed = ffi.new("int *")
        self._holder = lib.nnb_death_word_take(word, 0, ffi.new("uint32_t *"), failed)
        if not self._holder:
            logger.warning(
                "no death word (%s): a death is noticed by the end of the socket",
                os.strerror(failed[0]),
            )

    @property
    def has_death_word(self) -> bool:
        """Whether `fds` ends with a death word."""
        return bool(self._holder)

    def fds(self) -> Fds:
        """Copy the descriptors for the peer: pidfd, then the death word if there is one."""
        own = [self._pidfd, *([self._memory.fd] if self._holder else [])]
        return Fds(os.dup(fd) for fd in own)

    def announce_death(self) -> None:
        """Show the peer the death of this process now, before it ends. For a process that ends at once."""
        if self._holder:
            lib.nnb_death_word_announce(self._holder)

    def close(self) -> None:
        """Release the word and close the descriptors, after the peer is gone. Called once."""
        if self._holder:
            lib.nnb_death_word_let_go(self._holder, 0)
        self._memory.close()
        os.close(self._pidfd)


#: Longest single wait of the watcher: every wait has a deadline, after which it looks again.
_SLICE_NS: Final = 60_000_000_000
_DIED: Final = 0
_TIMED_OUT: Final = 2


class DeathWatch:
    """Calls a function when a process dies; a thread waits for its death word. Thread-safe."""

    def __init__(self, fd: int, died: Callable[[], None]) -> None:
        """Own `fd`, and call `died` once, on the watching thread, if the process dies before `close`.

        Raises:
            InvalidArgument: `fd` is not sealed shared memory.
            ResourceExhausted: it cannot be mapped, or this process may have no more threads.
        """
        memory = SharedMemory.adopt(fd, ffi.sizeof("uint32_t"))
        with memory:
            self._view: Bytes | None = memory.map(writable=False)
            self._word = ffi.cast("nnb_atomic_u32 *", self._view.ctypes.data)
        self._stop_storage = ffi.new("uint32_t *")
        self._stop = ffi.cast("nnb_atomic_u32 *", self._stop_storage)
        self._died = died
        self._thread = threading.Thread(target=self._watch, name="nnburst death watch", daemon=True)
        start_thread(self._thread)

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
            # The wake may come between the watcher's look and its sleep, so it is repeated.
            lib.nnb_death_word_release(self._word, self._stop)
            self._thread.join(0.01)
        self._view = None
