from __future__ import annotations

from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from executor.exact_integers import c_srdhm, half_away
from executor.refusal import refuses, rejects
from executor.run_operation import Given, output, run, scalar, tensor
from nnburst.executor.reference import fixed_point
from nnburst.executor.reference.operations import normalization
from nnburst.hal.enums import OperandType, OperationType

SOFTMAX, LOG_SOFTMAX = OperationType.SOFTMAX, OperationType.LOG_SOFTMAX
F32, F16 = OperandType.TENSOR_FLOAT32, OperandType.TENSOR_FLOAT16
Q8, Q8S = OperandType.TENSOR_QUANT8_ASYMM, OperandType.TENSOR_QUANT8_ASYMM_SIGNED
FLOAT16 = OperandType.FLOAT16

shapes = arrays.array_shapes(min_dims=1, max_dims=4, max_side=5)


def probabilities(x: Any, beta: float, axis: int) -> Any:
    powers = np.exp((x - x.max(axis=axis, keepdims=True)) * beta)
    return powers / powers.sum(axis=axis, keepdims=True)


@st.composite
def inputs(draw: st.DrawFn, low: int = -8, high: int = 8) -> tuple[Any, int]:
    """Numbers and an axis, which may count from the end."""
    shape = draw(shapes)
    random = np.random.default_rng(draw(st.integers(0, 2**32)))
    axis = draw(st.integers(-len(shape), len(shape) - 1))
    return random.integers(low, high, shape), axis


@given(inputs(), st.sampled_from([0.25, 1.0, 3.0]), st.sampled_from([(F32, 1e-6), (F16, 1e-3)]))
def test_softmax_of_floats(case: Any, beta: float, precision: Any) -> None:
    (x, axis), (kind, tolerance) = case, precision
    factor = scalar(beta, FLOAT16) if kind is F16 else scalar(beta)
    [found] = run(SOFTMAX, [tensor(kind, x), factor, scalar(axis)], [output(kind)])
    np.testing.assert_allclose(found, probabilities(x, beta, axis), tolerance, 1e-6)


@given(inputs(), st.sampled_from([0.25, 1.0, -3.0]), st.sampled_from([(F32, 1e-6), (F16, 2e-3)]))
def test_log_softmax_is_the_logarithm_of_softmax(case: Any, beta: float, precision: Any) -> None:
    (x, axis), (kind, tolerance) = case, precision
    factor = scalar(beta, FLOAT16) if kind is F16 else scalar(beta)
    [found] = run(LOG_SOFTMAX, [tensor(kind, x), factor, scalar(axis)], [output(kind)])
    scaled = (x - x.max(axis=axis, keepdims=True)) * beta
    wanted = scaled - np.log(np.exp(scaled).sum(axis=axis, keepdims=True))
    np.testing.assert_allclose(found, wanted, tolerance, 1e-5)


@given(
    inputs(0, 256), st.sampled_from([0.5, 1.0]), st.floats(0.01, 0.5), st.sampled_from([Q8, Q8S])
)
def test_quantised_softmax_is_within_a_step_of_the_real_one(
    case: Any, beta: float, scale: float, kind: OperandType
) -> None:
    x, axis = case
    lowest = 0 if kind is Q8 else -128
    source = tensor(kind, x + lowest, scale, 7)
    [found] = run(
        SOFTMAX, [source, scalar(beta), scalar(axis)], [output(kind, (), 1 / 256, lowest)]
    )
    wanted = probabilities(x * float(np.float32(scale)), beta, axis) * 256
    assert np.abs(found.astype(int) - lowest - np.minimum(wanted, 255)).max() <= 1


def by_definition(x: Any, scale: float) -> Any:
    """Integer SOFTMAX of the rows of x with beta 1, step by step."""
    multiplier, shift = fixed_point.quantize_multiplier(scale * 2**26)
    below = x.astype(np.int64) - x.max(axis=1, keepdims=True)
    near = below >= -fixed_point.input_radius(5, shift)
    scaled = fixed_point.srdhm(np.where(near, below, 0) << shift, multiplier)
    powers = np.where(near, fixed_point.exp_on_negative(scaled, 5), 0)
    out = np.zeros(x.shape, np.int64)
    for row, power in zip(out, powers, strict=True):
        total = int(fixed_point.rounding_divide_by_pot(power, 12).sum())
        leading = 32 - total.bit_length()
        fraction = fixed_point.one_over_one_plus(np.int64((total << leading) - 2**31))
        n = 12 - leading + 23
        row[:] = [half_away(Fraction(c_srdhm(int(fraction), int(p)), 1 << n)) for p in power]
    return np.minimum(out, 255)


@given(
    arrays.arrays(np.uint8, arrays.array_shapes(min_dims=2, max_dims=2, max_side=12)),
    st.floats(0.01, 0.5).map(lambda scale: float(np.float32(scale))),
)
def test_quantised_softmax_follows_its_definition(x: Any, scale: float) -> None:
    operands = [tensor(Q8, x, scale, 0), scalar(1.0)]
    [found] = run(SOFTMAX, operands, [output(Q8, (), 1 / 256, 0)])
    assert (found == by_definition(x, scale)).all()


@given(st.lists(st.integers(2**19, 2**33), min_size=1, max_size=20))
def test_few_sums_are_inverted_like_many(totals: list[int]) -> None:
    factors, exponents = normalization._reciprocals(np.array(totals))
    one_by_one = [normalization._reciprocal_of(total) for total in totals]
    assert one_by_one == [*zip(factors.tolist(), exponents.tolist(), strict=True)]


def quantised(values: Any, scale: float, beta: float = 1.0) -> list[int]:
    operands = [tensor(Q8, values, scale, 0), scalar(beta)]
    [found] = run(SOFTMAX, operands, [output(Q8, (), 1 / 256, 0)])
    return [int(v) for v in found.ravel()]


def test_quantised_softmax_by_hand() -> None:
    assert quantised([[5, 5, 5, 5]], 0.5) == [64, 64, 64, 64]
    assert quantised([[255, 0]], 1.0) == [255, 0]  # 256 does not fit
    assert quantised([[0, 0, 100]], 0.1) == [0, 0, 255]


def test_entries_beyond_the_radius_are_zero() -> None:
    # exp(-31) is the least that the fixed-point format is asked for.
    assert quantised([[0] * 7 + [255]], 0.125)[:7] == [0] * 7


def test_many_equal_elements_share_what_there_is() -> None:
    assert set(quantised(np.full((1, 100), 9), 0.5)) == {3}  # 2.56
    assert set(quantised(np.full((1, 500), 9), 0.5)) == {1}  # 0.512
    for count in (513, 1000, 1500, 3000, 5000, 9000):
        assert set(quantised(np.full((1, count), 9), 0.5)) == {0}


@pytest.mark.parametrize("kind", [SOFTMAX, LOG_SOFTMAX])
@pytest.mark.parametrize("axis", [-3, 2])
def test_axes_outside_the_rank_fail(kind: OperationType, axis: int) -> None:
    operands = [tensor(F32, np.ones((2, 2))), scalar(1.0), scalar(axis)]
    refuses(kind, operands, [output(F32)], f"'axis' is {axis}")


@pytest.mark.parametrize("beta", [0.0, -1.0, float("nan")])
def test_softmax_needs_a_positive_beta(beta: float) -> None:
    refuses(SOFTMAX, [tensor(F32, [[1.0]]), scalar(beta)], [output(F32)], "'beta' is")


def test_a_step_too_small_for_fixed_point_fails() -> None:
    operands = [tensor(Q8, [[1]], 1e-9, 0), scalar(1.0)]
    refuses(SOFTMAX, operands, [output(Q8, (), 1 / 256, 0)], "must be above 1")


@pytest.mark.parametrize(("kind", "lowest"), [(Q8, 0), (Q8S, -128)])
def test_output_of_softmax_has_one_quantisation(kind: OperandType, lowest: int) -> None:
    operands: list[Given] = [tensor(kind, [[1, 2]], 0.5, 0), scalar(1.0)]
    refuses(SOFTMAX, operands, [output(kind, (), 1 / 128, lowest)], "declared are")
    refuses(SOFTMAX, operands, [output(kind, (), 1 / 256, lowest + 1)], "declared are")


def test_softmax_takes_empty_tensors_and_at_most_four_dimensions() -> None:
    [found] = run(SOFTMAX, [tensor(F32, np.ones((0, 4))), scalar(1.0)], [output(F32)])
    assert found.shape == (0, 4)
    [stored] = run(
        SOFTMAX, [tensor(Q8, np.ones((0, 4)), 0.5, 0), scalar(1.0)], [output(Q8, (), 1 / 256, 0)]
    )
    assert stored.shape == (0, 4)
    rejects(SOFTMAX, [tensor(F32, np.ones((1,) * 5)), scalar(1.0)], [output(F32)], "has rank 5")


def test_log_softmax_takes_any_rank_but_nothing_empty() -> None:
    tail = [scalar(1.0), scalar(0)]
    [found] = run(LOG_SOFTMAX, [tensor(F32, np.ones((1,) * 6)), *tail], [output(F32)])
    assert found.item() == 0
    refuses(LOG_SOFTMAX, [tensor(F32, np.ones((0, 4))), *tail], [output(F32)], "empty")
    rejects(LOG_SOFTMAX, [tensor(F32, [1.0]), scalar(1.0)], [output(F32)], "P4")


def test_special_floats_do_not_raise() -> None:
    [found] = run(
        SOFTMAX, [tensor(F32, [[np.nan, 1], [np.inf, 1], [-np.inf, 1]]), scalar(1.0)], [output(F32)]
    )
    assert np.isnan(found[:2, 0]).all()
    assert found[2].tolist() == [0, 1]
