"""The integer arithmetic of quantised kernels by its definitions, one Python integer at a time."""

from __future__ import annotations

import math
from fractions import Fraction

INT32_MIN, INT32_MAX = -(2**31), 2**31 - 1


def c_divide(a: int, b: int) -> int:
    """C's integer division: towards zero."""
    return -(-a // b) if a < 0 else a // b


def c_srdhm(a: int, b: int, bits: int = 32) -> int:
    """Doubling high multiplication, with C's truncating division."""
    if a == b == -(1 << (bits - 1)):
        return (1 << (bits - 1)) - 1
    nudge = 1 << (bits - 2)
    product = a * b
    return c_divide(product + (nudge if product >= 0 else 1 - nudge), 1 << (bits - 1))


def half_away(x: Fraction) -> int:
    """Nearest integer, ties away from zero."""
    whole = math.floor(abs(x) + Fraction(1, 2))
    return -whole if x < 0 else whole


def c_multiplier(real: float) -> tuple[int, int]:
    """Multiplier and shift of a positive ratio, by fractions."""
    fraction, shift = math.frexp(real)
    multiplier = half_away(Fraction(fraction) * 2**31)
    return (multiplier, shift) if multiplier < 2**31 else (multiplier // 2, shift + 1)


def c_mbqm(x: int, m: int, shift: int) -> int:
    """x * m * 2**(shift - 31), rounded twice."""
    shifted = ((x << max(shift, 0)) + 2**31 & 0xFFFFFFFF) - 2**31
    return half_away(Fraction(c_srdhm(shifted, m), 1 << max(-shift, 0)))
