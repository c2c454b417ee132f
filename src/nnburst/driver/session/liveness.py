"""What lets the client notice that this worker has died: its pidfd and its death word.

The end of the control socket is the authority; the death word only shows it sooner: the kernel writes it
before it tears the process's memory down, the socket ends after that.
"""

from __future__ import annotations

import logging
import os

from nnburst._native import ffi, lib
from nnburst.control.channel import Fds
from nnburst.fmq.shared_memory import SharedMemory, address_of

logger = logging.getLogger(__name__)


class Liveness:
    """The descriptors that prove this process alive, made once per worker."""

    def __init__(self) -> None:
        """Open the pidfd of this very process: a number could be used again, this cannot."""
        self._pidfd = os.pidfd_open(os.getpid())
        self._memory = SharedMemory.create(4096, "death word", read_only_for_others=True)
        self._view = self._memory.map_then_protect()
        word = ffi.cast("nnb_atomic_u32 *", address_of(self._view))
        error = int(lib.nnb_death_word_hold(word))
        self._held = error == 0
        if error:
            logger.warning(
                "no death word (%s): clients notice a death by the end of the socket",
                os.strerror(error),
            )

    @property
    def has_death_word(self) -> bool:
        """Whether `fds` ends with a death word."""
        return self._held

    def fds(self) -> Fds:
        """Copies of the descriptors for the client: pidfd, then the death word if there is one."""
        own = [self._pidfd, *([self._memory.fd] if self._held else [])]
        return Fds(os.dup(fd) for fd in own)
