"""Computes in integers as quantised kernels do, exact to the last bit.

Every function takes integers of any width (arrays or Python numbers, each holding a 32-bit value,
or a 16-bit value if `bits=16`) and returns int64 arrays that hold such values again: a sum with
a zero point cannot wrap before it is clamped. Functions are pure and thread-safe, and broadcast
like numpy.

"F<k>" is a fixed-point number with k integer bits and 31 - k fractional ones (15 - k for 16 bits).
Conversions between stored integers and real numbers are in `nnburst.executor.reference.quantized`.

NNAPI: OperationsExecutionUtils.cpp, QuantUtils.cpp and the fixed-point maths of gemmlowp that they
rely on.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, Final, Literal

import numpy as np
import numpy.typing as npt

from nnburst.executor.graph.declarations import quantize_multiplier
from nnburst.executor.graph.memory import Workspace
from nnburst.executor.graph.operation import OperationFailed, Run
from nnburst.executor.graph.tensor import Array, TensorType
from nnburst.executor.reference.quantized import (
    activation_range,
    all_stored_values,
    dequantize,
    float_activation_range,
    quantize,
    requantize,
    round_half_away,
)

__all__ = [
    "activation_range",
    "all_stored_values",
    "dequantize",
    "exp_on_negative",
    "float_activation_range",
    "input_radius",
    "inv_sqrt_quantized_multiplier",
    "logistic",
    "multiply_by_quantized_multiplier",
    "one_over_one_plus",
    "quantize",
    "quantize_multiplier",
    "quantize_multiplier_greater_than_one",
    "quantize_multiplier_smaller_than_one",
    "quantize_multipliers",
    "requantize",
    "round_half_away",
    "rounding_divide_by_pot",
    "saturating_multiply_by_pot",
    "srdhm",
    "srdhm16",
    "tanh",
    "wrap_int32",
]

Int64 = npt.NDArray[np.int64]
Integers = npt.NDArray[Any] | int
Bits = Literal[16, 32]
INT32_MAX: Final = 2**31 - 1


# -- Products and shifts ---------------------------------------------------------------------------


def srdhm(a: Integers, b: Integers) -> Int64:
    """Saturating rounding doubling high multiplication: a * b / 2**31, ties towards +inf."""
    return np.asarray(np.minimum((_int64(a) * _int64(b) + (1 << 30)) >> 31, INT32_MAX))


def srdhm16(a: Integers, b: Integers) -> Int64:
    """`srdhm` of 16-bit numbers: a * b / 2**15, ties towards +inf."""
    return np.asarray(np.minimum((_int64(a) * _int64(b) + (1 << 14)) >> 15, 32767))


def rounding_divide_by_pot(x: Integers, n: Integers) -> Int64:
    """Quotient x / 2**n, ties away from zero; n from 0 to 31, per element if it is an array."""
    values, shift = _int64(x), _int64(n)
    half = (1 << shift) >> 1
    # A tie of a negative number goes down: one less than half makes it fall below the boundary.
    return np.asarray((values + half + ((values >> 63) & -(shift > 0).astype(np.int64))) >> shift)


def saturating_multiply_by_pot(x: Integers, e: int, bits: Bits = 32) -> Int64:
    """Product x * 2**e: saturated to `bits` for a positive exponent, rounded for a negative one."""
    if e <= 0:
        return rounding_divide_by_pot(x, -e)
    limit = 1 << (bits - 1)
    # A shift by `bits` saturates everything but 0; a longer one would leave 64 bits.
    return np.asarray(np.clip(_int64(x) << min(e, bits), -limit, limit - 1))


def quantize_multipliers(reals: npt.ArrayLike) -> tuple[Int64, Int64]:
    """`quantize_multiplier` of each number of a one-dimensional list, as two arrays."""
    pairs = [quantize_multiplier(float(real)) for real in np.asarray(reals, np.float64)]
    table = np.array(pairs, np.int64).reshape(-1, 2)
    return table[:, 0].copy(), table[:, 1].copy()


def quantize_multiplier_smaller_than_one(real: float) -> tuple[int, int]:
    """`quantize_multiplier` for 0 < real < 1; the shift is ≤ 0.

    Raises:
        OperationFailed: `real` is out of this range, or so close to 1 that it rounds to 1.
    """
    multiplier, shift = quantize_multiplier(real)
    if not 0 < real < 1 or shift > 0:
        raise OperationFailed(f"scales give the multiplier {real}, which must lie between 0 and 1")
    return multiplier, shift


def quantize_multiplier_greater_than_one(real: float) -> tuple[int, int]:
    """`quantize_multiplier` for real > 1; the shift is ≥ 0.

    Raises:
        OperationFailed: `real` is not above 1.
    """
    multiplier, shift = quantize_multiplier(real)
    if not real > 1:
        raise OperationFailed(f"scales give the multiplier {real}, which must be above 1")
    return multiplier, shift


def multiply_by_quantized_multiplier(x: Integers, m: Integers, shift: Integers) -> Int64:
    """Product x * m * 2**(shift - 31), rounded twice: after the product and after the right shift.

    A left shift (shift > 0) comes first and wraps at 32 bits. `m` and `shift` may be arrays (one
    per channel, say) that broadcast against `x`; m is above -2**31.
    """
    shifts = _int64(shift)
    product = _int64(x)
    if np.any(shifts > 0):
        product = wrap_int32(product << np.maximum(shifts, 0))
    product = product * _int64(m)
    product += 1 << 30
    product >>= 31
    if np.any(shifts < 0):
        product = rounding_divide_by_pot(product, np.maximum(-shifts, 0))
    return np.asarray(product)


def wrap_int32(x: Integers) -> Int64:
    """The lowest 32 bits of x as a signed number."""
    return _int64(x).astype(np.int32).astype(np.int64)


# -- Functions of fixed-point numbers --------------------------------------------------------------


def exp_on_negative(a: Integers, integer_bits: int, bits: Bits = 32) -> Int64:
    """exp(a) in F0 of a ≤ 0 in F<integer_bits>."""
    values = _int64(a)
    fractional_bits = bits - 1 - integer_bits
    quarter = 1 << (fractional_bits - 2)
    in_quarter = (values & (quarter - 1)) - quarter
    result = _exp_on_last_quarter(saturating_multiply_by_pot(in_quarter, integer_bits, bits), bits)
    remainder = in_quarter - values
    for exponent, factor in _EXP_OF_MINUS_POT.items():
        if integer_bits > exponent:
            bit = 1 << (fractional_bits + exponent)
            scaled = _multiply(result, _constant(factor, bits), bits)
            result = np.where(remainder & bit, scaled, result)
    if integer_bits > 5:
        result = np.where(values < -(1 << (fractional_bits + 5)), 0, result)
    return np.where(values == 0, _one(bits), result)


def logistic(a: Integers, integer_bits: int, bits: Bits = 32) -> Int64:
    """1 / (1 + exp(-a)) in F0 of a in F<integer_bits>."""
    values = _int64(a)
    positive = one_over_one_plus(exp_on_negative(-np.abs(values), integer_bits, bits), bits)
    result = np.where(values > 0, positive, _one(bits) - positive)
    return np.where(values == 0, 1 << (bits - 2), result)


def tanh(a: Integers, integer_bits: int, bits: Bits = 32) -> Int64:
    """Hyperbolic tangent in F0 of a in F<integer_bits>."""
    values = _int64(a)
    # The same bits read with one integer bit more are twice the number: exp(-2|a|).
    doubled = exp_on_negative(-np.abs(values), integer_bits + 1, bits)
    return np.sign(values) * _one_minus_over_one_plus(doubled, bits)


def inv_sqrt_quantized_multiplier(n: Integers) -> tuple[Int64, Int64]:
    """The pairs (m, shift) with 1 / sqrt(n) ≈ m * 2**(shift - 31), for 32-bit integers n ≥ 0.

    n ≤ 1 gives (2**31 - 1, 0), so that a division by 0 cannot happen.
    """
    values = np.maximum(_int64(n), 2)
    right_shift = np.full(values.shape, 11, np.int64)
    while np.any(large := values >= 1 << 29):
        values = np.where(large, values >> 2, values)
        right_shift = right_shift + large
    leading_zeros = 32 - np.frexp(values.astype(np.float64))[1].astype(np.int64)
    pairs = (leading_zeros - 1) // 2 - 1
    right_shift = right_shift - pairs
    root = srdhm(_inverse_root(values << (2 * pairs)), 1518500250)  # sqrt(1/2)
    root = np.where(right_shift < 0, root << np.maximum(-right_shift, 0), root)
    small = _int64(n) <= 1
    return np.where(small, INT32_MAX, root), np.where(small, 0, -np.maximum(right_shift, 0))


def input_radius(integer_bits: int, left_shift: int) -> int:
    """Largest integer that fits F<integer_bits> after `left_shift` (CalculateInputRadius)."""
    largest = math.ldexp(float((1 << integer_bits) - 1), 31 - integer_bits)
    return math.floor(math.ldexp(largest, -left_shift))


#: exp(-2**e) in F0, by e.
_EXP_OF_MINUS_POT: Final = {
    -2: 1672461947,
    -1: 1302514674,
    0: 790015084,
    1: 290630308,
    2: 39332535,
    3: 720401,
    4: 242,
}


def _constant(value: int, bits: Bits) -> int:
    return value if bits == 32 else min((value + (1 << 15)) >> 16, 32767)


def _one(bits: Bits) -> int:
    return (1 << (bits - 1)) - 1


def _multiply(a: Integers, b: Integers, bits: Bits) -> Int64:
    return srdhm(a, b) if bits == 32 else srdhm16(a, b)


def _exp_on_last_quarter(a: Int64, bits: Bits) -> Int64:
    """exp(a) of -1/4 ≤ a < 0 in F0: the Taylor polynomial of degree 4 around -1/8."""
    x = a + (1 << (bits - 4))
    x2 = _multiply(x, x, bits)
    x3 = _multiply(x2, x, bits)
    x4 = _multiply(x2, x2, bits)
    third = _constant(715827883, bits)
    tail = _multiply(rounding_divide_by_pot(x4, 2) + x3, third, bits) + x2
    centre = _constant(1895147668, bits)  # exp(-1/8)
    result = centre + _multiply(centre, x + rounding_divide_by_pot(tail, 1), bits)
    return np.asarray(np.minimum(result, _one(bits)))


def _newton_reciprocal(a: Int64, bits: Bits) -> Int64:
    """2 / (1 + a) in F2 of 0 ≤ a ≤ 1 in F0."""
    half = (a + _one(bits) + 1) >> 1
    one = 1 << (bits - 3)
    # The linear guess 48/17 - 32/17 * half is off by 1/17 at most; each step squares the error.
    x = _constant(1515870810, bits) + _multiply(half, _constant(-1010580540, bits), bits)
    for _ in range(3):
        step = _multiply(x, one - _multiply(half, x, bits), bits)
        x = x + saturating_multiply_by_pot(step, 2, bits)
    return x


def one_over_one_plus(a: Int64, bits: Bits = 32) -> Int64:
    """1 / (1 + a) in F0 of 0 ≤ a ≤ 1 in F0."""
    return saturating_multiply_by_pot(_newton_reciprocal(a, bits), 1, bits)


def _one_minus_over_one_plus(a: Int64, bits: Bits) -> Int64:
    return saturating_multiply_by_pot(_newton_reciprocal(a, bits) - (1 << (bits - 3)), 2, bits)


def _inverse_root(n: Int64) -> Int64:
    """1 / sqrt(n) in F3 by Newton's method, of n in F2 between 1/16 and 1/4 (2**27 to 2**29)."""
    half = rounding_divide_by_pot(n >> 1, 1)
    x: Int64 = np.full(n.shape, 1 << 28, np.int64)
    three_halves = (1 << 28) + (1 << 27)
    for _ in range(5):
        cube = saturating_multiply_by_pot(srdhm(srdhm(x, x), x), 6)
        x = saturating_multiply_by_pot(srdhm(three_halves, x) - srdhm(half, cube), 3)
    return x


def _int64(x: Integers) -> Int64:
    return np.asarray(x, np.int64)


# -- Requantisation: from integer sums of products to stored 8-bit results -------------------------
# result = clamp(MBQM(sum + offset, m, s) + zero_point, low, high)
#
# MBQM rounds twice: `v = floor(x·m/2**31 + 1/2)`, then v / 2**n with ties away from zero (n = -s).
# Both steps collapse into one floor, because floor(floor(z) / N) = floor(z / N):
#
#     v ≥ 0:  floor(x·d + 2**-(n+1) + 1/2)        with d = m·2**-(31+n)
#     v < 0:  floor(x·d - 2**-(n+1) + 1/2)        (a tie goes down instead of up)
#
# float64 holds all of this exactly as long as |x| < 2**22 (x·m fits 53 bits) and n ≤ 12 (a result
# below 512 with 31+n fractional bits fits, too). If d ≥ 2**-13, a larger |x| gives |x·d| ≥ 512,
# which is clamped whatever its last bits are. Other multipliers take the plain integer way.
#
# NNAPI: OperationsExecutionUtils.cpp, gemmlowp's MultiplyByQuantizedMultiplier.


Float64 = npt.NDArray[np.float64]

_SMALLEST_EXACT: Final = 2.0**-13


@dataclass(frozen=True, slots=True)
class Requantization:
    """Turns sums of products into stored values. Immutable.

    Attributes:
        multiplier: integer multipliers, one or one per column.
        shift: their exponents.
        zero_point: zero point of the result.
        low: smallest stored result.
        high: largest stored result.
    """

    multiplier: npt.NDArray[np.int64]
    shift: npt.NDArray[np.int64]
    zero_point: int
    low: int
    high: int

    @classmethod
    def of(cls, products: npt.ArrayLike, output: TensorType, activation: int = 0) -> Requantization:
        """The requantisation of sums whose unit is `products` to the type `output`.

        Args:
            products: input scale times filter scale, formed in float32: one or one per column.
            output: quantised type of the result.
            activation: fused activation (0 to 3).

        Raises:
            OperationFailed: the activation is unknown or the scales give no multiplier.
        """
        with np.errstate(divide="ignore", over="ignore", invalid="ignore"):
            ratios = np.atleast_1d(np.asarray(products, np.float64)) / np.float64(output.scale)
        low, high = activation_range(activation, output.type, output.scale, output.zero_point)
        multiplier, shift = quantize_multipliers(ratios)
        return cls(multiplier, shift, output.zero_point, low, high)

    @property
    def factor(self) -> Float64:
        """The real multipliers, exact."""
        return np.ldexp(self.multiplier.astype(np.float64), (self.shift - 31).astype(np.int32))

    @property
    def is_exact_in_float64(self) -> bool:
        """Whether float64 gives every bit; the comment above this class has the proof."""
        small = (self.factor >= _SMALLEST_EXACT) | (self.multiplier == 0)
        return bool(np.all(small & (self.shift <= 0)))

    def tiled(self, times: int) -> Requantization:
        """The requantisation for rows that repeat all columns `times` times; one multiplier stays one."""
        if self.multiplier.size == 1:
            return self
        return Requantization(
            np.tile(self.multiplier, times),
            np.tile(self.shift, times),
            self.zero_point,
            self.low,
            self.high,
        )

    def bind(self, sums: Array, offset: Array, out: Array, workspace: Workspace) -> Run:
        """A run that requantises `sums` into `out`.

        Args:
            sums: [rows, columns], float32 or float64, integers below 2**53; left as they are.
            offset: float64 [columns], integers; added to each row.
            out: as many elements in the same order, uint8 or int8, in any shape and memory order.
            workspace: gives scratch memory.
        """
        if self.is_exact_in_float64:
            return self._bind_float64(sums, offset, out, workspace)
        return self._bind_integer(sums, offset, out)

    def _bind_float64(self, sums: Array, offset: Array, out: Array, workspace: Workspace) -> Run:
        real: Float64 = workspace.array("real", sums.shape, np.float64)
        shaped = real.reshape(out.shape)
        factor = _scalar_or_row(self.factor)
        add_half = self._bind_half(real, workspace)
        low, high = float(self.low), float(self.high)
        signed = self.low < 0

        def run() -> None:
            np.add(sums, offset, out=real)
            np.multiply(real, factor, out=real)
            add_half()
            np.clip(real, low, high, out=real)
            if signed:  # the cast truncates, which is the floor of what is not negative
                np.floor(real, out=real)
            np.copyto(out, shaped, casting="unsafe")

        return run

    def _bind_half(self, real: Float64, workspace: Workspace) -> Run:
        """Add the half that turns both roundings into one floor, and the zero point."""
        ulp = np.ldexp(1.0, (self.shift - 1).astype(np.int32))
        twice = self.shift < 0
        if self.low >= self.zero_point or not twice.any():
            # Negative products end as the zero point or below it: their ties do not matter.
            half = _scalar_or_row(np.where(twice, ulp + 0.5, 0.5) + self.zero_point)
            return lambda: np.add(real, half, out=real)
        first = _scalar_or_row(ulp)
        nudge = _scalar_or_row(np.where(twice, ulp, 0.0))
        second = _scalar_or_row(np.where(twice, 0.5 - ulp, 0.0) + self.zero_point)
        signed = workspace.array("signed", real.shape, np.float64)

        def add_half_away() -> None:
            np.add(real, first, out=real)
            np.copysign(nudge, real, out=signed)
            np.add(real, second, out=real)
            np.add(real, signed, out=real)

        return add_half_away

    def _bind_integer(self, sums: Array, offset: Array, out: Array) -> Run:
        def run() -> None:
            exact = np.add(sums, offset, dtype=np.float64).astype(np.int64)
            stored = multiply_by_quantized_multiplier(exact, self.multiplier, self.shift)
            stored += self.zero_point
            np.clip(stored, self.low, self.high, out=stored)
            np.copyto(out, stored.reshape(out.shape), casting="unsafe")

        return run


def _scalar_or_row(values: Float64) -> Any:  # noqa: ANN401 - a scalar makes numpy's loops one-dimensional
    return float(values[0]) if values.size == 1 else values
