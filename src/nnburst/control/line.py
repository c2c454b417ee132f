"""The line of threads that wait for answers of one connection: the first one reads for all (ADR 15)."""

from __future__ import annotations

import os
import threading
from threading import get_ident
from typing import TYPE_CHECKING, Final

from nnburst._native import ffi, lib
from nnburst.hal.errors import ResourceExhausted

if TYPE_CHECKING:
    from nnburst._native import nnb_caller, nnb_line

TIMED_OUT: Final = int(lib.NNB_LINE_TIMED_OUT)
INTERRUPTED: Final = int(lib.NNB_LINE_INTERRUPTED)
NOT_SENT: Final = int(lib.NNB_LINE_NOT_SENT)
_READABLE: Final = int(lib.NNB_LINE_READABLE)
#: Longest single wait, in seconds; and of the main thread, which handles signals: the kernel may have
#: given one to another thread.
_LONGEST: Final = 86_400.0
_SLICE: Final = 0.05
_main_thread = threading.main_thread().ident

_NULL: Final = ffi.NULL
_new: Final = ffi.new
_call: Final = lib.nnb_line_call_unlocked


class Caller:
    """One call and what there is of its answer. In use by one thread, which waits.

    Attributes:
        struct: struct nnb_caller.
    """

    __slots__ = ("struct",)

    def __init__(self, call: int = 0) -> None:
        """Wait for the answer of `call`."""
        self.struct: nnb_caller = _new("struct nnb_caller *")
        self.struct.id = call

    @property
    def answered(self) -> bool:
        """Whether the answer was taken here."""
        return bool(self.struct.bytes)

    @property
    def packet(self) -> bytes:
        """The answer as it came."""
        return bytes(ffi.buffer(self.struct.packet, self.struct.bytes))


class Line:
    """Callers of one socket, and its reader. Thread-safe.

    What callers leave to the reader is whatever brings descriptors, is large, or answers no call in the line.
    """

    def __init__(self, socket: int) -> None:
        """Begin with an empty line; `socket` stays the caller's, open until `close`.

        Raises:
            ResourceExhausted: this process may have no more descriptors.
        """
        self._struct: nnb_line = ffi.new("struct nnb_line *")
        failed = lib.nnb_line_open(self._struct, socket)
        self._open = not failed
        if failed:
            raise ResourceExhausted(f"cannot open the line of a connection: {os.strerror(failed)}")

    def call(self, caller: Caller, packet: bytes | None, timeout: float) -> int:
        """Send a packet, unless it is None, and wait for its answer.

        Returns:
            TIMED_OUT; INTERRUPTED, to be called again with what is left of the time; NOT_SENT; anything else:
            the answer is in `caller` or lies elsewhere, or there will be none.
        """
        longest = _SLICE if get_ident() == _main_thread else _LONGEST
        nanoseconds = int(min(timeout, longest) * 1e9) if timeout > 0 else 0
        count = 0 if packet is None else len(packet)
        code = _call(self._struct, caller.struct, packet or _NULL, count, nanoseconds)
        return INTERRUPTED if code == TIMED_OUT and timeout > longest else int(code)

    def notice(self, caller: Caller) -> None:
        """Let a caller return: its answer lies elsewhere, or will not come."""
        lib.nnb_line_notice(self._struct, caller.struct)

    def turn(self) -> bool:
        """For the reader: wait until there is something to read; false if there will be nothing."""
        return int(lib.nnb_line_turn_unlocked(self._struct)) == _READABLE

    def done(self) -> None:
        """The reader has dealt with what it read."""
        lib.nnb_line_done(self._struct)

    def fail(self) -> None:
        """Let all callers return, and those that come."""
        lib.nnb_line_end(self._struct)

    def close(self) -> None:
        """Free what it has; no thread waits in it any more. Twice is fine."""
        still, self._open = self._open, False
        if still:
            lib.nnb_line_close(self._struct)

    def abandon_in_child(self) -> None:
        """In a forked child: no thread of it waits here, and none may."""
        still, self._open = self._open, False
        if still:
            os.close(int(self._struct.epoll))

    def __del__(self) -> None:
        self.close()


def _forked() -> None:
    global _main_thread
    _main_thread = get_ident()


os.register_at_fork(after_in_child=_forked)
