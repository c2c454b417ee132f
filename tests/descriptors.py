"""The open file descriptors of the process of the tests: `assert descriptors() <= before`."""

from __future__ import annotations

import os


def descriptors() -> frozenset[int]:
    """The descriptors that are open now.

    Compare them as sets and not by their number: garbage and threads of earlier tests may close descriptors
    in the meantime, which must neither fail a test nor hide a leak. Descriptors that only garbage of the test
    itself holds need `gc.collect()` before.
    """
    return frozenset(fd for fd in map(int, os.listdir("/proc/self/fd")) if _is_open(fd))


def _is_open(fd: int) -> bool:
    """False for the descriptor that the listing itself was read from."""
    try:
        os.fstat(fd)
    except OSError:
        return False
    return True
