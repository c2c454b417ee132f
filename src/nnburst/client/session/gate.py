"""Lets one caller at a time into a burst; a second one is refused, and a signal handler's error frees it.

`Gate` is csrc/gate.h, which C enters by itself. A signal handler may raise right after any call and right at
the beginning of any function of Python's, so one call of a function of C's ends an entry, in a `finally`.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Final

from nnburst._native import ffi, lib
from nnburst.hal.errors import BurstBusy

if TYPE_CHECKING:
    from nnburst._native import nnb_gate

BUSY: Final = "another thread is using this burst: one thread at a time"
#: A number for each entry of Python's; odd, since those of C's are addresses.
entries: Final[Iterator[int]] = itertools.count(1, 2)
#: Ends an entry; nothing if it is not inside.
leave: Final[Callable[[nnb_gate, int], None]] = lib.nnb_gate_leave
_enter: Final = lib.nnb_gate_enter


class Gate:
    """Lets one caller in at a time; the next one is refused instead of queued. Any thread.

        me = next(entries)
        try:
            gate.enter(me)
            ...
        finally:
            leave(gate.struct, me)

    A lock that is taken with `acquire`, or by a context manager of Python's, would not do: an exception
    between taking it and the `try` would leave it taken for ever.

    Attributes:
        struct: the struct nnb_gate, valid as long as this object.
    """

    __slots__ = ("_busy", "struct")

    def __init__(self, busy: str = BUSY) -> None:
        """`busy` is the message of a refusal."""
        self.struct: Final = ffi.new("struct nnb_gate *")
        self._busy: Final = busy

    def enter(self, me: int) -> None:
        """Go in; `me` is new and stands for this call, since a handler's may come in its middle.

        Raises:
            BurstBusy: another caller is inside.
        """
        if not _enter(self.struct, me):
            raise BurstBusy(self._busy)
