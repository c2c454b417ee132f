"""Reads and writes traces as files: Chrome's JSON, ftrace's text, and Perfetto's format.

Perfetto's format is written without its library, as the packets of a `Trace` message; field numbers:
https://perfetto.dev/docs/reference/trace-packet-proto.
"""

from __future__ import annotations

import gzip
import re
import time
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import msgspec

from nnburst.formats.protobuf import Field, Malformed, fields, fixed64, message
from nnburst.hal.errors import InvalidArgument
from nnburst.tracing.recording import is_mark
from nnburst.tracing.timeline import Instant, Slice, Thread, ThreadBuilder, Trace

_CATEGORY = "nnburst"
#: Kinds of events, in the order in which events of the same time are applied.
_ENDS, _OPENS, _ENDS_AT_ONCE = range(3)


def write_chrome(trace: Trace) -> bytes:
    """Make Chrome's JSON from a trace."""
    found = [event for thread in trace.threads for event in _events(thread)]
    about = {"lost": trace.lost, "problems": trace.problems}
    return msgspec.json.encode({"traceEvents": found, "displayTimeUnit": "ns", "otherData": about})


def _events(thread: Thread) -> Iterator[dict[str, Any]]:
    place = {"pid": thread.pid, "tid": thread.tid, "cat": _CATEGORY}
    yield {"ph": "M", "name": "process_name", **place, "args": {"name": thread.process}}
    yield {"ph": "M", "name": "thread_name", **place, "args": {"name": thread.name}}
    for piece in thread.slices:
        begin, duration = piece.begin / 1000, piece.duration / 1000
        yield {"ph": "X", "name": piece.name, "ts": begin, "dur": duration, **place}
        if piece.flow:
            kind = {"ph": "s"} if piece.leaves else {"ph": "f", "bp": "e"}
            name = {"name": "request", "id": str(piece.flow)}
            yield {**kind, **name, "ts": begin, **place}
    for instant in thread.instants:
        yield {"ph": "i", "s": "t", "name": instant.name, "ts": instant.time / 1000, **place}
    for sample in thread.samples:
        value = {"value": sample.value}
        yield {"ph": "C", "name": sample.name, "ts": sample.time / 1000, **place, "args": value}


def read_chrome(data: bytes) -> Trace:
    """Read Chrome's JSON: complete events, and begins and ends.

    Raises:
        InvalidArgument: the data are not such a file.
    """
    try:
        content = msgspec.json.decode(data)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise InvalidArgument(f"trace: the file is not JSON: {error}") from error
    found = content.get("traceEvents") if isinstance(content, dict) else content
    if not isinstance(found, list):
        raise InvalidArgument("trace: the JSON has no traceEvents")
    try:
        return _trace_of(found)
    except InvalidArgument:
        raise
    except (ArithmeticError, AttributeError, KeyError, TypeError, ValueError) as error:
        raise InvalidArgument(f"trace: an event is malformed: {error!r}") from error


def _trace_of(found: list[Any]) -> Trace:
    threads: dict[tuple[int, int], ThreadBuilder] = {}
    processes: dict[int, str] = {}
    names: dict[tuple[int, int], str] = {}
    marks: list[tuple[int, int, int, tuple[int, int], str, int, bool]] = []
    flows = {
        (event.get("pid"), event.get("tid"), event.get("ts")): event
        for event in found
        if isinstance(event, dict) and event.get("ph") in ("s", "f")
    }
    for event in found:
        if not isinstance(event, dict):
            raise InvalidArgument("trace: an event is not an object")
        key = (int(event.get("pid", 0)), int(event.get("tid", 0)))
        kind, name = event.get("ph"), str(event.get("name", ""))
        if kind == "M":
            text = str(event.get("args", {}).get("name", ""))
            if name == "process_name":
                processes[key[0]] = text
            elif name == "thread_name":
                names[key] = text
        elif kind in ("X", "B", "E"):
            # Whole nanoseconds, since a sum of floats may be later than an event that begins at the same
            # time.
            begin, duration = (round(1000 * float(us)) for us in (event["ts"], event.get("dur", 0)))
            flow = flows.get((*key, event["ts"])) if kind == "X" else None
            number = int(flow["id"]) if flow and str(flow["id"]).isdigit() else 0
            leaves = bool(flow and flow["ph"] == "s")
            if kind in ("X", "B"):
                marks.append((begin, _OPENS, -duration, key, name, number, leaves))
            if kind in ("X", "E"):
                what = _ENDS if duration or kind == "E" else _ENDS_AT_ONCE
                marks.append((begin + duration, what, 0, key, name, 0, False))
    for moment, what, _, key, name, number, leaves in sorted(marks, key=lambda m: m[:3]):
        thread = Thread(*key, processes.get(key[0], ""), names.get(key, ""))
        builder = threads.setdefault(key, ThreadBuilder(thread))
        if what == _OPENS:
            builder.begin(name, moment, number, leaves=leaves)
        else:
            builder.end_slice(moment)
    for builder in threads.values():
        builder.finish()
    return Trace([builder.thread for builder in threads.values()])


#: Spaces before a task belong to it: as a part of their own they would take time by their square.
_LINE: Final = re.compile(
    r"(?P<task>.+)-(?P<thread>\d+)\s+(?:\(\s*(?P<process>-+|\d+)\)\s+)?\[\d+\]\s+\S+\s+"
    r"(?P<seconds>\d+\.\d+):\s+tracing_mark_write:\s+(?P<mark>[BE].*)"
)


# -- The original's text: the lines of the kernel's trace_marker, alone or within systrace's HTML --
#     TASK-PID    TGID  [CPU] flags  seconds: tracing_mark_write: B|pid|name   or   E

#: Names of HIDL's own marks: the caller's, and the server's.
_HIDL: Final = re.compile(r"HIDL::(?P<interface>\w+)::(?P<method>\w+)::(?P<side>client|server)")
_PHASES: Final = {
    "getCapabilities": "PI",
    "prepareModel": "PC",
    "getSupportedOperations": "PC",
    "execute": "PE",
    "allocate": "PU",
}


def is_text(data: bytes) -> bool:
    """Whether the content looks like ftrace's text."""
    return b"tracing_mark_write" in data


def read_ftrace(data: bytes) -> Trace:
    """Read ftrace's text; threads without a mark of NNAPI are left out.

    Raises:
        InvalidArgument: there is no trace of NNAPI in it.
    """
    threads: dict[int, ThreadBuilder] = {}
    for line in data.decode("utf-8", "replace").splitlines():
        found = _LINE.match(line)
        if found is not None:
            _take(threads, found)
    kept = [b for b in threads.values() if any(is_mark(s.name) for s in b.thread.slices)]
    if not kept:
        raise InvalidArgument("trace: the text has no marks of NNAPI")
    problems: list[str] = []
    for builder in kept:
        builder.finish()
        problems += (
            f"{problem}; a trace must have the whole life of the application"
            for problem in builder.problems()
        )
    return Trace([builder.thread for builder in kept], 0, problems)


def _take(threads: dict[int, ThreadBuilder], found: re.Match[str]) -> None:
    tid, mark = int(found["thread"]), found["mark"]
    moment = round(float(found["seconds"]) * 1e9)
    parts = mark.split("|", 2)
    process = found["process"] or ""
    pid = int(process) if process.isdigit() else 0
    if len(parts) > 1 and parts[1].isdigit():
        pid = int(parts[1])
    task = found["task"].strip()
    builder = threads.setdefault(tid, ThreadBuilder(Thread(pid, tid, task, task)))
    if parts[0] == "E":
        builder.end_slice(moment)
    elif parts[0] == "B" and len(parts) == 3:
        builder.begin(_translated(parts[2]), moment)


def _translated(name: str) -> str:
    """Translate a mark of HIDL: the client's side becomes IPC, the server's side the driver."""
    found = _HIDL.search(name)
    if found is None:
        return name
    method = found["method"]
    phase = next((p for start, p in _PHASES.items() if method.startswith(start)), None)
    if phase is None:
        return name
    return f"[NN_{'LI' if found['side'] == 'client' else 'LD'}_{phase}]{method}"


_GZIP: Final = b"\x1f\x8b"
SUFFIXES: Final = (".pftrace", ".json", ".json.gz")


#: CLOCK_MONOTONIC and CLOCK_BOOTTIME, as Perfetto numbers them.
_MONOTONIC: Final = 3
_BOOTTIME: Final = 6
_SEQUENCE: Final = 1
_CLEARED, _NEEDED = 1, 2
_BEGIN, _END, _INSTANT, _COUNTER = 1, 2, 3, 4


def write_perfetto(trace: Trace) -> bytes:
    """Make a file in Perfetto's format from a trace."""
    return b"".join(message((1, packet)) for packet in _packets(trace))


def _packets(trace: Trace) -> Iterator[bytes]:
    monotonic, boot = time.monotonic_ns(), time.clock_gettime_ns(time.CLOCK_BOOTTIME)
    clocks = [message((1, _MONOTONIC), (2, monotonic)), message((1, _BOOTTIME), (2, boot))]
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
        """The number of a name, and the bytes that define it if it is new."""
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
        # An inner slice ends before an outer one that ends at the same time.
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
    """Sort events by time; ends come before begins, but a slice without duration begins before it ends."""

    def key(event: tuple[int, int, int, Slice | Instant]) -> tuple[int, int, int]:
        moment, opens, order, what = event
        empty = isinstance(what, Slice) and what.begin == what.end
        if empty:
            # Both marks of it come among the begins of this time.
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


def read_perfetto(data: bytes) -> Trace:
    """Read a file that `write_perfetto` has made.

    Raises:
        InvalidArgument: the data are not such a file.
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
        """The trace that the packets give."""
        problems: list[str] = []
        for builder in self._threads.values():
            builder.finish()
            problems += builder.problems()
        return Trace([builder.thread for builder in self._threads.values()], 0, problems)


def write(trace: Trace, path: Path) -> None:
    """Write a trace in the format of the file's suffix.

    Raises:
        InvalidArgument: the name has no known suffix.
        OSError: the file cannot be written.
    """
    if path.name.endswith(".json.gz"):
        path.write_bytes(gzip.compress(write_chrome(trace)))
    elif path.name.endswith(".json"):
        path.write_bytes(write_chrome(trace))
    elif path.name.endswith(".pftrace"):
        path.write_bytes(write_perfetto(trace))
    else:
        raise InvalidArgument(f"trace: {path.name!r}, expected a name in {', '.join(SUFFIXES)}")


def read(path: Path) -> Trace:
    """Read a trace from a file: Perfetto's format, Chrome's JSON, or the original's text.

    Raises:
        InvalidArgument: the file has none of these formats.
        OSError: the file cannot be read.
    """
    data = path.read_bytes()
    try:
        return _read(gzip.decompress(data) if data.startswith(_GZIP) else data)
    except (InvalidArgument, EOFError, gzip.BadGzipFile, zlib.error) as error:
        raise InvalidArgument(f"{path}: {error}") from error


def _read(data: bytes) -> Trace:
    if is_text(data):
        return read_ftrace(data)
    if data.lstrip()[:1] in (b"{", b"["):
        return read_chrome(data)
    return read_perfetto(data)
