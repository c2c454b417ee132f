"""Time that threads of a process run on a core."""

from __future__ import annotations

import time
from pathlib import Path


def cpu_ns(pid: int) -> dict[int, int]:
    """Time that each thread of a process has been running, by its id."""
    found = {}
    for task in Path(f"/proc/{pid}/task").iterdir():
        try:
            found[int(task.name)] = int((task / "schedstat").read_text().split()[0])
        except (FileNotFoundError, ProcessLookupError):
            continue  # it has ended meanwhile
    return found


def busy_for(seconds: float) -> None:
    """Use this much CPU time, which also passes for spinning threads."""
    began = time.process_time()
    while time.process_time() - began < seconds:
        pass
