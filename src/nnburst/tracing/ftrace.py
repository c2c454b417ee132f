"""The original's text: what the kernel's trace_marker writes, alone or within systrace's HTML.

TASK-PID    TGID  [CPU] flags  seconds: tracing_mark_write: B|pid|name   or   E
"""

from __future__ import annotations

import re
from typing import Final

from nnburst.hal.errors import InvalidArgument
from nnburst.tracing.marks import is_mark
from nnburst.tracing.timeline import Thread, ThreadBuilder, Trace

_LINE: Final = re.compile(
    r"\s*(?P<task>.+)-(?P<thread>\d+)\s+(?:\(\s*(?P<process>-+|\d+)\)\s+)?\[\d+\]\s+\S+\s+"
    r"(?P<seconds>\d+\.\d+):\s+tracing_mark_write:\s+(?P<mark>[BE].*)"
)
#: Slices of HIDL's own marks: who calls, and who serves.
_HIDL: Final = re.compile(r"HIDL::(?P<interface>\w+)::(?P<method>\w+)::(?P<side>client|server)")
_PHASES: Final = {
    "getCapabilities": "PI",
    "prepareModel": "PC",
    "getSupportedOperations": "PC",
    "execute": "PE",
    "allocate": "PU",
}


def is_text(data: bytes) -> bool:
    """Whether a file looks like it."""
    return b"tracing_mark_write" in data


def read(data: bytes) -> Trace:
    """The trace of a text; threads without a mark of NNAPI are left out.

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
    """HIDL's marks as ours: the client's side is IPC, the server's the driver."""
    found = _HIDL.search(name)
    if found is None:
        return name
    method = found["method"]
    phase = next((p for start, p in _PHASES.items() if method.startswith(start)), None)
    if phase is None:
        return name
    return f"[NN_{'LI' if found['side'] == 'client' else 'LD'}_{phase}]{method}"
