"""Numbers that join a request's slices across processes."""

from __future__ import annotations

import os

#: Requests of one burst before its numbers could be another's.
_BITS = 32


def flow_base(fd: int) -> int:
    """What the requests of a burst are counted on from, by both sides alike.

    Nothing travels: the memory of a burst's request ring is one file, whose number is unique on a machine.

    Args:
        fd: of that memory.
    """
    return (os.fstat(fd).st_ino << _BITS) & (2**63 - 1)
