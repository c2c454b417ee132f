"""Makes the n-th call of a function on a road fail, or interrupts the road, and looks for leaks.

    LD_PRELOAD=failing_calls.so python -m faults.nth_call ROAD calls all
    python -m faults.nth_call ROAD interrupts some
    python -m faults.nth_call ROAD interrupts 200:300

runs the road once for each failure (`all`), for the first, a middle and the last one (`some`), or for those
of a range of numbers. It prints each fault as it is found, to standard error, and at the end a line of JSON:
the numbers of places and of failures, and the faults found.
"""

from __future__ import annotations

import contextlib
import ctypes
import dis
import faulthandler
import gc
import json
import os
import sys
import threading
import time
import traceback
import warnings
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import cache
from pathlib import Path
from types import CodeType, FrameType
from typing import Any, Protocol, TypeVar

import nnburst
from faults.roads import ROADS, Kept
from interrupting import Interruption
from nnburst import _native
from nnburst.capi import installed
from nnburst.testing.faults.footprint import Footprint, footprint

CALLS = (
    "thread",
    "fork",
    "open",
    "memfd",
    "mmap",
    "socket",
    "send",
    "recv",
    "poll",
    "eventfd",
    "malloc",
)
_OURS = str(Path(nnburst.__file__).parent)
T = TypeVar("T")
#: Seconds after which a road counts as stuck.
_GUARD = 120
#: Seconds until all must be given back, and until one thing that an interruption left is taken to stay.
_PATIENCE, _LITTLE = 20, 2
#: Names of threads of a front's pools, which stay for later calls.
_POOLED = ("inference_", "loading_", "control_", "stream_")
#: Most failures of one call on one road.
_MOST = 200


class Trial:
    """Runs a road with failures and without, and records faults."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.places: Counter[str] = Counter()
        self.injected: Counter[str] = Counter()
        self.wrong: list[str] = []
        threading.excepthook = self._left_to_a_thread
        self._set_up()

    def _left_to_a_thread(self, what: threading.ExceptHookArgs) -> None:
        name = what.thread.name if what.thread else "a thread"
        self._is_wrong(f"{name} ended by {what.exc_type.__name__}: {what.exc_value}")

    def _is_wrong(self, what: str) -> None:
        """Record a fault, and print it at once: a later one may end this process."""
        self.wrong.append(what)
        print(f"wrong: {what}", file=sys.stderr, flush=True)

    def _set_up(self) -> None:
        """Make the road's objects, and run it until it makes no more one-time allocations."""
        self._around = ROADS[self.name]()
        self._road = next(self._around)
        for _ in range(2):
            self._road(Kept())
        watched = "nnburst death watch"  # comes with a message that no call waits for
        while self.name not in ("launch", "queue") and watched not in _threads():
            threading.Event().wait(0.01)
        self._before = _held()

    def run(self, where: str, failure: Failure) -> bool:
        """Run the road with a failure, and look for leaks; whether the failure occurred."""
        faulthandler.dump_traceback_later(_GUARD, exit=True)
        if "-v" in sys.argv:
            print(where, file=sys.stderr, flush=True)
        gc.disable()  # what is collected calls, too
        kept = Kept()
        raised: BaseException | None = None
        try:
            with failure:
                self._road(kept)
        except BaseException as error:
            raised = error
        gc.enable()
        if raised is not None and not isinstance(
            raised, (nnburst.NnburstError, MemoryError, Interruption)
        ):
            self._is_wrong(f"{where}: raised {type(raised).__name__}: {raised}")
        if raised is not None and not failure.came:
            self._is_wrong(f"{where}: raised {raised!r} although nothing failed")
        if "-v" in sys.argv and raised is not None:
            traceback.print_exception(raised)
        del raised
        if failure.came:
            self.injected[where.partition(" ")[0]] += 1
            self._look(where, kept)
        return failure.came

    def _look(self, where: str, kept: Kept) -> None:
        """Check that all objects can be closed and the road runs again, if need be with new objects."""
        try:
            kept.close()
            self._road(kept)
            kept.close()
        except BaseException as error:
            if not isinstance(error, (nnburst.Closed, nnburst.DeadObject)):
                self._is_wrong(f"{where}: afterwards {type(error).__name__}: {error}")
                if "-v" in sys.argv:
                    traceback.print_exception(error)
            del error
            try:
                self.close()
            except BaseException as at_end:
                self._is_wrong(f"{where}: closing raised {type(at_end).__name__}: {at_end}")
            self._set_up()
            return
        tolerated = _is_one if where.startswith("interrupt") else _is_none
        found = _settled(self._before, tolerated)
        more = "" if tolerated(found, self._before) else found.excess(self._before)
        if more:
            self._is_wrong(f"{where}: left {more}, threads {_threads()}")
        self._before = found

    def close(self) -> None:
        """Close the road's objects."""
        with contextlib.suppress(StopIteration):
            next(self._around)


def _spans() -> dict[str, tuple[int, int]]:
    """The address ranges at which each file is mapped."""
    found: dict[str, list[int]] = {}
    for line in Path("/proc/self/maps").read_text().splitlines():
        span, *_, path = line.split()
        found.setdefault(path, []).extend(int(word, 16) for word in span.split("-"))
    return {path: (min(places), max(places)) for path, places in found.items()}


def name_code() -> None:
    """Make allocations of the project's C code fail, too, and no call of gRPC's code."""
    shim = ctypes.CDLL(None)
    shim.nnb_fail_code.argtypes = shim.nnb_fail_skip.argtypes = [ctypes.c_size_t] * 2
    for path, span in _spans().items():
        if path in (_native.__file__, str(installed.LIBRARY)):
            shim.nnb_fail_code(*span)
        elif "/cygrpc." in path:
            shim.nnb_fail_skip(*span)


def _threads() -> list[str]:
    return [thread.name for thread in threading.enumerate()]


def _held() -> Footprint:
    """The footprint of this process.

    A driver that replaces a dead one is counted as the same, and threads of a pool stay for later calls.
    """
    gc.collect()
    found = footprint(os.getpid())
    pooled = sum(name.startswith(_POOLED) for name in _threads())
    children = frozenset(range(len(found.children)))
    return replace(found, children=children, threads=found.threads - pooled)


Comparison = Callable[[Footprint, Footprint], bool]


def _settled(before: Footprint, tolerated: Comparison) -> Footprint:
    """Wait until the footprint is no more than before or its growth is tolerated, at most some seconds."""
    begun = time.monotonic()
    while (found := _held()).excess(before):
        seconds = time.monotonic() - begun
        if seconds > _PATIENCE or (seconds > _LITTLE and tolerated(found, before)):
            break
        threading.Event().wait(0.01)
    return found


def _is_none(_found: Footprint, _before: Footprint) -> bool:
    """Tolerate no growth."""
    return False


def _is_one(found: Footprint, before: Footprint) -> bool:
    """Tolerate one descriptor or mapping more: an interruption may come before it is stored."""
    fds, maps = sum(found.fds.values()) - sum(before.fds.values()), found.maps - before.maps
    rest = found.threads > before.threads or found.children - before.children
    return not rest and sorted((fds, maps)) == [0, 1]


# -- Failures --------------------------------------------------------------------------------------


class Failure(Protocol):
    """A failure that occurs once on a road.

    Attributes:
        came: whether the failure occurred.
    """

    came: bool

    def __enter__(self) -> object: ...
    def __exit__(self, *_: object) -> None: ...


class FailingCall:
    """The `number`-th call of a function fails."""

    def __init__(self, call: str, number: int) -> None:
        self.came, self.seen = False, 0
        self._call, self._number = CALLS.index(call), number
        self._shim = ctypes.CDLL(None)
        self._shim.nnb_fail_arm.argtypes = [ctypes.c_int, ctypes.c_long]
        self._shim.nnb_fail_disarm.restype = ctypes.c_long

    def __enter__(self) -> None:
        self._shim.nnb_fail_arm(self._call, self._number)

    def __exit__(self, *_: object) -> None:
        self.seen = int(self._shim.nnb_fail_disarm())
        self.came = self.seen >= self._number


#: A function's beginning, a call of C that has returned, or a jump backwards: code, place in it, event.
Site = tuple[CodeType, int, str]


@cache
def _loops(code: CodeType) -> frozenset[int]:
    """The targets of backward jumps, at which Python checks for signals."""
    back = (i for i in dis.get_instructions(code) if i.opname.startswith("JUMP_BACKWARD"))
    return frozenset(i.argval for i in back)


class Interrupted:
    """An interruption when the main thread first reaches a site; without a site, all sites are noted."""

    def __init__(self, site: Site | None) -> None:
        self.came, self.sites = False, dict[Site, None]()
        self._site = site

    def _at(self, frame: FrameType, event: str) -> None:
        site = (frame.f_code, frame.f_lasti, event)
        if self._site is None:
            self.sites[site] = None
        elif site == self._site:
            self._end()
            self.came = True
            raise Interruption

    def _profile(self, frame: FrameType, event: str, _argument: object) -> None:
        if event in ("call", "c_return") and frame.f_code.co_filename.startswith(_OURS):
            self._at(frame, event)

    def _trace(self, frame: FrameType, event: str, _argument: object) -> Any:
        if not frame.f_code.co_filename.startswith(_OURS):
            return None
        if event == "line" and frame.f_lasti in _loops(frame.f_code):
            self._at(frame, "back")
        return self._trace

    def __enter__(self) -> None:
        sys.settrace(self._trace)
        sys.setprofile(self._profile)

    def _end(self) -> None:
        sys.setprofile(None)
        sys.settrace(None)

    def __exit__(self, *_: object) -> None:
        self._end()


def some_of(found: Sequence[T], places: str) -> Sequence[T]:
    """The first, a middle and the last one, all of them up to a limit, or those of a range."""
    if places == "all":
        return found[:_MOST]
    if ":" in places:
        begin, end = places.split(":")
        return found[int(begin or 0) : int(end) if end else None]
    return [found[i] for i in sorted({0, len(found) // 2, len(found) - 1})] if found else []


def fail_calls(trial: Trial, places: str) -> None:
    """Make calls of the C library fail."""
    name_code()
    for call in CALLS:
        counting = FailingCall(call, 10**9)
        trial.run(call, counting)
        trial.places[call] = counting.seen
        for number in some_of(range(1, counting.seen + 1), places):
            trial.run(f"{call} {number}", FailingCall(call, number))


def interrupt(trial: Trial, places: str) -> None:
    """Interrupt the main thread at every site."""
    noting = Interrupted(None)
    trial.run("interrupt", noting)
    found = list(noting.sites)
    trial.places["interrupt"] = len(found)
    for site in found if places == "all" else some_of(found, places):
        code, place, event = site
        where = f"interrupt {code.co_filename.rpartition('nnburst/')[2]}:{code.co_qualname}+{place} {event}"
        trial.run(where, Interrupted(site))


def main() -> None:
    """Run the command; see the module."""
    warnings.simplefilter("ignore")
    road, kind, places = sys.argv[1:4]
    faulthandler.dump_traceback_later(_GUARD, exit=True)  # its thread is there from now on
    trial = Trial(road)
    {"calls": fail_calls, "interrupts": interrupt}[kind](trial, places)
    trial.close()
    found = {"places": trial.places, "injected": trial.injected, "wrong": trial.wrong}
    print(json.dumps(found))


if __name__ == "__main__":
    main()
