"""Files in Chrome's JSON (Trace Event Format), which Perfetto's page and most viewers read."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import msgspec

from nnburst.hal.errors import InvalidArgument
from nnburst.tracing.timeline import Thread, ThreadBuilder, Trace

_CATEGORY = "nnburst"
#: In the order in which they count if they come at one moment.
_ENDS, _OPENS, _ENDS_AT_ONCE = range(3)


def write(trace: Trace) -> bytes:
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


def read(data: bytes) -> Trace:
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
