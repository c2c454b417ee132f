"""The ways in which a vector is run, and what must come out.

run                    build, prepare, execute, compare
dynamic_output_shape   the same with output extents unknown; also with a first buffer one byte short
signed_coupling        the same with TENSOR_QUANT8_ASYMM turned into its signed twin
device_memory          the same with driver-managed buffers
must_fail              the model or the request is invalid: some step must report an error
timeout                an endless WHILE must end by the loop time limit
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, Final, NamedTuple

import msgspec
import numpy as np
import numpy.typing as npt

from nnburst.hal.enums import ErrorStatus, OperandType
from nnburst.hal.errors import NnburstError
from nnburst.hal.limits import DEFAULT_LOOP_TIMEOUT_NS
from nnburst.hal.operand_types import DTYPES
from nnburst.testing.conformance.comparison import first_mismatch, frequency_mismatch, limits_for
from nnburst.testing.conformance.run_result import RunResult, Unsupported
from nnburst.testing.conformance.runners import Runner
from nnburst.testing.conformance.vectors import Vector, VectorOperand, build, map_operands

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


class Verdict(NamedTuple):
    """How a test of a suite ended: `passed`, `failed` or `skipped`, and why."""

    outcome: str
    reason: str = ""


PASSED: Final = Verdict("passed")


def failed(reason: str) -> Verdict:
    """A verdict against the executor."""
    return Verdict("failed", reason)


def run_suite(vector: Vector, suite: str, runner: Runner, *, exact: bool = False) -> Verdict:
    """Run one vector one way.

    Args:
        vector: a test that belongs to `suite`.
        suite: one of SUITES.
        runner: how to reach the executor.
        exact: allow no difference if results are not floating point.
    """
    run: Callable[[], Verdict] = {
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
        return Verdict("skipped", str(error))


def signed(vector: Vector) -> Vector:
    """The twin in which every TENSOR_QUANT8_ASYMM operand is TENSOR_QUANT8_ASYMM_SIGNED."""
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
    """The vector with every SUBGRAPH_OUTPUT extent unknown."""

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


def _compared(vector: Vector, runner: Runner, *, exact: bool) -> Verdict:
    return _attempt(lambda: _judge(vector, _execute(vector, runner, _sizes(vector)), exact=exact))


def _in_buffers(vector: Vector, runner: Runner, *, exact: bool) -> Verdict:
    def attempt() -> Verdict:
        built = build(vector)
        prepared = runner.prepare(built.model, built.pools)
        try:
            result = prepared.run_in_buffers([vector.array_of(o) for o in vector.inputs])
        finally:
            prepared.close()
        return _judge(vector, result, exact=exact)

    return _attempt(attempt)


def _dynamic(vector: Vector, runner: Runner, *, exact: bool) -> Verdict:
    changed = with_unknown_outputs(vector)

    def attempt() -> Verdict:
        sizes = _sizes(vector)
        verdict = _judge(vector, _execute(changed, runner, sizes), exact=exact)
        if verdict is not PASSED or sizes[0] == 1:
            return verdict
        result = _execute(changed, runner, [sizes[0] - 1, *sizes[1:]])
        return _judge_insufficient(vector, result)

    return _attempt(attempt)


def _judge_insufficient(vector: Vector, result: RunResult) -> Verdict:
    if result.status is not ErrorStatus.OUTPUT_INSUFFICIENT_SIZE:
        return failed(f"a buffer one byte short ends as {result.status.name}: {result.message}")
    wanted = [(i != 0, _expected_dimensions(o)) for i, o in enumerate(vector.outputs)]
    found = [(s.is_sufficient, s.dimensions) for s in result.shapes]
    if len(found) != len(wanted):
        return failed(f"a buffer one byte short reports {len(found)} of {len(wanted)} shapes")
    for (sufficient, dimensions), shape, operand in zip(wanted, found, vector.outputs, strict=True):
        if sufficient != shape[0] or (shape[1] != dimensions and not operand.is_ignored):
            return failed(f"a buffer one byte short reports {shape}, expected {dimensions}")
    return PASSED


def _must_fail(vector: Vector, runner: Runner) -> Verdict:
    try:
        result = _execute(vector, runner, _sizes(vector))
    except Unsupported:
        raise
    except NnburstError:
        return PASSED
    if result.status is ErrorStatus.NONE:
        return failed("neither preparing nor executing reported an error")
    return PASSED


def _timeout(vector: Vector, runner: Runner) -> Verdict:
    result = _execute(vector, runner, _sizes(vector), _SHORT_LOOP_NS)
    if result.status in _MISSED:
        return PASSED
    return failed(f"an endless loop ended as {result.status.name}: {result.message}")


def _attempt(run: Callable[[], Verdict]) -> Verdict:
    try:
        return run()
    except Unsupported:
        raise
    except NnburstError as error:
        return failed(f"{error.status.name}: {error}")


def _judge(vector: Vector, result: RunResult, *, exact: bool) -> Verdict:
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
        wanted = _expected_dimensions(operand)
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


def _expected_dimensions(operand: VectorOperand) -> tuple[int, ...]:
    return operand.dimensions
