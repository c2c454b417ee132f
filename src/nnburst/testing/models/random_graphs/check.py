"""Running a random graph and judging its results. NNAPI: TestRandomGraph.cpp.

Per output: the mean difference, the mean square, and each element. Differences of floating point
results are divided by max(1, |expected|) for the mean and the square.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Final, NamedTuple

import numpy as np

from nnburst.hal.enums import ErrorStatus, OperandType
from nnburst.hal.errors import NnburstError
from nnburst.hal.operand_types import DTYPES, QUANTIZED_RANGES
from nnburst.testing.conformance.run_result import Unsupported
from nnburst.testing.conformance.runners import Runner
from nnburst.testing.conformance.vectors import Tolerance, build
from nnburst.testing.models.naive.values import Array
from nnburst.testing.models.random_graphs.as_vector import as_vector, cut
from nnburst.testing.models.random_graphs.builder import RandomGraph


class Criterion(NamedTuple):
    """Bounds of one element type.

    Attributes:
        bias: of the absolute mean difference.
        mean_square: of the mean squared difference.
        atol: of each element's difference ...
        rtol: ... together with this share of the expected value.
    """

    bias: float
    mean_square: float
    atol: float
    rtol: float


class Criteria(NamedTuple):
    """Bounds for float32, float16 and quantised results."""

    float32: Criterion
    float16: Criterion
    quantised: Criterion


Bounds = tuple[float, float, float]


def _criteria(f32: Bounds, f16: Bounds, quantised: Bounds) -> Criteria:
    return Criteria(
        Criterion(*f32, rtol=f32[2]), Criterion(*f16, rtol=f16[2]), Criterion(*quantised, rtol=0)
    )


#: device:§13, by what an operation does or how big a graph is: bias, mean square, atol = rtol.
CRITERIA: Final = {
    "strict": _criteria((1e-7, 1e-10, 1e-6), (1e-4, 1e-8, 1e-3), (0.1, 0.1, 1)),
    "medium": _criteria((1e-6, 1e-8, 1e-5), (1e-3, 1e-5, 1e-2), (1.2, 1.2, 2)),
    "relaxed": _criteria((3e-5, 1e-6, 1e-3), (5e-3, 1e-3, 1), (1.5, 1.5, 10)),
    "conv": _criteria((4e-4, 1e-5, 2e-2), (5e-2, 1e-2, 1), (1.5, 1.5, 10)),
    "small": _criteria((4e-4, 1e-5, 1e-2), (5e-2, 1e-2, 1), (2, 2, 12)),
    "large": _criteria((1e-2, 1e-4, 1e-1), (1e-1, 5e-2, 1), (2, 2, 12)),
    "wide": _criteria((4e-4, 1e-5, 1e-2), (5e-2, 1e-2, 1), (2, 2, 12)),
    "long": _criteria((1e-2, 1e-4, 1e-1), (1e-1, 5e-2, 1), (2, 2, 12)),
}


def check(graph: RandomGraph, runner: Runner, keep: Sequence[int] | None = None) -> str | None:
    """Run a graph, or a part of it (see `as_vector`), and compare.

    Returns:
        Why it is not as expected; None if it is.

    Raises:
        Unsupported: the executor cannot run some operation.
    """
    kept = range(len(graph.operations)) if keep is None else keep
    criteria = _criteria_for(graph, kept)
    vector = as_vector(graph, keep)
    built = build(vector)
    try:
        prepared = runner.prepare(built.model, built.pools)
        try:
            inputs = [vector.array_of(o) for o in vector.inputs]
            sizes = [max(1, len(vector.buffers[o.data or 0])) for o in vector.outputs]
            result = prepared.run(inputs, sizes)
        finally:
            prepared.close()
    except Unsupported:
        raise
    except NnburstError as error:
        return f"{error.status.name}: {error}"
    if result.status is not ErrorStatus.NONE:
        return f"{result.status.name}: {result.message}"
    exact = [graph.operands[i].exact for i in cut(graph, kept).outputs]
    for number, operand in enumerate(vector.outputs):
        expected = np.frombuffer(vector.buffers[operand.data or 0], DTYPES[operand.kind])
        actual = np.frombuffer(result.outputs[number], DTYPES[operand.kind], expected.size)
        reason = difference(operand.kind, expected, actual, criteria, exact=exact[number])
        if reason is not None:
            return f"{operand.name} ({operand.type} {list(operand.dimensions)}): {reason}"
    return None


def difference(
    kind: OperandType, expected: Array, actual: Array, criteria: Criteria, *, exact: bool
) -> str | None:
    """Why results of one type are too far off; None if they are not.

    Args:
        kind: their operand type.
        expected: elements, one-dimensional.
        actual: as many elements.
        criteria: the bounds.
        exact: nothing inexact leads to them, so integers and booleans must be equal (the original
            allows integers to be off by one, and a tenth of the booleans).
    """
    e, a = expected.astype(np.float64), actual.astype(np.float64)
    if kind in (OperandType.TENSOR_BOOL8, OperandType.BOOL):
        wrong = int((e != a).sum())
        allowed = 0 if exact else math.ceil(0.1 * e.size)
        return None if wrong <= allowed else f"{wrong} of {e.size} booleans differ"
    if kind in (OperandType.TENSOR_INT32, OperandType.INT32):
        return _elements(e, a, Criterion(math.inf, math.inf, 0 if exact else 1, 0))
    if kind in QUANTIZED_RANGES:
        return _statistics(a - e, criteria.quantised) or _elements(e, a, criteria.quantised)
    half = kind in (OperandType.TENSOR_FLOAT16, OperandType.FLOAT16)
    criterion = criteria.float16 if half else criteria.float32
    relative = (a - e) / np.maximum(1, np.abs(e))
    return _elements(e, a, criterion) or _statistics(relative, criterion)


def _elements(expected: Array, actual: Array, criterion: Criterion) -> str | None:
    off = ~(np.abs(actual - expected) <= criterion.atol + criterion.rtol * np.abs(expected))
    if not off.any():
        return None
    at = int(np.argmax(off))
    return (
        f"element {at} is {actual[at]!r}, expected {expected[at]!r}"
        f" ({int(off.sum())} of {off.size} differ)"
    )


def _statistics(differences: Array, criterion: Criterion) -> str | None:
    bias, square = float(np.mean(differences)), float(np.mean(differences**2))
    if abs(bias) > criterion.bias:
        return f"the mean difference is {bias:.3g}, at most {criterion.bias:g} is allowed"
    if square > criterion.mean_square:
        return f"the mean square is {square:.3g}, at most {criterion.mean_square:g} is allowed"
    return None


def _criteria_for(graph: RandomGraph, kept: Sequence[int]) -> Criteria:
    if len(kept) == 1:
        return CRITERIA[graph.operations[kept[0]].criteria]
    return CRITERIA["small" if graph.size == "single" else graph.size]


def tolerance_for(graph: RandomGraph, kept: Sequence[int]) -> Tolerance:
    """What a vector file can express of the criteria: the bounds of single elements."""
    criteria = _criteria_for(graph, kept)
    return Tolerance(
        float32=criteria.float32[2:],
        float16=criteria.float16[2:],
        quant8=int(criteria.quantised.atol),
        quant16=int(criteria.quantised.atol),
    )
