"""Reads and writes traces as files: Chrome's JSON, ftrace's text, and Perfetto's format."""

from __future__ import annotations

import gzip
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import msgspec

from nnburst.hal.errors import InvalidArgument
from nnburst.tracing import perfetto
from nnburst.tracing.recording import is_mark
from nnburst.tracing.timeline import Thread, ThreadBuilder, Trace

_CATEGORY = "nnburst"
#: Kinds of events, in the order in which those of one moment are applied.
_ENDS, _OPENS, _ENDS_AT_ONCE = range(3)


def write_chrome(trace: Trace) -> bytes:
    """The file of a trace."""
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
    """The trace of a file: its complete events, and its begins and ends.

    Raises:
        InvalidArgument: it is not such a file.
    """
    try:
        content = msgspec.json.decode(data)
    except msgspec.DecodeError as error:
        raise InvalidArgument(f"trace: the file is not JSON: {error}") from error
    found = content.get("traceEvents") if isinstance(content, dict) else content
    if not isinstance(found, list):
        raise InvalidArgument("trace: the JSON has no traceEvents")
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
            # Whole nanoseconds, as a sum of floats may lie behind what begins at the same moment.
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


_LINE: Final = re.compile(
    r"\s*(?P<task>.+)-(?P<thread>\d+)\s+(?:\(\s*(?P<process>-+|\d+)\)\s+)?\[\d+\]\s+\S+\s+"
    r"(?P<seconds>\d+\.\d+):\s+tracing_mark_write:\s+(?P<mark>[BE].*)"
)


# -- The original's text: the lines of the kernel's trace_marker, alone or within systrace's HTML --
#     TASK-PID    TGID  [CPU] flags  seconds: tracing_mark_write: B|pid|name   or   E

#: Slices of HIDL's own marks: the caller's, and the server's.
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
    """The trace of ftrace's text; threads without a mark of NNAPI are left out.

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
    problems = []
    for builder in kept:
        builder.finish()
        thread = builder.thread
        if builder.surplus:
            problems.append(
                f"thread {thread.tid}: {builder.surplus} ends without a beginning; a trace must have"
                " the whole life of the application"
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
    """Our mark for one of HIDL's: the client's side is IPC, the server's side is the driver."""
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
        path.write_bytes(perfetto.write(trace))
    else:
        raise InvalidArgument(f"trace: {path.name!r}, expected a name in {', '.join(SUFFIXES)}")


def read(path: Path) -> Trace:
    """The trace of a file: Perfetto's format, Chrome's JSON, or the original's text.

    Raises:
        InvalidArgument: it is not one of them.
        OSError: it cannot be read.
    """
    data = path.read_bytes()
    if data.startswith(_GZIP):
        data = gzip.decompress(data)
    if is_text(data):
        return read_ftrace(data)
    if data.lstrip()[:1] in (b"{", b"["):
        return read_chrome(data)
    return perfetto.read(data)
