"""Lists plain locks that the main thread holds where Python looks for signals, on one road.

    python -m faults.held_locks ROAD

A signal handler may run there and use the same object; it would wait for ever for the thread that it
interrupts. Prints a line for each lock and place: where the lock is made, and where the thread is.
"""

from __future__ import annotations

import _thread
import sys
import threading
from types import FrameType
from typing import Any

_main = _thread.get_ident()
_held: list[WatchedLock] = []


class WatchedLock:
    """A plain lock that notes whether the main thread is in a `with` statement of it."""

    def __init__(self) -> None:
        self._lock = _thread.allocate_lock()
        self.made = _place(sys._getframe(1))
        for name in ("acquire", "release", "locked", "_at_fork_reinit"):
            setattr(self, name, getattr(self._lock, name))

    def __enter__(self) -> bool:
        entered = self._lock.__enter__()
        if _thread.get_ident() == _main and self.made:
            _held.append(self)
        return entered

    def __exit__(self, *what: object) -> None:
        if _thread.get_ident() == _main and self.made:
            _held.remove(self)
        self._lock.release()


def _place(frame: FrameType) -> str:
    """A file and line of nnburst's; empty for others."""
    _, ours, name = frame.f_code.co_filename.rpartition("/nnburst/")
    return f"{name}:{frame.f_lineno}" if ours else ""


def main() -> None:
    """Run the command; see the module."""
    threading.Lock = WatchedLock  # type: ignore[assignment, misc]
    from faults.roads import ROADS, Kept  # with nnburst, whose locks are watched

    found: dict[str, None] = {}

    def look(frame: FrameType, event: str, _argument: Any) -> None:
        if _held and event in ("call", "c_return") and frame.f_code.co_filename != __file__:
            for lock in _held:
                found[f"{lock.made} held in {frame.f_code.co_qualname}, {_place(frame)}"] = None

    around = ROADS[sys.argv[1]]()
    road = next(around)
    road(Kept())
    sys.setprofile(look)
    for _ in range(3):  # the second time some requests are bound, the third time they are there
        kept = Kept()
        road(kept)
        kept.close()
    sys.setprofile(None)
    next(around, None)
    print(*found, sep="\n")


if __name__ == "__main__":
    main()
