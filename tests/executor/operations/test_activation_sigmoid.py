"""LOGISTIC, TANH, HARD_SWISH."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from executor.exact_integers import c_divide, c_multiplier, c_srdhm, half_away
from executor.refusal import refuses, rejects
from executor.run_operation import output, run, tensor
from nnburst.executor.graph.declarations import F16, F32, I32, Q8, Q8S
from nnburst.hal.enums import OperandType, OperationType

LOGISTIC, TANH, HARD_SWISH = (
    OperationType.LOGISTIC,
    OperationType.TANH,
    OperationType.HARD_SWISH,
)
#: Forced scale, and zero point of the unsigned and the signed type.
FORCED = {LOGISTIC: (1 / 256, 0, -128), TANH: (1 / 128, 128, 0)}


def real(kind: OperationType, x: Any) -> Any:
    if kind is LOGISTIC:
        return 1 / (1 + np.exp(np.minimum(-x, 700)))
    return np.tanh(x) if kind is TANH else x * np.clip(x + 3, 0, 6) / 6


@pytest.mark.parametrize("kind", [LOGISTIC, TANH, HARD_SWISH])
@pytest.mark.parametrize(("type_", "tolerance"), [(F32, 1e-6), (F16, 2e-3)])
def test_sigmoid_of_floats(kind: OperationType, type_: OperandType, tolerance: float) -> None:
    x = np.array([[-20, -3, -1, -0.5, 0, 0.5, 1, 2.9, 20]])
    [y] = run(kind, [tensor(type_, x)], [output(type_)])
    np.testing.assert_allclose(y, real(kind, x), rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize(
    ("kind", "expected"), [(LOGISTIC, [0, 1, np.nan, 0]), (TANH, [-1, 1, np.nan, -1])]
)
def test_sigmoid_of_special_floats(kind: OperationType, expected: Any) -> None:
    [y] = run(kind, [tensor(F32, [-np.inf, np.inf, np.nan, -1000])], [output(F32)])
    np.testing.assert_array_equal(y, expected)


@pytest.mark.parametrize("kind", FORCED)
@given(zero=st.integers(0, 255), scale=st.floats(2**-13, 1, width=32))
def test_quantised_sigmoid_is_within_a_step_of_the_real_one(
    kind: OperationType, zero: Any, scale: float
) -> None:
    q = np.arange(256)
    step, unsigned, signed = FORCED[kind]
    [y] = run(kind, [tensor(Q8, q, scale, zero)], [output(Q8, [256], step, unsigned)])
    exact = np.clip(real(kind, (q - zero) * scale) / step + unsigned, 0, 255)
    assert np.abs(y - exact).max() <= 0.51
    assert (np.diff(y.astype(int)) >= 0).all()
    [twin] = run(
        kind, [tensor(Q8S, q - 128, scale, zero - 128)], [output(Q8S, [256], step, signed)]
    )
    np.testing.assert_array_equal(twin.astype(int) + 128, y)


def test_quantised_sigmoid_saturates_beyond_its_radius() -> None:
    x = tensor(Q8, [0, 127, 128, 129, 255], 4.0, 128)
    [y] = run(LOGISTIC, [x], [output(Q8, [5], 1 / 256, 0)])
    np.testing.assert_array_equal(y, [0, 0, 128, 255, 255])
    [y] = run(TANH, [x], [output(Q8, [5], 1 / 128, 128)])
    np.testing.assert_array_equal(y, [0, 0, 128, 255, 255])
    # From a scale of 8 on the radius is 0, and 0 itself counts as the lower limit.
    for scale in (8.0, 1e30):
        x = tensor(Q8, [127, 128, 129], scale, 128)
        [y] = run(LOGISTIC, [x], [output(Q8, [3], 1 / 256, 0)])
        np.testing.assert_array_equal(y, [0, 0, 255])


@pytest.mark.parametrize("kind", FORCED)
def test_output_of_quantised_sigmoid_has_one_quantisation(kind: OperationType) -> None:
    step, unsigned, _ = FORCED[kind]
    x = tensor(Q8, [1], 0.5, 3)
    refuses(kind, [x], [output(Q8, [1], step * 2, unsigned)], "scale")
    refuses(kind, [x], [output(Q8, [1], step, unsigned + 1)], "zero point")


@pytest.mark.parametrize("kind", FORCED)
def test_sigmoid_of_a_scale_below_what_its_fixed_point_resolves_fails(kind: OperationType) -> None:
    step, unsigned, _ = FORCED[kind]
    refuses(kind, [tensor(Q8, [1], 2.0**-27)], [output(Q8, [1], step, unsigned)], "above 1")


@pytest.mark.parametrize("kind", FORCED)
def test_sigmoid_takes_empty_tensors_and_at_most_four_dimensions(kind: OperationType) -> None:
    [y] = run(kind, [tensor(F32, np.ones((0, 3)))], [output(F32)])
    assert y.shape == (0, 3)
    rejects(kind, [tensor(F32, np.ones((1, 1, 1, 1, 1)))], [output(F32)], "rank 5")
    rejects(kind, [tensor(I32, [1])], [output(I32)], "operand 'input'")


# HARD_SWISH


def saturate16(x: Any) -> Any:
    return min(max(x, -32768), 32767)


def exact_hard_swish(centred: Any, scale: float, new_scale: Any, zero: Any) -> Any:
    """One stored value by the definition, in Python integers."""
    fine = np.float32(1 / 128) * np.float32(scale)
    om, oe = c_multiplier(float(fine / np.float32(new_scale)))
    rm, re = c_multiplier(float(fine / np.float32(3 / 32768)))
    om, rm = (min((m + 2**15) >> 16, 32767) for m in (om, rm))
    unscaled = c_srdhm(centred * 128, om, 16)
    gate = centred * 128
    if re > 0:
        gate = saturate16(gate << (re - 1))
    gate = c_srdhm(gate, rm, 16)
    if re > 0:
        gate = saturate16(gate << 1)
    elif re < 0:
        gate = half_away(Fraction(gate, 1 << -re))
    product = c_divide(((gate + 32768) >> 1) * unscaled, 2**15)
    return min(max(half_away(Fraction(product, 1 << -oe)) + zero, 0), 255)


@given(
    st.integers(0, 255),
    st.floats(2**-13, 0.5, width=32),
    st.floats(1.0625, 500, width=32),
    st.integers(0, 255),
)
def test_quantised_hard_swish_follows_its_definition(
    zero: int, scale: float, ratio: float, new_zero: int
) -> None:
    q = np.arange(256)
    new_scale = float(np.float32(scale / 128 * ratio))
    expected = [exact_hard_swish(c, scale, new_scale, new_zero) for c in (q - zero).tolist()]
    for type_, offset in ((Q8, 0), (Q8S, 128)):
        x = tensor(type_, q - offset, scale, zero - offset)
        [y] = run(HARD_SWISH, [x], [output(type_, [256], new_scale, new_zero - offset)])
        np.testing.assert_array_equal(y.astype(int) + offset, expected)


def test_quantised_hard_swish_is_close_to_the_real_one() -> None:
    q = np.arange(256)
    for scale in (0.01, 0.05, 0.2):
        x = (q - 128) * scale
        [y] = run(HARD_SWISH, [tensor(Q8, q, scale, 128)], [output(Q8, [256], scale, 128)])
        assert np.abs(y - np.clip(real(HARD_SWISH, x) / scale + 128, 0, 255)).max() <= 1


@pytest.mark.parametrize("scale", [2.0**24, 2.0**40, 1e30])
def test_hard_swish_of_a_huge_scale_is_a_rectifier(scale: float) -> None:
    x = tensor(Q8, [0, 127, 128, 129, 255], scale, 128)
    [y] = run(HARD_SWISH, [x], [output(Q8, (), scale, 128)])
    assert y.tolist() == [128, 128, 128, 129, 255]


def test_hard_swish_of_an_output_scale_far_too_small_fails() -> None:
    x = tensor(Q8, [1], 128.0)
    refuses(HARD_SWISH, [x], [output(Q8, [1], 1.0)], "operand 'output' has scale")
    run(HARD_SWISH, [x], [output(Q8, [1], 1.001)])


def test_hard_swish_takes_any_rank_and_empty_tensors() -> None:
    for shape in ((1, 1, 1, 1, 2), (0, 2)):
        [y] = run(HARD_SWISH, [tensor(F32, np.ones(shape))], [output(F32)])
        np.testing.assert_allclose(y, np.full(shape, 4 / 6), rtol=1e-6)
