"""Compares results with expected ones and shows where they first differ.

An element passes when |actual - expected| <= atol + rtol * |expected|, computed in double; equal infinities
and two NaNs are equal. If an infinity is expected, the largest finite number of its sign passes, too, since
the original's activations limit infinities to it. NNAPI: TestHarness.cpp. DEVIATES: there every number
passes.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt

from nnburst.hal.enums import ErrorStatus, OperandType, OperationType
from nnburst.hal.errors import InvalidArgument
from nnburst.hal.model import Model
from nnburst.hal.types import OutputShape, Timing
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
        index: position of the element.
        expected: its right value.
        actual: its value.
        limits: the allowed differences.
        count: number of elements that are too far off.
        total: number of all elements.
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
    """Find the limits for results of one type.

    Args:
        kind: type of the output.
        tolerance: tolerance of the test.
        half: whether the model is relaxed or has float16 operands, so that float32 results may be as rough.
        exact: whether results that are not floating point must be equal.
    """
    if kind in _FLOAT16 or (half and kind in _FLOAT32):
        return Limits(*tolerance.float16)
    if kind in _FLOAT32:
        return Limits(*tolerance.float32)
    return Limits(0 if exact else getattr(tolerance, _FIELDS.get(kind, "quant8")), 0)


def first_mismatch(expected: Array, actual: Array, limits: Limits) -> Mismatch | None:
    """Find the first element, in row-major order, that is too far off; both arrays have one shape."""
    e, a = expected.astype(np.float64), actual.astype(np.float64)
    with np.errstate(invalid="ignore"):
        near = np.abs(a - e) <= limits.atol + limits.rtol * np.abs(e)
        if not np.isfinite(e).all():  # else every number would be within the limit of an infinity
            largest = np.finfo(actual.dtype).max
            near = np.where(np.isinf(e), (a * np.sign(e) >= largest), near)
    wrong = np.flatnonzero(~(near | (a == e) | (np.isnan(a) & np.isnan(e))))
    if not wrong.size:
        return None
    index = tuple(int(i) for i in np.unravel_index(wrong[0], expected.shape))
    return Mismatch(
        index, expected[index].item(), actual[index].item(), limits, wrong.size, expected.size
    )


def frequency_mismatch(logits: Array, samples: Array, tolerance: float) -> str | None:
    """The reason why samples of RANDOM_MULTINOMIAL do not follow their distribution; None if they do.

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


class Unsupported(InvalidArgument):
    """An executor reports that it does not support an operation, so there is no result to check."""


def require_supported(model: Model, supported: Sequence[bool]) -> None:
    """Refuse a model with unsupported operations (NNAPI VTS skips such tests).

    Raises:
        Unsupported: the message names the operations.
    """
    kinds = {o.type for o, yes in zip(model.main.operations, supported, strict=True) if not yes}
    if kinds:
        known = {kind.value: kind.name for kind in OperationType}
        names = sorted(known.get(kind, f"{kind:#x}") for kind in kinds)
        raise Unsupported(f"the executor does not support {', '.join(names)}")


class RunResult(NamedTuple):
    """The results of one execution.

    Attributes:
        status: status of the execution.
        shapes: reported output shapes; may be empty.
        outputs: the bytes of each output buffer, meaningful with NONE.
        message: reason of a failure, if known.
        timing: the driver's own durations, if a driver ran it.
        total_ns: duration of the execution for its caller.
        changed_inputs: numbers of inputs whose memory the execution has changed.
    """

    status: ErrorStatus
    shapes: tuple[OutputShape, ...]
    outputs: tuple[bytes, ...]
    message: str
    timing: Timing = Timing()
    total_ns: int = 0
    changed_inputs: tuple[int, ...] = ()
