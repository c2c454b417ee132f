"""Interrupts calls at a chosen place or a random moment, and makes the start of threads fail."""

from __future__ import annotations

import contextlib
import random
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import CodeType, FrameType
from typing import Self

import nnburst

_OURS = str(Path(nnburst.__file__).parent)
#: Functions of Python's in which a call of ours may spend its time.
_WAITS = frozenset({threading.Thread.start.__code__, threading.Event.wait.__code__})
#: Bytes of stack that no address space has, so that the kernel refuses the thread.
_TOO_MUCH = 1 << 47


class Interruption(BaseException):
    """Raised by a signal handler, as KeyboardInterrupt is."""


class Handlers:
    """SIGALRM after a random time; its handler raises, and may be followed by another one that does."""

    def __init__(self, chance: random.Random) -> None:
        self.interrupted = 0
        self._chance = chance
        self._armed = False
        self._more = 0

    def __call__(self, *_: object) -> None:
        if self._armed:
            if self._more:
                self._more -= 1
                signal.setitimer(signal.ITIMER_REAL, self._chance.uniform(1e-6, 15e-6))
            raise Interruption

    def around(self, use: Callable[[], object], more: int, seconds: float) -> None:
        """Call `use` while the first handler raises within `seconds` and up to `more` others behind it.

        A signal that another thread takes may be handled after `use`; then nothing is raised.
        """
        self._more = more
        self._armed = True
        try:
            signal.setitimer(signal.ITIMER_REAL, self._chance.uniform(1e-6, seconds))
            use()
            self._armed = False
        except Interruption:
            self._armed = False  # first of all, and no call: nothing can come between
            self.interrupted += 1
        signal.setitimer(signal.ITIMER_REAL, 0)

    @contextmanager
    def installed(self) -> Iterator[Self]:
        """Handle SIGALRM within the context."""
        before = signal.signal(signal.SIGALRM, self)
        try:
            yield self
        finally:
            signal.setitimer(signal.ITIMER_REAL, 0)
            signal.signal(signal.SIGALRM, before)


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
