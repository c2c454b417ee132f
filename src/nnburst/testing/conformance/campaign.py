"""Runs vector files in every way that they allow, over several processes.

A suite is a way to run a vector, with the required result:

    run                    build, prepare, execute, compare
    dynamic_output_shape   the same with output extents unknown; also with a first buffer one byte short
    signed_coupling        the same with TENSOR_QUANT8_ASYMM turned into its signed twin
    device_memory          the same with driver-managed buffers
    must_fail              the model or the request is invalid: some step must report an error
    timeout                an endless WHILE must end by the loop time limit
"""

from __future__ import annotations

import math
import multiprocessing
import os
import re
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import dataclass
from multiprocessing.util import Finalize
from pathlib import Path
from typing import Any, Final, NamedTuple

import msgspec
import numpy as np
import numpy.typing as npt

from nnburst.hal.enums import ErrorStatus, OperandType
from nnburst.hal.errors import InvalidArgument, NnburstError
from nnburst.hal.limits import DEFAULT_LOOP_TIMEOUT_NS
from nnburst.hal.model import DTYPES
from nnburst.testing.conformance.comparison import (
    RunResult,
    Unsupported,
    first_mismatch,
    frequency_mismatch,
    limits_for,
)
from nnburst.testing.conformance.runners import RUNNERS, Observed, Runner
from nnburst.testing.conformance.vectors import (
    Vector,
    VectorOperand,
    build,
    map_operands,
    read,
    write,
)

Array = npt.NDArray[Any]

SUITES: Final = (
    "run",
    "dynamic_output_shape",
    "signed_coupling",
    "device_memory",
    "must_fail",
    "timeout",
)
#: Loop time limit of suite `timeout` (NNAPI VTS: 1 ms).
_SHORT_LOOP_NS: Final = 1_000_000
_MISSED: Final = (
    ErrorStatus.MISSED_DEADLINE_TRANSIENT,
    ErrorStatus.MISSED_DEADLINE_PERSISTENT,
)


class CaseVerdict(NamedTuple):
    """The outcome of a test of a suite, `passed`, `failed` or `skipped`, and the reason."""

    outcome: str
    reason: str = ""


PASSED: Final = CaseVerdict("passed")


def failed(reason: str) -> CaseVerdict:
    """Make a verdict against the executor."""
    return CaseVerdict("failed", reason)


def run_suite(vector: Vector, suite: str, runner: Runner, *, exact: bool = False) -> CaseVerdict:
    """Run one vector in one suite.

    Args:
        vector: a test that belongs to `suite`.
        suite: one of SUITES.
        runner: the way to reach the executor.
        exact: whether results that are not floating point must be equal.
    """
    run: Callable[[], CaseVerdict] = {
        "run": lambda: _compared(vector, runner, exact=exact),
        "dynamic_output_shape": lambda: _dynamic(vector, runner, exact=exact),
        "device_memory": lambda: _in_buffers(vector, runner, exact=exact),
        "signed_coupling": lambda: _compared(signed(vector), runner, exact=exact),
        "must_fail": lambda: _must_fail(vector, runner),
        "timeout": lambda: _timeout(vector, runner),
    }[suite]
    try:
        return run()
    except Unsupported as error:
        return CaseVerdict("skipped", str(error))


def signed(vector: Vector) -> Vector:
    """Turn every TENSOR_QUANT8_ASYMM operand into a TENSOR_QUANT8_ASYMM_SIGNED one with the same numbers."""
    buffers = list(vector.buffers)

    def change(operand: VectorOperand) -> VectorOperand:
        if operand.kind is not OperandType.TENSOR_QUANT8_ASYMM:
            return operand
        data = operand.data
        if data is not None:
            # Subtracting 128 from a byte flips its top bit.
            buffers.append((np.frombuffer(buffers[data], np.uint8) ^ 0x80).tobytes())
            data = len(buffers) - 1
        kind = OperandType.TENSOR_QUANT8_ASYMM_SIGNED.name
        return msgspec.structs.replace(
            operand, type=kind, zero_point=operand.zero_point - 128, data=data
        )

    changed = map_operands(vector, change)
    return msgspec.structs.replace(changed, buffers=tuple(buffers))


def with_unknown_outputs(vector: Vector) -> Vector:
    """Make every SUBGRAPH_OUTPUT extent of the vector unknown."""

    def change(operand: VectorOperand) -> VectorOperand:
        if operand.lifetime != "SUBGRAPH_OUTPUT":
            return operand
        return msgspec.structs.replace(operand, dimensions=(0,) * len(operand.dimensions))

    return map_operands(vector, change)


def _execute(
    vector: Vector,
    runner: Runner,
    sizes: list[int],
    loop_timeout_ns: int = DEFAULT_LOOP_TIMEOUT_NS,
) -> RunResult:
    built = build(vector)
    prepared = runner.prepare(built.model, built.pools)
    try:
        inputs = [vector.array_of(operand) for operand in vector.inputs]
        return prepared.run(inputs, sizes, loop_timeout_ns)
    finally:
        prepared.close()


def _sizes(vector: Vector) -> list[int]:
    # As in the original, a buffer has at least one byte, also for an empty result.
    return [max(1, len(vector.bytes_of(o) or b"")) for o in vector.outputs]


def _compared(vector: Vector, runner: Runner, *, exact: bool) -> CaseVerdict:
    return _attempt(lambda: _judge(vector, _execute(vector, runner, _sizes(vector)), exact=exact))


def _in_buffers(vector: Vector, runner: Runner, *, exact: bool) -> CaseVerdict:
    def attempt() -> CaseVerdict:
        built = build(vector)
        prepared = runner.prepare(built.model, built.pools)
        try:
            result = prepared.run_in_buffers([vector.array_of(o) for o in vector.inputs])
        finally:
            prepared.close()
        return _judge(vector, result, exact=exact)

    return _attempt(attempt)


def _dynamic(vector: Vector, runner: Runner, *, exact: bool) -> CaseVerdict:
    changed = with_unknown_outputs(vector)

    def attempt() -> CaseVerdict:
        sizes = _sizes(vector)
        verdict = _judge(vector, _execute(changed, runner, sizes), exact=exact)
        if verdict is not PASSED or sizes[0] == 1:
            return verdict
        result = _execute(changed, runner, [sizes[0] - 1, *sizes[1:]])
        return _judge_insufficient(vector, result)

    return _attempt(attempt)


def _judge_insufficient(vector: Vector, result: RunResult) -> CaseVerdict:
    if result.status is not ErrorStatus.OUTPUT_INSUFFICIENT_SIZE:
        return failed(f"a buffer one byte short ends as {result.status.name}: {result.message}")
    wanted = [(i != 0, o.dimensions) for i, o in enumerate(vector.outputs)]
    found = [(s.is_sufficient, s.dimensions) for s in result.shapes]
    if len(found) != len(wanted):
        return failed(f"a buffer one byte short reports {len(found)} of {len(wanted)} shapes")
    for (sufficient, dimensions), shape, operand in zip(wanted, found, vector.outputs, strict=True):
        if sufficient != shape[0] or (shape[1] != dimensions and not operand.is_ignored):
            return failed(f"a buffer one byte short reports {shape}, expected {dimensions}")
    return PASSED


def _must_fail(vector: Vector, runner: Runner) -> CaseVerdict:
    try:
        result = _execute(vector, runner, _sizes(vector))
    except Unsupported:
        raise
    except NnburstError:
        return PASSED
    if result.status is ErrorStatus.NONE:
        return failed("neither preparing nor executing reported an error")
    return PASSED


def _timeout(vector: Vector, runner: Runner) -> CaseVerdict:
    result = _execute(vector, runner, _sizes(vector), _SHORT_LOOP_NS)
    if result.status in _MISSED:
        return PASSED
    return failed(f"an endless loop ended as {result.status.name}: {result.message}")


def _attempt(run: Callable[[], CaseVerdict]) -> CaseVerdict:
    try:
        return run()
    except Unsupported:
        raise
    except NnburstError as error:
        return failed(f"{error.status.name}: {error}")


def _judge(vector: Vector, result: RunResult, *, exact: bool) -> CaseVerdict:
    if result.status is not ErrorStatus.NONE:
        return failed(f"{result.status.name}: {result.message}")
    if len(result.shapes) not in (0, len(vector.outputs)):
        return failed(f"{len(result.shapes)} shapes for {len(vector.outputs)} outputs")
    half = vector.relaxed or any(
        o.kind is OperandType.TENSOR_FLOAT16 for g in vector.graphs for o in g.operands
    )
    for number, operand in enumerate(vector.outputs):
        if operand.is_ignored:
            continue
        wanted = operand.dimensions
        shape = result.shapes[number] if result.shapes else None
        if shape is not None and (shape.dimensions != wanted or not shape.is_sufficient):
            return failed(f"output {number}: {shape}, expected {list(wanted)}")
        size = math.prod(wanted) * DTYPES[operand.kind].itemsize
        actual = np.frombuffer(result.outputs[number][:size], DTYPES[operand.kind])
        reason = _difference(vector, operand, actual.reshape(wanted), half=half, exact=exact)
        if reason is not None:
            return failed(f"output {number} ({operand.type}): {reason}")
    return PASSED


def _difference(
    vector: Vector, operand: VectorOperand, actual: Array, *, half: bool, exact: bool
) -> str | None:
    if vector.multinomial_tolerance is not None:
        logits = vector.array_of(vector.inputs[0])
        assert logits is not None
        return frequency_mismatch(logits, actual, vector.multinomial_tolerance)
    data = vector.bytes_of(operand) or b""
    expected = np.frombuffer(data, DTYPES[operand.kind]).reshape(actual.shape)
    limits = limits_for(operand.kind, vector.tolerance, half=half, exact=exact)
    found = first_mismatch(expected, actual, limits)
    return None if found is None else str(found)


# -- Campaigns: many vectors over several processes ------------------------------------------------


#: Settings of numpy's BLAS, which would start a thread per core in each process.
_BLAS: Final = ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS")


@dataclass(frozen=True, slots=True)
class Selection:
    """The tests of a campaign, and the way to run them.

    Attributes:
        executor: name of the executor.
        via: the way to reach it, a key of RUNNERS.
        suites: names of the suites.
        filter: regular expression searched in `folder/spec/name`; empty for all.
        operation: only tests with this operation; empty for all.
        exact: whether results that are not floating point must be equal.
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
class CaseResult:
    """The result of one test of one suite.

    Attributes:
        name: name of the test.
        suite: the suite in which it ran.
        outcome: "passed", "failed" or "skipped".
        reason: the reason, unless it passed.
        operations: types of the operations in it.
        type: operand type of its first output.
        dump: file that reproduces a failure alone.
        driver_us: the driver's own duration of the last execution; None if it was not measured.
        total_us: the duration of the same execution for its caller.
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


def run_files(files: Sequence[Path], selection: Selection, jobs: int) -> Iterator[list[CaseResult]]:
    """Run the selected tests of each file; yields one list of results per file, in any order.

    Raises:
        InvalidArgument: the executor or the runner does not exist.
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
        try:
            for done in as_completed([pool.submit(_run_in_worker, path) for path in files]):
                yield done.result()
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)
            raise


def run_file(path: Path, selection: Selection, runner: Runner) -> list[CaseResult]:
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
    Finalize(None, runner.close, exitpriority=0)  # a pool's worker has no other moment to close it


def _run_in_worker(path: Path) -> list[CaseResult]:
    assert _worker is not None
    return run_file(path, *_worker)


def _run_one(vector: Vector, suite: str, selection: Selection, runner: Runner) -> CaseResult:
    observed = Observed(runner)
    try:
        verdict = run_suite(vector, suite, observed, exact=selection.exact)
    except Exception as error:
        verdict = failed(f"crashed with {type(error).__name__}: {error}")
    kind = vector.outputs[0].type if vector.outputs else ""
    dump = _dump(vector, suite, verdict, selection.dump)
    last = observed.last
    timed = last is not None and last.timing.measured
    return CaseResult(
        vector.name,
        suite,
        *verdict,
        operations(vector),
        kind,
        dump,
        driver_us=last.timing.time_in_driver if last is not None and timed else None,
        total_us=last.total_ns / 1000 if last is not None and timed else None,
    )


def _dump(vector: Vector, suite: str, verdict: CaseVerdict, folder: Path | None) -> str:
    if verdict.outcome != "failed" or folder is None:
        return ""
    path = folder / f"{vector.name}.{suite}.json.gz"
    write(path, msgspec.structs.replace(vector, suites=(suite,)))
    return str(path)
