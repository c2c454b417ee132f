"""Records the files that a call goes through in both processes, from the stacks at chosen points.

Imported as `sitecustomize` by a driver, this module records stacks from the first line of Python on; the test
records its own. The points are where a call leaves a process, computes and returns. A file that only helps
(checks a timeout, counts a quota) is not on such a stack and is not counted.
"""

from __future__ import annotations

import os
import re
import sys
import threading
from pathlib import Path
from types import FrameType
from typing import Final

LOG: Final = "WALK_LOG"  # of tests alone: no variable of the package
_PACKAGE: Final = re.compile(r".*src/nnburst/(.*)")
#: Where a call leaves a process, waits for its turn, computes, or gives its result.
_POINTS: Final = re.compile(
    r"control/connection\.py _Waiting\.wait|control/channel\.py Channel\.send"
    r"|executor/\w+\.py \w+\.(prepare|run)|driver/scheduler\.py Lanes\.submit"
    r"|client/prepared_model\.py PreparedModel\.__init__|client/burst/core\.py \w+\.memories"
    r"|client/session/pending\.py Pending\._complete"
    r"|client/burst/bound_request\.py RingRequest\.run"
    r"|runtime/devices/\w+\.py \w+\.(supported_operations|prepare)"
    r"|runtime/execution/executable\.py Executable\.__init__"
    r"|executor/reference/executor\.py ReferenceExecutor\.prepare"
    r"|serving/service\.py _Call\.succeed"
)
#: What stands on the stack of a driver's first thread, or of a burst's, from its start on.
_START: Final = {"<module>", "main", "_serve_one", "serve_client", "Service.serve", "_run_daemon"}


def begin(log: Path | str) -> None:
    """Record the stack at each point, in this thread and in those that start later."""
    fd = os.open(log, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)

    def note(frame: FrameType, event: str, _argument: object) -> None:
        if event != "call" or not _POINTS.fullmatch(_place(frame)):
            return
        stack = []
        walker: FrameType | None = frame
        while walker is not None:
            if walker.f_code.co_qualname not in _START:
                stack.append(_place(walker).partition(" ")[0])
            walker = walker.f_back
        files = dict.fromkeys(filter(None, reversed(stack)))
        os.write(fd, (" ".join(files) + "\n").encode())

    threading.setprofile(note)
    sys.setprofile(note)


def end() -> None:
    """Stop recording in this thread and in those that start later."""
    threading.setprofile(None)
    sys.setprofile(None)


def _place(frame: FrameType) -> str:
    """`FILE FUNCTION` of a frame of the package, else ""."""
    file = file_of(frame)
    return f"{file} {frame.f_code.co_qualname}" if file else ""


def file_of(frame: FrameType) -> str:
    """The file of a frame below the package, else ""."""
    found = _PACKAGE.match(frame.f_code.co_filename)
    return found[1] if found else ""


if __name__ == "sitecustomize":
    begin(os.environ[LOG])
