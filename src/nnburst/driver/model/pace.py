"""How long the executions of one object take: whether the thread that receives may run the next one."""

from __future__ import annotations

from typing import Final

#: An execution that takes at most so long is quick: handing it to another thread would be felt.
QUICK_NS: Final = 500_000
#: What is left of the longest one after each that is shorter.
_FORGETTING: Final = 7 / 8


class Pace:
    """The longest of the latest executions, each counted from its call's turn to its answer. Thread-safe."""

    __slots__ = ("_longest_ns",)

    def __init__(self) -> None:
        """Nothing has been executed."""
        self._longest_ns: float | None = None

    @property
    def is_quick(self) -> bool:
        """Whether the latest executions were quick; False before the first one."""
        return self._longest_ns is not None and self._longest_ns <= QUICK_NS

    def note(self, nanoseconds: float) -> None:
        """One execution took so long. A long one counts for as many as it takes to be forgotten."""
        self._longest_ns = max(nanoseconds, (self._longest_ns or 0) * _FORGETTING)
