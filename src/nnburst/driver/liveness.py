"""What lets the client notice that this worker has died: its pidfd and its death word.

The end of the control socket is the authority; the death word only tells it sooner.
"""

from __future__ import annotations

import os

from nnburst.control.channel import Fds


class Liveness:
    """The descriptors that prove this process alive, made once per worker."""

    def __init__(self) -> None:
        """Open the pidfd of this very process: a number could be used again, this cannot."""
        self._pidfd = os.pidfd_open(os.getpid())
        self._death_word: int | None = None

    @property
    def has_death_word(self) -> bool:
        """Whether `fds` ends with a death word."""
        return self._death_word is not None

    def fds(self) -> Fds:
        """Copies of the descriptors for the client: pidfd, then the death word where there is one."""
        own = [fd for fd in (self._pidfd, self._death_word) if fd is not None]
        return Fds(os.dup(fd) for fd in own)
