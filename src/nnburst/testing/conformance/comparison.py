"""Whether a result is close enough to the expected one, and where it first is not.

An element passes when |actual - expected| <= atol + rtol * |expected|, computed in double; equal
infinities and two NaNs are equal. NNAPI: TestHarness.cpp.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt

from nnburst.hal.enums import OperandType
from nnburst.testing.conformance.vectors import Tolerance

Array = npt.NDArray[Any]

_T = OperandType
_FIELDS: Final = {
    _T.INT32: "int32",
    _T.UINT32: "int32",
    _T.TENSOR_INT32: "int32",
    _T.BOOL: "bool8",
    _T.TENSOR_BOOL8: "bool8",
    _T.TENSOR_QUANT16_ASYMM: "quant16",
    _T.TENSOR_QUANT16_SYMM: "quant16",
}
_FLOAT32: Final = frozenset({_T.FLOAT32, _T.TENSOR_FLOAT32})
_FLOAT16: Final = frozenset({_T.FLOAT16, _T.TENSOR_FLOAT16})


class Limits(NamedTuple):
    """Largest difference of one element: atol + rtol * |expected|."""

    atol: float
    rtol: float


@dataclass(frozen=True, slots=True)
class Mismatch:
    """The first element that is too far off.

    Attributes:
        index: its position.
        expected: what it should be.
        actual: what it is.
        limits: what it was compared with.
        count: how many elements are too far off.
        total: of how many.
    """

    index: tuple[int, ...]
    expected: float
    actual: float
    limits: Limits
    count: int
    total: int

    def __str__(self) -> str:
        return (
            f"at {list(self.index)} expected {self.expected!r}, actual {self.actual!r}, tolerance"
            f" {self.limits.atol:g} + {self.limits.rtol:g} * |expected|"
            f" ({self.count} of {self.total} elements differ)"
        )


def limits_for(
    kind: OperandType, tolerance: Tolerance, *, half: bool = False, exact: bool = False
) -> Limits:
    """The limits for results of one type.

    Args:
        kind: type of the output.
        tolerance: the test's.
        half: the model is relaxed or has float16 operands, so float32 results may be that rough.
        exact: ask for equality wherever results are not floating point.
    """
    if kind in _FLOAT16 or (half and kind in _FLOAT32):
        return Limits(*tolerance.float16)
    if kind in _FLOAT32:
        return Limits(*tolerance.float32)
    return Limits(0 if exact else getattr(tolerance, _FIELDS.get(kind, "quant8")), 0)


def first_mismatch(expected: Array, actual: Array, limits: Limits) -> Mismatch | None:
    """The first element, in row-major order, of two arrays of one shape that is too far off."""
    e, a = expected.astype(np.float64), actual.astype(np.float64)
    with np.errstate(invalid="ignore"):
        near = np.abs(a - e) <= limits.atol + limits.rtol * np.abs(e)
    wrong = np.flatnonzero(~(near | (a == e) | (np.isnan(a) & np.isnan(e))))
    if not wrong.size:
        return None
    index = tuple(int(i) for i in np.unravel_index(wrong[0], expected.shape))
    return Mismatch(
        index, expected[index].item(), actual[index].item(), limits, wrong.size, expected.size
    )


def frequency_mismatch(logits: Array, samples: Array, tolerance: float) -> str | None:
    """Why samples of RANDOM_MULTINOMIAL do not follow their distribution; None if they do.

    Args:
        logits: unnormalised log-probabilities, [batch, classes].
        samples: classes drawn, [batch, samples].
        tolerance: largest difference between a class's share and its probability.
    """
    weights = np.exp(logits.astype(np.float64) - logits.max(axis=1, keepdims=True))
    probabilities = weights / weights.sum(axis=1, keepdims=True)
    classes = logits.shape[1]
    for batch, (drawn, wanted) in enumerate(zip(samples, probabilities, strict=True)):
        if drawn.min(initial=0) < 0 or drawn.max(initial=0) >= classes:
            return f"batch {batch} has a class outside 0..{classes - 1}"
        share = np.bincount(drawn, minlength=classes) / drawn.size
        worst = int(np.argmax(np.abs(share - wanted)))
        if abs(share[worst] - wanted[worst]) > tolerance:
            return (
                f"batch {batch}, class {worst}: share {share[worst]:.4f},"
                f" expected {wanted[worst]:.4f}, tolerance {tolerance:g}"
            )
    return None
