"""Declares a trace as slices, instants and counters of threads, from which files and reports are made."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

import msgspec


class Slice(msgspec.Struct):
    """A piece of work.

    Attributes:
        name: `[NN_layer_phase]detail`, or any name in other programs' traces.
        begin: begin in nanoseconds.
        end: end in nanoseconds.
        depth: nesting depth; 0 for the outermost slices of a thread.
        flow: number of a request; 0 for none.
        leaves: whether the flow begins here; otherwise it ends here.
        is_complete: whether both begin and end were seen.
    """

    name: str
    begin: int
    end: int
    depth: int = 0
    flow: int = 0
    leaves: bool = False
    is_complete: bool = True

    @property
    def duration(self) -> int:
        """The duration in nanoseconds."""
        return self.end - self.begin


class Instant(msgspec.Struct):
    """A named point in time."""

    name: str
    time: int


class Sample(msgspec.Struct):
    """The value of a counter from a time on."""

    name: str
    time: int
    value: int


@dataclass
class Thread:
    """The work of one thread. Slices are ordered by their begin, outer ones first."""

    pid: int
    tid: int
    process: str
    name: str
    slices: list[Slice] = field(default_factory=list)
    instants: list[Instant] = field(default_factory=list)
    samples: list[Sample] = field(default_factory=list)


@dataclass
class Trace:
    """The threads of all processes, and the gaps and contradictions in their marks.

    Attributes:
        threads: the threads with marks.
        lost: number of records that were overwritten before they were read, or of threads without a ring.
        problems: descriptions of marks that contradict each other.
    """

    threads: list[Thread]
    lost: int = 0
    problems: list[str] = field(default_factory=list)


class ThreadBuilder:
    """Builds the slices of a thread from begins, ends and switches in the order of time."""

    def __init__(self, thread: Thread) -> None:
        """Add the slices to `thread`."""
        self.thread = thread
        self.surplus = 0
        self._open: list[Slice] = []
        self._last = 0

    def begin(self, name: str, time: int, flow: int = 0, *, leaves: bool = False) -> None:
        """Begin a slice."""
        self._last = time
        found = Slice(name, time, time, len(self._open), flow, leaves)
        self._open.append(found)
        self.thread.slices.append(found)

    def end_slice(self, time: int) -> None:
        """End the latest open slice; if none is open, count a surplus end."""
        self._last = time
        if self._open:
            self._open.pop().end = time
        else:
            self.surplus += 1

    def switch(self, name: str, time: int, flow: int = 0, *, leaves: bool = False) -> None:
        """End the latest open slice and begin another."""
        if self._open:
            self._open.pop().end = time
        self.begin(name, time, flow, leaves=leaves)

    def finish(self) -> None:
        """End all open slices at the time of the thread's last mark."""
        for left in self._open:
            left.end, left.is_complete = self._last, False
        self._open.clear()

    def problems(self) -> list[str]:
        """A description of ends without a begin, if there were any."""
        if not self.surplus:
            return []
        return [f"thread {self.thread.tid}: {self.surplus} ends without a beginning"]


def flows(trace: Trace) -> tuple[int, int]:
    """The number of requests that left a slice, and of those that reached another one."""
    left = {s.flow for t in trace.threads for s in t.slices if s.flow and s.leaves}
    came = {s.flow for t in trace.threads for s in t.slices if s.flow and not s.leaves}
    return len(left), len(left & came)


def span(threads: Iterable[Thread]) -> tuple[int, int]:
    """The first and the last time."""
    times = [t for thread in threads for s in thread.slices for t in (s.begin, s.end)]
    return (min(times), max(times)) if times else (0, 0)
