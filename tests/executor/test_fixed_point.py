"""Fixed-point arithmetic against exact integers, fractions and worked examples."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from executor.exact_integers import INT32_MAX, INT32_MIN, c_mbqm, c_srdhm, half_away
from nnburst.executor.graph.operation import OperationFailed
from nnburst.executor.reference import fixed_point as fp

int32s = st.integers(INT32_MIN, INT32_MAX)
int16s = st.integers(-(2**15), 2**15 - 1)
multipliers = st.integers(2**30, INT32_MAX)


# Worked examples.


@pytest.mark.parametrize(("a", "expected"), [(100, 50), (101, 51), (-101, -50), (0, 0)])
def test_srdhm_by_one_half_rounds_ties_towards_plus_infinity(a: int, expected: int) -> None:
    assert fp.srdhm(a, 1 << 30) == expected


def test_srdhm_saturates_only_for_two_smallest_numbers() -> None:
    assert fp.srdhm(INT32_MIN, INT32_MIN) == INT32_MAX
    assert fp.srdhm16(-32768, -32768) == 32767
    assert fp.srdhm(INT32_MIN, INT32_MAX) == -INT32_MAX


@pytest.mark.parametrize(
    ("x", "n", "expected"), [(5, 1, 3), (-5, 1, -3), (-6, 2, -2), (6, 2, 2), (-7, 0, -7)]
)
def test_rounding_division_sends_ties_away_from_zero(x: int, n: int, expected: int) -> None:
    assert fp.rounding_divide_by_pot(x, n) == expected


@pytest.mark.parametrize(
    ("real", "expected"),
    [
        (0.0, (0, 0)),
        (0.5, (1 << 30, 0)),
        (0.25, (1 << 30, -1)),
        (1.0, (1 << 30, 1)),
        (0.1, (1717986918, -3)),
        (float(np.float32(1 / 255)), (1077952640, -7)),
        (3.7, (1986422374, 2)),
        (1 - 2.0**-33, (1 << 30, 1)),
        (2.0**-33, (0, 0)),
        (2.0**-32, (1 << 30, -31)),
    ],
)
def test_multiplier_of_known_ratio(real: float, expected: tuple[int, int]) -> None:
    assert fp.quantize_multiplier(real) == expected


@pytest.mark.parametrize("real", [-0.5, math.inf, math.nan])
def test_multiplier_of_impossible_ratio_fails(real: float) -> None:
    with pytest.raises(OperationFailed, match="not a finite number"):
        fp.quantize_multiplier(real)


@pytest.mark.parametrize("real", [0.0, 1.0, 1 - 2.0**-33, 2.0])
def test_multiplier_below_one_is_required(real: float) -> None:
    with pytest.raises(OperationFailed, match="between 0 and 1"):
        fp.quantize_multiplier_smaller_than_one(real)
    assert fp.quantize_multiplier_smaller_than_one(0.25) == (1 << 30, -1)


def test_multiplier_above_one_is_required() -> None:
    with pytest.raises(OperationFailed, match="above 1"):
        fp.quantize_multiplier_greater_than_one(1.0)
    assert fp.quantize_multiplier_greater_than_one(3.7) == (1986422374, 2)


def test_multiplication_rounds_twice() -> None:
    assert fp.multiply_by_quantized_multiplier(1000, 1717986918, -2) == 200
    assert fp.multiply_by_quantized_multiplier(3, 1 << 30, -1) == 1
    assert fp.multiply_by_quantized_multiplier(1, 1 << 30, -1) == 1  # 0.25 rounded once is 0


def test_multiplication_wraps_left_shift_at_32_bits() -> None:
    assert fp.multiply_by_quantized_multiplier(1 << 30, 1 << 30, 2) == 0
    assert fp.multiply_by_quantized_multiplier(1 << 29, 1 << 30, 2) == -(1 << 30)


def test_inverse_root_of_known_number() -> None:
    m, shift = fp.inv_sqrt_quantized_multiplier(1000)
    assert (int(m), int(shift)) == (271637587, -2)
    for n in (0, 1):
        m, shift = fp.inv_sqrt_quantized_multiplier(n)
        assert (int(m), int(shift)) == (INT32_MAX, 0)


def test_addition_example_of_two_quantised_numbers() -> None:
    a = fp.multiply_by_quantized_multiplier(3 << 20, 1 << 30, 0)
    b = fp.multiply_by_quantized_multiplier(4 << 20, 1 << 30, 0)
    assert fp.multiply_by_quantized_multiplier(a + b, 1 << 30, -19) == 4


# Properties.


@given(int32s, int32s)
def test_srdhm_equals_definition(a: int, b: int) -> None:
    assert fp.srdhm(a, b) == c_srdhm(a, b)


@given(int16s, int16s)
def test_srdhm16_equals_definition(a: int, b: int) -> None:
    assert fp.srdhm16(a, b) == c_srdhm(a, b, 16)


@given(int32s, st.integers(0, 31))
def test_rounding_division_equals_fraction_rounded_away(x: int, n: int) -> None:
    assert fp.rounding_divide_by_pot(x, n) == half_away(Fraction(x, 1 << n))


@given(int32s, st.integers(0, 31))
def test_saturating_multiplication_equals_clamped_product(x: int, e: int) -> None:
    assert fp.saturating_multiply_by_pot(x, e) == min(max(x << e, INT32_MIN), INT32_MAX)
    assert fp.saturating_multiply_by_pot(x, -e) == half_away(Fraction(x, 1 << e))


@given(int32s, multipliers, st.integers(-31, 31))
def test_multiplication_equals_definition(x: int, m: int, shift: int) -> None:
    assert fp.multiply_by_quantized_multiplier(x, m, shift) == c_mbqm(x, m, shift)


@given(st.lists(st.tuples(int32s, multipliers, st.integers(-31, 31)), min_size=1, max_size=8))
def test_multiplication_per_channel_equals_scalar_multiplication(
    cases: list[tuple[int, int, int]],
) -> None:
    x, m, shift = (np.array(column) for column in zip(*cases, strict=True))
    both_rows = np.stack([x, x]).astype(np.int32)
    expected = [c_mbqm(*case) for case in cases]
    result = fp.multiply_by_quantized_multiplier(both_rows, m, shift)
    np.testing.assert_array_equal(result, [expected, expected])
    np.testing.assert_array_equal(both_rows, np.stack([x, x]))


@given(st.floats(2.0**-31, 2.0**30))
def test_multiplier_is_nearest_of_31_bits(real: float) -> None:
    m, shift = fp.quantize_multiplier(real)
    assert 2**30 <= m < 2**31
    error = abs(Fraction(m) * Fraction(2) ** (shift - 31) - Fraction(real))
    assert error <= Fraction(2) ** (shift - 32)


@given(st.lists(st.floats(0, 1e6), max_size=5))
def test_multipliers_of_list_are_those_of_its_numbers(reals: list[float]) -> None:
    m, shift = fp.quantize_multipliers(reals)
    pairs = [(int(a), int(b)) for a, b in zip(m, shift, strict=True)]
    assert pairs == [fp.quantize_multiplier(real) for real in reals]


@given(st.floats(width=32, allow_nan=False, allow_infinity=False))
def test_rounding_of_float32_equals_rounding_of_its_fraction(x: float) -> None:
    assert int(fp.round_half_away(np.float32(x))) == half_away(Fraction(x))


def test_rounding_keeps_what_is_not_a_number() -> None:
    result = fp.round_half_away(np.array([np.nan, np.inf, -np.inf, -0.2], np.float32))
    assert np.isnan(result[0])
    np.testing.assert_array_equal(result[1:], [np.inf, -np.inf, 0])
    assert result.dtype == np.float32


@given(int32s)
def test_wrapping_keeps_the_lowest_32_bits(x: int) -> None:
    assert fp.wrap_int32(np.int64(x) << 7) == ((x << 7) + 2**31) % 2**32 - 2**31


# Functions: monotone, within a few units of the real function, and the same at any integer width.


@pytest.mark.parametrize("integer_bits", [0, 3, 4, 5, 10])
@given(data=st.data())
def test_exponential_is_close_to_the_real_one(data: st.DataObject, integer_bits: int) -> None:
    a = data.draw(st.integers(INT32_MIN, 0))
    real = math.exp(a / 2.0 ** (31 - integer_bits)) * 2**31
    assert abs(int(fp.exp_on_negative(a, integer_bits)) - min(real, INT32_MAX)) <= 2**31 * 3e-7


@pytest.mark.parametrize("integer_bits", [3, 4, 5])
@given(a=int32s)
def test_logistic_and_tanh_are_close_to_the_real_ones(a: int, integer_bits: int) -> None:
    x = a / 2.0 ** (31 - integer_bits)
    assert int(fp.logistic(a, integer_bits)) / 2**31 == pytest.approx(
        1 / (1 + math.exp(-x)), abs=1e-6
    )
    assert int(fp.tanh(a, integer_bits)) / 2**31 == pytest.approx(math.tanh(x), abs=1e-6)


@pytest.mark.parametrize("integer_bits", [3, 4])
def test_functions_of_16_bits_are_close_to_the_real_ones_everywhere(integer_bits: int) -> None:
    a = np.arange(-(2**15), 2**15)
    x = a / 2.0 ** (15 - integer_bits)
    logistic = fp.logistic(a, integer_bits, bits=16)
    tanh = fp.tanh(a, integer_bits, bits=16)
    exp = fp.exp_on_negative(a[: 2**15 + 1], integer_bits, bits=16)
    assert np.abs(logistic / 2**15 - 1 / (1 + np.exp(-x))).max() < 2e-4
    assert np.abs(tanh / 2**15 - np.tanh(x)).max() < 4e-4
    assert np.abs(exp / 2**15 - np.exp(x[: 2**15 + 1])).max() < 3e-4
    for values in (logistic, tanh, exp):
        assert values.max() <= 2**15 - 1
        assert values.min() >= -(2**15)


@given(int32s)
def test_logistic_and_tanh_keep_their_symmetry(a: int) -> None:
    negative = -max(a, -INT32_MAX)
    a = -negative
    assert int(fp.tanh(a, 4)) == -int(fp.tanh(negative, 4))
    if a:
        assert int(fp.logistic(a, 4)) + int(fp.logistic(negative, 4)) == INT32_MAX
    else:
        assert int(fp.logistic(a, 4)) == 2**30


@given(st.integers(2, INT32_MAX))
def test_inverse_root_is_close_to_the_real_one(n: int) -> None:
    m, shift = fp.inv_sqrt_quantized_multiplier(n)
    assert shift <= 0
    assert int(m) * 2.0 ** (int(shift) - 31) == pytest.approx(1 / math.sqrt(n), rel=3e-6)


@given(st.lists(st.integers(0, INT32_MAX), min_size=1, max_size=6))
def test_inverse_roots_of_an_array_are_those_of_its_elements(n: list[int]) -> None:
    m, shift = fp.inv_sqrt_quantized_multiplier(np.array(n))
    one_by_one = [fp.inv_sqrt_quantized_multiplier(x) for x in n]
    np.testing.assert_array_equal(m, [int(a) for a, _ in one_by_one])
    np.testing.assert_array_equal(shift, [int(b) for _, b in one_by_one])


@given(st.integers(0, 10), st.integers(0, 30))
def test_input_radius_is_floor_of_exact_quotient(integer_bits: int, shift: int) -> None:
    exact = Fraction((2**integer_bits - 1) * 2 ** (31 - integer_bits), 2**shift)
    assert fp.input_radius(integer_bits, shift) == math.floor(exact)
