"""Wakes the peers of a message queue by an event flag: 32 bits in shared memory, set and waited for.

NNAPI: fmq/EventFlag.h. DEVIATES: waiting always has a deadline.
"""

from __future__ import annotations

import math
import os
import time
from enum import IntFlag
from typing import Any, Final

from nnburst._native import ffi, lib
from nnburst.fmq.shared_memory import Bytes, address_of
from nnburst.hal.errors import Closed, InvalidArgument
from nnburst.hal.limits import UINT32_MAX
from nnburst.hal.utils import as_float, check_integer, is_number


class EventFlagBits(IntFlag):
    """Bits of the word (NNAPI: fmq NOT_FULL and NOT_EMPTY; the others are ours)."""

    NOT_FULL = 0x01
    NOT_EMPTY = 0x02
    ATTENTION = 0x04
    ASYNC = 0x08
    WRITER_ATTENTION = 0x10
    WRITER_ASYNC = 0x20


#: Longest wait in seconds, about 146 years.
LONGEST: Final = 2**62 * 1e-9


def timeout_ns(timeout: float) -> int:
    """Convert a timeout from seconds to nanoseconds.

    Raises:
        InvalidArgument: it is not a positive finite number.
    """
    if not is_number(timeout) or not 0 < timeout < math.inf:
        raise InvalidArgument(
            f"timeout is {timeout!r}, expected a positive, finite number of seconds"
        )
    return int(min(as_float(timeout), LONGEST) * 1e9)


#: From this bit on, the word of an unsynchronized queue counts the looks of its readers.
_COUNTED: Final = lib.NNB_FMQ_LOOK


class EventFlag:
    """One event flag, to wake and to wait. Thread-safe; keeps the word's mapping alive.

    Attributes:
        word: the nnb_atomic_u32, for code in C.
    """

    def __init__(
        self, view: Bytes | memoryview, offset: int, *, is_broadcast: bool = False
    ) -> None:
        """Use the four bytes at `offset` (8-aligned) of a mapped region.

        Args:
            view: the bytes of the region.
            offset: offset of the word.
            is_broadcast: whether it belongs to an unsynchronized queue, whose readers count their looks in
                the upper bits.
        """
        self._view = view
        self._is_broadcast = is_broadcast
        self._owner = os.getpid()
        self.word: Any = ffi.cast("nnb_atomic_u32 *", address_of(view) + offset)

    def wake(self, bits: int) -> None:
        """Set `bits` and wake the waiters for one of them; no effect for 0.

        Raises:
            InvalidArgument: no integer of 32 bits, or one of the bits belongs to the counter of an
                unsynchronized queue.
            Closed: in a forked child, which does not map the word.
        """
        self._check(bits)
        lib.nnb_event_flag_wake(self.word, bits)

    def wait(self, bits: int, timeout: float) -> int:
        """Wait until one of `bits` is set, and consume it.

        Args:
            bits: at least one bit.
            timeout: seconds to wait; there is no wait without a limit.

        Returns:
            the bits of `bits` that were set; 0 if the timeout passed.

        Raises:
            InvalidArgument: no bits (NNAPI: BAD_VALUE), no integer of 32 bits, or a timeout that is not
                positive; or one of the bits belongs to the counter of an unsynchronized queue.
            Closed: in a forked child, which does not map the word.
        """
        self._check(bits)
        if bits == 0:
            raise InvalidArgument("bits is 0, expected at least one bit")
        seen = ffi.new("uint32_t *")
        deadline = time.monotonic_ns() + timeout_ns(timeout)
        outcome = lib.NNB_EVENT_FLAG_INTERRUPTED
        while outcome == lib.NNB_EVENT_FLAG_INTERRUPTED:  # a signal, handled by now
            left = max(deadline - time.monotonic_ns(), 0)
            outcome = lib.nnb_event_flag_wait_unlocked(
                self.word, bits, self._is_broadcast, left, seen
            )
        return int(seen[0])

    def _check(self, bits: int) -> None:
        check_integer("bits", bits, 0, UINT32_MAX)
        if os.getpid() != self._owner:
            raise Closed(f"the event flag is not mapped here: process {self._owner} forked")
        if self._is_broadcast and bits >= _COUNTED:
            raise InvalidArgument(
                f"bits is {bits:#x}, expected bits below {_COUNTED:#x}, from which on a broadcast counts"
            )

    def __repr__(self) -> str:
        kind = "an unsynchronized" if self._is_broadcast else "a synchronized"
        return f"<nnburst.fmq.EventFlag of {kind} queue>"
