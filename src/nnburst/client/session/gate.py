"""Lets one caller at a time into a burst; a second one is refused. An error of a signal handler is safe.

`Gate` wraps csrc/gate.h, whose gate C code can enter, too. A signal handler may raise after any call and at
the beginning of any Python function; therefore a single C call, in a `finally`, leaves the gate.
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
#: Makes a number for each entry from Python. The numbers are odd: entries from C use (even) addresses.
entries: Final[Iterator[int]] = itertools.count(1, 2)
#: Leaves a gate; does nothing if the entry is not inside.
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

    A lock taken with `acquire`, or a context manager in Python, would not work: an exception between taking
    the lock and the `try` would leave it taken for ever.

    Attributes:
        struct: the struct nnb_gate, valid as long as this object.
    """

    __slots__ = ("_busy", "struct")

    def __init__(self, busy: str = BUSY) -> None:
        """Create a gate that refuses with the message `busy`."""
        self.struct: Final = ffi.new("struct nnb_gate *")
        self._busy: Final = busy

    def enter(self, me: int) -> None:
        """Enter the gate; `me` is a new number for this call: a signal handler may call in its middle.

        Raises:
            BurstBusy: another caller is inside.
        """
        if not _enter(self.struct, me):
            raise BurstBusy(self._busy)
