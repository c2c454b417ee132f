"""Interrupts calls at a chosen place, and makes the start of threads fail."""

from __future__ import annotations

import contextlib
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import CodeType, FrameType

import nnburst

_OURS = str(Path(nnburst.__file__).parent)
#: Functions of Python's in which a call of ours may spend its time.
_WAITS = frozenset({threading.Thread.start.__code__, threading.Event.wait.__code__})
#: Bytes of stack that no address space has, so that the kernel refuses the thread.
_TOO_MUCH = 1 << 47


class Interruption(BaseException):
    """Raised by a signal handler, as KeyboardInterrupt is."""


def interrupted_at(
    number: int, call: Callable[[], object], also: frozenset[CodeType] = frozenset()
) -> bool:
    """Whether `call` was interrupted at the `number`-th place where this thread looks for signals.

    The places are the starts of nnburst's functions and of those in `also`, and after their calls of C. An
    interruption in a callback from C ends there.
    """

    def interrupt() -> None:
        raise Interruption

    with contextlib.suppress(Interruption):
        return handled_at(number, call, interrupt, also)
    return True


def handled_at(
    number: int,
    call: Callable[[], object],
    handler: Callable[[], object],
    also: frozenset[CodeType] = frozenset(),
) -> bool:
    """Whether `call` got to the `number`-th place, as above, where `handler` was called."""
    seen = 0

    def look(frame: FrameType, event: str, _argument: object) -> None:
        nonlocal seen
        code = frame.f_code
        if event not in ("call", "c_return"):
            return
        if code in _WAITS or code in also or code.co_filename.startswith(_OURS):
            seen += 1
            if seen == number:
                sys.setprofile(None)
                handler()

    sys.setprofile(look)
    try:
        call()
    finally:
        sys.setprofile(None)
    return seen >= number


@contextmanager
def threads_that_start(number: int) -> Iterator[None]:
    """Allow this process to start `number` threads; the kernel refuses all further ones."""
    begin, left = threading.Thread.start, number

    def start(thread: threading.Thread) -> None:
        nonlocal left
        left -= 1
        before = threading.stack_size(0 if left >= 0 else _TOO_MUCH)
        try:
            begin(thread)
        finally:
            threading.stack_size(before)

    threading.Thread.start = start  # type: ignore[method-assign]
    try:
        yield
    finally:
        threading.Thread.start = begin  # type: ignore[method-assign]
