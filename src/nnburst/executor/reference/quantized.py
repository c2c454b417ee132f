"""Converts between stored integers and real numbers, and computes 8-bit kernels by table.

Pure and thread-safe.

NNAPI: CpuOperationUtils.h, Quantize.cpp, OperationsExecutionUtils.cpp.
"""

from __future__ import annotations

from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt

from nnburst.executor.graph.operation import Node, OperationFailed, Run
from nnburst.executor.graph.tensor import Array, Tensor, TensorType
from nnburst.hal.enums import OperandType
from nnburst.hal.model import DTYPES, QUANTIZED_RANGES

FLOAT32_MAX: Final = float(np.finfo(np.float32).max)


def round_half_away(x: npt.ArrayLike) -> Array:
    """Nearest integer, ties away from zero (C's `round`); NaN and infinities stay what they are.

    Args:
        x: floats; the result has their dtype (float64 for Python numbers).
    """
    values = np.asarray(x)
    whole = np.trunc(values)
    # x + 0.5 would itself round: 0.49999997 in float32 must stay below 1.
    with np.errstate(invalid="ignore"):  # inf - inf
        away = (np.abs(values - whole) >= 0.5).astype(values.dtype)
    return np.asarray(whole + np.copysign(away, values))


def float_activation_range(code: int) -> tuple[float, float]:
    """Bounds that a fused activation clamps float32 results to; NONE keeps them finite.

    Raises:
        OperationFailed: `code` is not NONE (0), RELU (1), RELU1 (2) or RELU6 (3).
    """
    try:
        return _ACTIVATION_RANGES[code]
    except KeyError:
        raise OperationFailed(f"operand 'activation' is {code}, expected 0 to 3") from None


_ACTIVATION_RANGES: Final = {
    0: (-FLOAT32_MAX, FLOAT32_MAX),
    1: (0.0, FLOAT32_MAX),
    2: (-1.0, 1.0),
    3: (0.0, 6.0),
}


def activation_range(
    code: int,
    type: OperandType,  # noqa: A002 - NNAPI's word
    scale: float,
    zero_point: int,
) -> tuple[int, int]:
    """Stored values that a fused activation clamps quantised results to.

    Args:
        code: NONE (0), RELU (1), RELU1 (2) or RELU6 (3).
        type: a quantised tensor type; its range bounds the result.
        scale: the output's step.
        zero_point: the output's zero point.

    Raises:
        OperationFailed: `code` is not one of these.
    """
    low, high = QUANTIZED_RANGES[type]
    real_low, real_high = float_activation_range(code)
    if real_low > -FLOAT32_MAX:
        low = max(low, _stored(real_low, scale, zero_point))
    if real_high < FLOAT32_MAX:
        high = min(high, _stored(real_high, scale, zero_point))
    return low, high


def _stored(real: float, scale: float, zero_point: int) -> int:
    with np.errstate(all="ignore"):
        quotient = np.float32(real) / np.float32(scale)
    limited = np.clip(quotient, -(2.0**31), 2.0**31)  # a tiny scale overflows float32
    return zero_point + int(round_half_away(limited))


def all_stored_values(type: OperandType) -> Array:  # noqa: A002
    """The 256 values of an 8-bit type in the order of their bytes: the input of a lookup table."""
    return np.arange(256, dtype=np.uint8).view(DTYPES[type])


def quantize(
    x: npt.ArrayLike,
    scale: float,
    zero_point: int,
    type: OperandType,  # noqa: A002
) -> Array:
    """Stored integers of real numbers, in float32, ties away from zero, saturated; NaN to the top.

    Returns:
        An array of the type's dtype.
    """
    low, high = QUANTIZED_RANGES[type]
    with np.errstate(all="ignore"):
        stored = round_half_away(np.asarray(x, np.float32) / np.float32(scale))
        stored += np.float32(zero_point)
        # NNAPI: max(min(x, high), low) of a NaN is `high`; fmin ignores NaN the same way.
        return np.maximum(np.fmin(stored, np.float32(high)), np.float32(low)).astype(DTYPES[type])


def dequantize(q: Array, scale: float, zero_point: int) -> npt.NDArray[np.float32]:
    """Real numbers of stored integers, one float32 product each."""
    return np.float32(scale) * (q.astype(np.int32) - zero_point).astype(np.float32)


def requantize(
    q: Array,
    zero_point: int,
    scale: float,
    new_scale: float,
    new_zero_point: int,
    type: OperandType,  # noqa: A002
) -> Array:
    """The same real numbers stored with another scale and zero point: rounded once, saturated.

    Args:
        q: stored integers.
        zero_point: their zero point.
        scale: their step.
        new_scale: step of the result.
        new_zero_point: zero point of the result.
        type: quantised type of the result.

    Returns:
        An array of the type's dtype. Ties of the stored number (zero point included) go away
        from zero.
    """
    low, high = QUANTIZED_RANGES[type]
    real = dequantize(q, scale, zero_point).astype(np.float64)
    stored = round_half_away(real / float(new_scale) + new_zero_point)
    return np.clip(stored, low, high).astype(DTYPES[type])


# -- 8-bit kernels as tables -----------------------------------------------------------------------
# Every result is computed once, when the kernel is bound, and then only looked up. One byte has 256
# values and two have 65536, so an operation on stored bytes is a table of at most 64 KiB. Bytes are
# widened into private memory before they are used as indexes, and every byte is within the table:
# memory that changes under a kernel cannot lead outside.


class Quantization(NamedTuple):
    """The type, scale and zero point of stored numbers; a cached table depends on nothing else."""

    type: OperandType
    scale: float
    zero_point: int

    @classmethod
    def of(cls, tensor: Tensor | TensorType) -> Quantization:
        """The quantisation of a tensor."""
        return cls(tensor.type, tensor.scale, tensor.zero_point)

    def centred(self) -> npt.NDArray[np.int64]:
        """All 256 stored values minus the zero point, in the order of their bytes."""
        return all_stored_values(self.type).astype(np.int64) - self.zero_point

    def saturate(self, values: Array) -> Array:
        """Integers clamped to the type's range and stored in its dtype."""
        low, high = QUANTIZED_RANGES[self.type]
        stored: Array = np.clip(values, low, high).astype(DTYPES[self.type])
        return stored


def look_up(node: Node, table: Array, source: Array, result: Array) -> Run:
    """Bind `result = table[source]`.

    Args:
        node: gives the scratch memory.
        table: 256 results in the order of the bytes, of `result`'s dtype.
        source: 8-bit integers.
        result: memory of the same shape.
    """
    octets = source.view(np.uint8)
    index = node.scratch(source.shape, np.intp)

    def run() -> None:
        np.copyto(index, octets)
        np.take(table, index, out=result, mode="clip")

    return run


def look_up_pair(node: Node, table: Array, first: Array, second: Array, result: Array) -> Run:
    """Bind `result = table[first, second]` with broadcasting.

    Args:
        node: gives the scratch memory.
        table: 256 by 256 results in the order of the bytes, of `result`'s dtype.
        first: 8-bit integers.
        second: 8-bit integers.
        result: memory of the broadcast shape.
    """
    flat = table.reshape(-1)
    high, low = first.view(np.uint8), second.view(np.uint8)
    index = node.scratch(result.shape, np.intp)

    def run() -> None:
        np.left_shift(high, 8, out=index, dtype=np.intp)
        np.add(index, low, out=index)
        np.take(flat, index, out=result, mode="clip")

    return run
