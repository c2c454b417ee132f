"""How close the results of one operation must be. NNAPI: TestHarness.cpp, TestRandomGraph.cpp.

Operations whose results need no sum or function are held to what conformance vectors are held to;
the others to that times a factor, which is far from what float16 arithmetic would give.
"""

from __future__ import annotations

from typing import Final

import numpy as np

from nnburst.hal.enums import OperandType
from nnburst.hal.operand_types import DTYPES, QUANTIZED_RANGES
from nnburst.testing.conformance.comparison import Limits, first_mismatch, limits_for
from nnburst.testing.conformance.vectors import Tolerance
from nnburst.testing.models.naive.values import Array
from nnburst.testing.models.random_graphs.check import CRITERIA
from nnburst.testing.models.random_graphs.templates import Template

_VECTORS: Final = Tolerance()
#: For sums and transcendental functions, by an operation's criteria.
_FACTORS: Final = {"strict": 1.0, "medium": 1.0, "relaxed": 10.0, "conv": 10.0}


def problem(
    template: Template, kind: OperandType, expected: Array, actual: Array, size: float
) -> str | None:
    """Why a result is too far off; None if it is not.

    Args:
        template: of the operation.
        kind: of the output.
        expected: elements.
        actual: as many.
        size: of the largest finite input: sums of such numbers lose digits that their result has not.
    """
    mismatch = first_mismatch(expected, actual, limits(template, kind, size))
    return None if mismatch is None else str(mismatch)


def limits(template: Template, kind: OperandType, size: float) -> Limits:
    """The largest difference of one element; see `problem`."""
    if kind in QUANTIZED_RANGES:
        return Limits(CRITERIA[template.criteria].quantised.atol, 0)
    if DTYPES[kind].kind != "f":
        return Limits(0 if template.exact else 1, 0)
    found = limits_for(kind, _VECTORS)
    factor = _FACTORS[template.criteria]
    return Limits(found.atol * factor * max(1.0, size if factor > 1 else 1.0), found.rtol * factor)


def largest(arrays: list[Array]) -> float:
    """The largest finite number in floating point arrays."""
    finite = [
        np.abs(a[np.isfinite(a)].astype(np.float64)).max(initial=0.0)
        for a in arrays
        if a.dtype.kind == "f"
    ]
    return float(max(finite, default=0.0))
