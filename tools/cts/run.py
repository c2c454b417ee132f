"""All cases, spread over processes: survives crashes, and resumes where an earlier run stopped."""

from __future__ import annotations

import math
import os
import random
import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Final

import msgspec

from cts.program import Result, run_batch

#: Cases of one process: enough that starting it costs little, few enough that shards stay even.
BATCH: Final = 200


class Results:
    """Results by case, kept in a file of JSON lines as they come. Thread-safe."""

    def __init__(self, path: Path, *, resume: bool) -> None:
        """Read what an earlier run has left, or begin anew."""
        self._lock = threading.Lock()
        self.by_name: dict[str, Result] = {}
        if resume and path.exists():
            lines = path.read_bytes().splitlines()
            results = [
                msgspec.json.decode(line, type=Result) for line in lines if line.endswith(b"}")
            ]
            self.by_name = {result.name: result for result in results}
        else:
            path.unlink(missing_ok=True)
        path.parent.mkdir(parents=True, exist_ok=True)
        self._file = path.open("ab")

    def add(self, result: Result) -> None:
        """Keep one."""
        with self._lock:
            self.by_name[result.name] = result
            self._file.write(msgspec.json.encode(result) + b"\n")
            self._file.flush()

    def close(self) -> None:
        """Close the file."""
        self._file.close()


def run(
    program: Path,
    names: Iterable[str],
    results: Results,
    *,
    shards: int,
    patience: float,
    environment: Mapping[str, str],
    progress: Callable[[int], None],
    until: float = math.inf,
) -> None:
    """Run every case that has no result yet.

    Args:
        program: the built CTS.
        names: of the cases.
        results: where results go.
        shards: processes at once.
        patience: seconds that a case may be silent for.
        environment: of the processes, besides this one's.
        progress: is called with the number of results so far.
        until: when to begin no further process, on `time.monotonic`'s clock.
    """
    todo = [name for name in names if name not in results.by_name]
    random.Random(0).shuffle(todo)  # noqa: S311 - slow suites are spread over all batches
    batches = [todo[start : start + BATCH] for start in range(0, len(todo), BATCH)]
    both = {**os.environ, **environment}

    def carry_out(batch: Sequence[str]) -> None:
        left = list(batch)
        while left and time.monotonic() < until:
            for result in run_batch(program, left, both, patience):
                results.add(result)
                progress(len(results.by_name))
            ended = [name for name in left if name not in results.by_name]
            if len(ended) == len(left):  # it died before its first case
                results.add(Result(left[0], "crashed", 0.0, "its process ended before it ran"))
                ended = left[1:]
            left = ended

    with ThreadPoolExecutor(shards) as pool:
        for _ in pool.map(carry_out, batches):
            pass  # an error is raised here
