"""From integer sums of products to stored 8-bit results, right to the last bit.

    result = clamp(MBQM(sum + offset, m, s) + zero_point, low, high)

MBQM rounds twice: `v = floor(x·m/2**31 + 1/2)`, then v / 2**n with ties away from zero (n = -s).
Both steps collapse into one floor, because floor(floor(z) / N) = floor(z / N):

    v ≥ 0:  floor(x·d + 2**-(n+1) + 1/2)        with d = m·2**-(31+n)
    v < 0:  floor(x·d - 2**-(n+1) + 1/2)        (a tie goes down instead of up)

float64 holds all of this exactly as long as |x| < 2**22 (x·m fits 53 bits) and n ≤ 12 (a result
below 512 with 31+n fractional bits fits, too). If d ≥ 2**-13, a larger |x| gives |x·d| ≥ 512,
which is clamped whatever its last bits are. Other multipliers take the plain integer way.

NNAPI: OperationsExecutionUtils.cpp, gemmlowp's MultiplyByQuantizedMultiplier.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from nnburst.executor.graph.operation import Run
from nnburst.executor.graph.tensor import Array, TensorType
from nnburst.executor.graph.workspace import Workspace
from nnburst.executor.reference.arithmetic.fixed_point import (
    activation_range,
    multiply_by_quantized_multiplier,
    quantize_multipliers,
)

Float64 = npt.NDArray[np.float64]

_SMALLEST_EXACT: Final = 2.0**-13


@dataclass(frozen=True, slots=True)
class Requantization:
    """How sums become stored values. Immutable.

    Attributes:
        multiplier: integer multipliers, one or one per column.
        shift: their exponents.
        zero_point: of the result.
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
        """Whether float64 gives every bit; see the module's docstring."""
        small = (self.factor >= _SMALLEST_EXACT) | (self.multiplier == 0)
        return bool(np.all(small & (self.shift <= 0)))

    def tiled(self, times: int) -> Requantization:
        """The same for rows in which all columns come `times` times; one multiplier stays one."""
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
        """Add what makes a floor of the two roundings, and the zero point."""
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
