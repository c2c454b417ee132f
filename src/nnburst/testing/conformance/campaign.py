"""Running vector files: which tests of which suites, over how many processes, and how they ended."""

from __future__ import annotations

import multiprocessing
import os
import re
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import dataclass
from multiprocessing.util import Finalize
from pathlib import Path
from typing import Final

import msgspec

from nnburst.hal.errors import InvalidArgument
from nnburst.testing.conformance.runners import RUNNERS, Observed, Runner
from nnburst.testing.conformance.suites import SUITES, Verdict, failed, run_suite
from nnburst.testing.conformance.vectors import Vector, read, write

#: numpy's BLAS would start a thread per core in each of our processes.
_BLAS: Final = ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS")


@dataclass(frozen=True, slots=True)
class Selection:
    """What to run, and how.

    Attributes:
        executor: name of the executor.
        via: how to reach it, a key of RUNNERS.
        suites: which suites.
        filter: regular expression searched in `folder/spec/name`; empty for all.
        operation: only tests with this operation; empty for all.
        exact: no difference if results are not floating point.
        dump: folder for files that reproduce one failed test each.
    """

    executor: str = "reference"
    via: str = "local"
    suites: tuple[str, ...] = SUITES
    filter: str = ""
    operation: str = ""
    exact: bool = False
    dump: Path | None = None

    def takes(self, vector: Vector) -> bool:
        """Whether a test is selected."""
        name = f"{vector.folder}/{vector.spec}/{vector.name}"
        if self.filter and not re.search(self.filter, name):
            return False
        return not self.operation or self.operation in operations(vector)


@dataclass(frozen=True, slots=True)
class Result:
    """How one test of one suite ended.

    Attributes:
        name: the test.
        suite: how it was run.
        outcome: "passed", "failed" or "skipped".
        reason: why, unless it passed.
        operations: types of the operations in it.
        type: operand type of its first output.
        dump: file that reproduces a failure alone.
        driver_us: the driver's own duration of its last execution; None if none was measured.
        total_us: the same execution as its caller saw it.
    """

    name: str
    suite: str
    outcome: str
    reason: str
    operations: tuple[str, ...]
    type: str
    dump: str = ""
    driver_us: int | None = None
    total_us: float | None = None


def operations(vector: Vector) -> tuple[str, ...]:
    """Types of all operations of a test, sorted."""
    return tuple(sorted({o.type for graph in vector.graphs for o in graph.operations}))


def find_files(directories: Sequence[Path]) -> list[Path]:
    """Vector files in and below `directories` (or the files themselves), the biggest first.

    Raises:
        InvalidArgument: no file was found.
    """
    found = {
        path
        for directory in directories
        for path in ([directory] if directory.is_file() else directory.rglob("*.json.gz"))
    }
    if not found:
        raise InvalidArgument(f"no vector files (*.json.gz) in {', '.join(map(str, directories))}")
    return sorted(found, key=lambda p: (-p.stat().st_size, p))


def run_files(files: Sequence[Path], selection: Selection, jobs: int) -> Iterator[list[Result]]:
    """Run the selected tests of each file; yields one list of results per file, in any order.

    Raises:
        InvalidArgument: executor or way do not exist.
    """
    if selection.via not in RUNNERS:
        raise InvalidArgument(
            f"--via {selection.via} is not available, there is {', '.join(RUNNERS)}"
        )
    if jobs == 1:
        runner = RUNNERS[selection.via](selection.executor)
        try:
            for path in files:
                yield run_file(path, selection, runner)
        finally:
            runner.close()
        return
    for name in _BLAS:
        os.environ.setdefault(name, "1")
    with ProcessPoolExecutor(
        jobs, multiprocessing.get_context("spawn"), initializer=_start, initargs=(selection,)
    ) as pool:
        for done in as_completed([pool.submit(_run_in_worker, path) for path in files]):
            yield done.result()


def run_file(path: Path, selection: Selection, runner: Runner) -> list[Result]:
    """Run the selected tests of one file."""
    return [
        _run_one(vector, suite, selection, runner)
        for vector in read(path)
        if selection.takes(vector)
        for suite in vector.suites
        if suite in selection.suites
    ]


_worker: tuple[Selection, Runner] | None = None


def _start(selection: Selection) -> None:
    global _worker  # one runner per worker process
    runner = RUNNERS[selection.via](selection.executor)
    _worker = (selection, runner)
    Finalize(None, runner.close, exitpriority=0)  # a worker of a pool has no other end


def _run_in_worker(path: Path) -> list[Result]:
    assert _worker is not None
    return run_file(path, *_worker)


def _run_one(vector: Vector, suite: str, selection: Selection, runner: Runner) -> Result:
    observed = Observed(runner)
    try:
        verdict = run_suite(vector, suite, observed, exact=selection.exact)
    except Exception as error:
        verdict = failed(f"crashed with {type(error).__name__}: {error}")
    kind = vector.outputs[0].type if vector.outputs else ""
    dump = _dump(vector, suite, verdict, selection.dump)
    last = observed.last
    timed = last is not None and last.timing.measured
    return Result(
        vector.name,
        suite,
        *verdict,
        operations(vector),
        kind,
        dump,
        driver_us=last.timing.time_in_driver if last is not None and timed else None,
        total_us=last.total_ns / 1000 if last is not None and timed else None,
    )


def _dump(vector: Vector, suite: str, verdict: Verdict, folder: Path | None) -> str:
    if verdict.outcome != "failed" or folder is None:
        return ""
    path = folder / f"{vector.name}.{suite}.json.gz"
    write(path, msgspec.structs.replace(vector, suites=(suite,)))
    return str(path)
