"""Finds differences of results from vectors that exact arithmetic does not excuse.

A quantised result is a real number of steps, rounded. Two kinds of vectors expect another step than the
nearest:

* at a tie, where that number lies half-way between two steps, the expectation went one way or the other, as
  the program happened to round that it was made with; the kernels round as the original's do;
* with weights in steps of their own for each channel, the expectation was made from the weights before they
  were rounded to such steps (2.5 is 6 steps of 0.4, so 37.5 was expected of what gives 38).

That is why a vector's own tolerance is one step. So a result may differ from the vector only if it is a
nearest step itself, and without weights of the second kind only at a tie. Any other difference of an integer
is wrong.

An engine with integer kernels of its own has a third kind: a convolution multiplies its sum and shifts it,
and the original rounds after each of the two. An engine that rounds once, or rounds halves the other way in
between, can be another step beside the same real number; one that rounds twice is up to three quarters of a
step from it.

The real number is what the same graph gives in float32: every quantised operand is what its elements stand
for.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from pathlib import Path
from typing import Any, Final

import numpy as np
import numpy.typing as npt
from msgspec.structs import replace

from nnburst.hal.enums import ErrorStatus, OperandType
from nnburst.hal.model import DTYPES, QUANTIZED_RANGES
from nnburst.testing.conformance.campaign import CaseResult, signed
from nnburst.testing.conformance.comparison import RunResult
from nnburst.testing.conformance.runners import LocalRunner, Runner
from nnburst.testing.conformance.vectors import Vector, VectorGraph, VectorOperand, build, read

Array = npt.NDArray[Any]

#: Steps by which float32 may be beside the real number.
_NEAR: Final = 2.0**-10
_QUANTISED: Final = {*QUANTIZED_RANGES, OperandType.TENSOR_QUANT8_SYMM_PER_CHANNEL}
#: How far from the real number a step is that was rounded once, and one that was rounded twice.
_ONCE: Final = 0.5 + _NEAR
_TWICE: Final = 0.75 + _NEAR
_CONVOLUTIONS: Final = {"CONV_2D", "DEPTHWISE_CONV_2D", "GROUPED_CONV_2D", "TRANSPOSE_CONV_2D"}
#: Operations whose third input is a bias: integers in steps of input scale times filter scale.
_BIASED: Final = {*_CONVOLUTIONS, "FULLY_CONNECTED"}


def unexcused(
    results: Iterable[CaseResult], runner: Runner, *, rounds_its_own_way: bool = False
) -> list[tuple[str, str, str]]:
    """Name, suite and reason of every failure that no rounding excuses.

    Args:
        results: results of vectors that were compared exactly; failures have a dump.
        runner: the runner that produced them.
        rounds_its_own_way: whether differences of the third kind are excused, too.
    """
    return [
        (result.name, result.suite, reason)
        for result in results
        if result.outcome == "failed" and (reason := _reason(result, runner, rounds_its_own_way))
    ]


def _reason(result: CaseResult, runner: Runner, rounds_its_own_way: bool) -> str:
    if not result.reason.endswith("elements differ)"):
        return result.reason  # not a matter of values
    (vector,) = read(Path(result.dump))
    if result.suite == "signed_coupling":
        vector = signed(vector)
    found = wrong_element(vector, runner, rounds_its_own_way=rounds_its_own_way)
    return f"{result.reason}; {found}" if found else ""


def wrong_element(vector: Vector, runner: Runner, *, rounds_its_own_way: bool = False) -> str:
    """Which element of an output differs from what the vector expects without an excuse; empty for none."""
    if vector.referenced or any(o.kind not in _QUANTISED for o in vector.outputs):
        return "results that are not quantised are not rounded"
    weights_were_rounded = any(o.channel_quant is not None for o in vector.main.operands)
    convolves = any(operation.type in _CONVOLUTIONS for operation in vector.main.operations)
    reach = _TWICE if rounds_its_own_way and convolves else _ONCE
    found = _run(vector, runner)
    twin = _run(_float_twin(vector), LocalRunner("reference"))
    for number, operand in enumerate(vector.outputs):
        if operand.is_ignored:
            continue
        expected = np.frombuffer(vector.bytes_of(operand) or b"", DTYPES[operand.kind])
        actual = np.frombuffer(found.outputs[number], DTYPES[operand.kind], expected.size)
        numbers = np.frombuffer(twin.outputs[number], np.float32, expected.size)
        steps = numbers.astype(np.float64) / operand.scale + operand.zero_point
        apart = np.abs(actual.astype(np.int64) - expected)
        is_near = np.abs(steps - actual) <= reach
        both_near = is_near & (np.abs(steps - expected) <= reach)
        excused = (apart == 1) & (is_near if weights_were_rounded else both_near)
        wrong = (apart != 0) & ~excused
        if wrong.any():
            at = int(np.argmax(wrong))
            place = f"output {number}: element {at} is {actual[at]}"
            return f"{place}, expected {expected[at]}, exact {steps[at]}"
    return ""


def _run(vector: Vector, runner: Runner) -> RunResult:
    built = build(vector)
    prepared = runner.prepare(built.model, built.pools)
    try:
        sizes = [math.prod(o.dimensions) * DTYPES[o.kind].itemsize for o in vector.outputs]
        result = prepared.run([vector.array_of(o) for o in vector.inputs], sizes)
    finally:
        prepared.close()
    assert result.status is ErrorStatus.NONE, result.message
    return result


def _float_twin(vector: Vector) -> Vector:
    """The vector with every quantised operand in float32."""
    buffers = list(vector.buffers)
    scales = _bias_scales(vector.main)

    def twin(index: int, operand: VectorOperand) -> VectorOperand:
        if operand.kind not in _QUANTISED and index not in scales:
            return operand
        array, data = vector.array_of(operand), None
        if array is not None:
            steps = array.astype(np.float64) - operand.zero_point
            numbers = steps * (scales[index] if index in scales else _scale(operand))
            data = len(buffers)
            buffers.append(numbers.astype(np.float32).tobytes())
        kind = OperandType.TENSOR_FLOAT32.name
        changes = {"scale": 0.0, "zero_point": 0, "channel_quant": None}
        return replace(operand, type=kind, data=data, **changes)

    operands = tuple(twin(*each) for each in enumerate(vector.main.operands))
    main = replace(vector.main, operands=operands)
    return replace(vector, main=main, buffers=tuple(buffers))


def _bias_scales(graph: VectorGraph) -> dict[int, Array]:
    """Scale of each bias, by the index of its operand."""
    return {
        operation.inputs[2]: graph.operands[operation.inputs[0]].scale
        * _scale(graph.operands[operation.inputs[1]]).reshape(-1)
        for operation in graph.operations
        if operation.type in _BIASED
    }


def _scale(operand: VectorOperand) -> Array:
    """Of each element, to be multiplied with; along the channels if each has its own."""
    channels = operand.channel_quant
    if channels is None:
        return np.array(operand.scale)
    shape = np.ones(len(operand.dimensions), int)
    shape[channels.channel_dim] = len(channels.scales)
    return np.array(channels.scales).reshape(shape)
