"""Writes and reads Perfetto's own format without its library: the packets of a `Trace` message.

Field numbers: https://perfetto.dev/docs/reference/trace-packet-proto.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Final

from nnburst.formats.protobuf import Field, Malformed, fields, fixed64, message
from nnburst.hal.errors import InvalidArgument
from nnburst.tracing.timeline import Instant, Slice, Thread, ThreadBuilder, Trace

#: CLOCK_MONOTONIC and CLOCK_BOOTTIME, as Perfetto numbers them.
_MONOTONIC: Final = 3
_BOOTTIME: Final = 6
_SEQUENCE: Final = 1
_CLEARED, _NEEDED = 1, 2
_BEGIN, _END, _INSTANT, _COUNTER = 1, 2, 3, 4
_CATEGORY: Final = "nnburst"


def write(trace: Trace) -> bytes:
    """The file of a trace."""
    return b"".join(message((1, packet)) for packet in _packets(trace))


def _packets(trace: Trace) -> Iterator[bytes]:
    monotonic, boot = time.monotonic_ns(), time.clock_gettime_ns(time.CLOCK_BOOTTIME)
    clocks = [message((1, 3), (2, monotonic)), message((1, _BOOTTIME), (2, boot))]
    snapshot = message(*((1, clock) for clock in clocks))
    yield message((6, snapshot), (10, _SEQUENCE), (13, _CLEARED))
    interned = _Names()
    processes: dict[int, int] = {}
    numbers = iter(range(1, 1 << 30))
    for thread in trace.threads:
        if thread.pid not in processes:
            processes[thread.pid] = next(numbers)
            body = message((1, thread.pid), (6, thread.process))
            described = message((1, processes[thread.pid]), (3, body))
            yield message((60, described), (10, _SEQUENCE))
        track = next(numbers)
        body = message((1, thread.pid), (2, thread.tid), (5, thread.name))
        yield message((60, message((1, track), (4, body))), (10, _SEQUENCE))
        yield from _thread(thread, track, processes[thread.pid], numbers, interned)


class _Names:
    """Names, each of which the file contains once."""

    def __init__(self) -> None:
        self._numbers: dict[str, int] = {}

    def number(self, name: str) -> tuple[int, bytes]:
        """A name's number, and the bytes that introduce it if it is new."""
        found = self._numbers.get(name)
        if found is not None:
            return found, b""
        found = self._numbers[name] = len(self._numbers) + 1
        parts = [(2, message((1, found), (2, name)))]
        if found == 1:
            parts.append((1, message((1, 1), (2, _CATEGORY))))
        return found, message(*parts)


def _thread(
    thread: Thread, track: int, process: int, numbers: Iterator[int], names: _Names
) -> Iterator[bytes]:
    events: list[tuple[int, int, int, Slice | Instant]] = []
    for order, slice_ in enumerate(thread.slices):
        events.append((slice_.begin, 1, order, slice_))
        # An inner slice ends before an outer one that ends at the same moment.
        events.append((slice_.end, 0, -order, slice_))
    for order, instant in enumerate(thread.instants):
        events.append((instant.time, 1, order, instant))
    for moment, opens, _, what in _sorted(events):
        if isinstance(what, Instant):
            yield _named(what.name, _INSTANT, moment, track, names)
        elif opens:
            yield _named(what.name, _BEGIN, moment, track, names, what)
        else:
            yield _packet(message((9, _END), (11, track)), moment)
    counters: dict[str, int] = {}
    for sample in thread.samples:
        if sample.name not in counters:
            counters[sample.name] = number = next(numbers)
            body = message((1, number), (5, process), (2, sample.name), (8, b""))
            yield message((60, body), (10, _SEQUENCE))
        event = message((9, _COUNTER), (11, counters[sample.name]), (30, sample.value))
        yield _packet(event, sample.time)


def _sorted(
    events: list[tuple[int, int, int, Slice | Instant]],
) -> list[tuple[int, int, int, Slice | Instant]]:
    """By time; ends before beginnings, except that a slice without duration begins before it ends."""

    def key(event: tuple[int, int, int, Slice | Instant]) -> tuple[int, int, int]:
        moment, opens, order, what = event
        empty = isinstance(what, Slice) and what.begin == what.end
        if empty:
            # Both marks of it at their place among the beginnings of this moment.
            return moment, 1, 2 * abs(order) + (not opens)
        return moment, opens, 2 * order if opens else order

    return sorted(events, key=key)


def _named(
    name: str, kind: int, moment: int, track: int, names: _Names, what: Slice | None = None
) -> bytes:
    number, introduction = names.number(name)
    event = message((9, kind), (11, track), (10, number), (3, 1))
    if what is not None and what.flow:
        event += fixed64(47 if what.leaves else 48, what.flow)
    return _packet(event, moment, introduction)


def _packet(event: bytes, moment: int, introduction: bytes = b"") -> bytes:
    parts: list[tuple[int, int | bytes]] = [
        (8, moment),
        (58, _MONOTONIC),
        (10, _SEQUENCE),
        (13, _NEEDED),
        (11, event),
    ]
    if introduction:
        parts.append((12, introduction))
    return message(*parts)


def read(data: bytes) -> Trace:
    """The trace of a file that `write` made.

    Raises:
        InvalidArgument: it is not such a file.
    """
    found = _Reader()
    try:
        for packet in fields(memoryview(data)):
            if packet.number == 1:
                found.take(packet)
    except Malformed as error:
        raise InvalidArgument(f"trace: not a Perfetto trace, or it was cut off: {error}") from None
    return found.trace()


def _parts(message: Field | None) -> dict[int, Field]:
    if message is None or not message.packed:
        return {}
    return {part.number: part for part in fields(message.view)}


def _number(value: Field | None) -> int:
    return 0 if value is None or value.packed else value.integer


def _text(value: Field | None) -> str:
    return "" if value is None else bytes(value.view).decode("utf-8", "replace")


class _Reader:
    """Builds a trace from packets in their order."""

    def __init__(self) -> None:
        self._names: dict[int, str] = {}
        self._processes: dict[int, str] = {}
        self._threads: dict[int, ThreadBuilder] = {}

    def take(self, packet: Field) -> None:
        """Read one packet."""
        parts = _parts(packet)
        names = parts.get(12)
        for entry in fields(names.view) if names is not None else ():
            if entry.number == 2:
                name = _parts(entry)
                self._names[_number(name.get(1))] = _text(name.get(2))
        if 60 in parts:
            self._track(_parts(parts[60]))
        if 11 in parts:
            self._event(_parts(parts[11]), _number(parts.get(8)))

    def _track(self, track: dict[int, Field]) -> None:
        number = _number(track.get(1))
        process, thread = _parts(track.get(3)), _parts(track.get(4))
        if process:
            self._processes[_number(process.get(1))] = _text(process.get(6))
        elif thread:
            pid = _number(thread.get(1))
            made = Thread(
                pid, _number(thread.get(2)), self._processes.get(pid, ""), _text(thread.get(5))
            )
            self._threads[number] = ThreadBuilder(made)

    def _event(self, event: dict[int, Field], moment: int) -> None:
        builder = self._threads.get(_number(event.get(11)))
        if builder is None:
            return
        name = self._names.get(_number(event.get(10)), _text(event.get(23)))
        kind = _number(event.get(9))
        if kind == _BEGIN:
            leaves = 47 in event
            builder.begin(name, moment, _number(event.get(47, event.get(48))), leaves=leaves)
        elif kind == _END:
            builder.end_slice(moment)
        elif kind == _INSTANT:
            builder.thread.instants.append(Instant(name, moment))

    def trace(self) -> Trace:
        """The trace that was read."""
        problems = []
        for builder in self._threads.values():
            builder.finish()
            if builder.surplus:
                problems.append(
                    f"thread {builder.thread.tid}: {builder.surplus} ends without a beginning"
                )
        return Trace([builder.thread for builder in self._threads.values()], 0, problems)
