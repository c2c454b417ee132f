"""Holds a trace as slices, instants and counters of threads, from which files and reports are made."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

import msgspec


class Slice(msgspec.Struct):
    """A piece of work.

    Attributes:
        name: `[NN_layer_phase]detail`, or anything in traces of others.
        begin: nanoseconds.
        end: nanoseconds.
        depth: 0 for the outermost of its thread.
        flow: number of a request; 0 for none.
        leaves: the flow begins here, else it ends here.
        is_complete: begin and end were both seen.
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
        """Nanoseconds."""
        return self.end - self.begin


class Instant(msgspec.Struct):
    """A named moment."""

    name: str
    time: int


class Sample(msgspec.Struct):
    """A counter's value from a moment on."""

    name: str
    time: int
    value: int


@dataclass
class Thread:
    """The work of one thread. Slices are in the order of their beginnings, outer ones first."""

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
        threads: those that did something.
        lost: records that were overwritten before they were read, or that no thread had room for.
        problems: marks that do not fit together, in words.
    """

    threads: list[Thread]
    lost: int = 0
    problems: list[str] = field(default_factory=list)


class ThreadBuilder:
    """Builds the slices of a thread from begins, ends and switches, in the order of their times."""

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
        """A line about ends without a beginning, if there were any."""
        if not self.surplus:
            return []
        return [f"thread {self.thread.tid}: {self.surplus} ends without a beginning"]


def flows(trace: Trace) -> tuple[int, int]:
    """Requests that left a slice, and those of them that came to another."""
    left = {s.flow for t in trace.threads for s in t.slices if s.flow and s.leaves}
    came = {s.flow for t in trace.threads for s in t.slices if s.flow and not s.leaves}
    return len(left), len(left & came)


def span(threads: Iterable[Thread]) -> tuple[int, int]:
    """The first and the last moment."""
    times = [t for thread in threads for s in thread.slices for t in (s.begin, s.end)]
    return (min(times), max(times)) if times else (0, 0)
