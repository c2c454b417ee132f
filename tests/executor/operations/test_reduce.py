"""MEAN, REDUCE_SUM/PROD/MAX/MIN/ALL/ANY, ARGMAX, ARGMIN."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from executor.refusal import refuses, rejects
from executor.run_operation import output, run, scalar, tensor
from nnburst.executor.graph.declarations import B8, F16, F32, I32, Q8, Q8S
from nnburst.hal.enums import ErrorStatus, OperandType, OperationType

T = OperationType
MEAN, ARGMAX, ARGMIN = T.MEAN, T.ARGMAX, T.ARGMIN
REFERENCE = {
    T.MEAN: np.mean,
    T.REDUCE_SUM: np.sum,
    T.REDUCE_PROD: np.prod,
    T.REDUCE_MAX: np.max,
    T.REDUCE_MIN: np.min,
    T.REDUCE_ALL: np.all,
    T.REDUCE_ANY: np.any,
}
LOGIC = (T.REDUCE_ALL, T.REDUCE_ANY)
FLOATS = [kind for kind in REFERENCE if kind not in LOGIC]
FLOAT32_MAX, FLOAT16_MAX = np.finfo(np.float32).max, np.finfo(np.float16).max


def type_of(kind: OperationType) -> Any:
    return B8 if kind in LOGIC else F32


def reduce(
    kind: OperationType, x: Any, axes: list[int], keep_dims: bool = False, wanted: Any = None
) -> Any:
    """Run it over `axes`; MEAN takes keep_dims as an integer."""
    keep = scalar(int(keep_dims)) if kind is MEAN else scalar(keep_dims)
    given_axes = tensor(I32, np.array(axes, np.int32), constant=True)
    [y] = run(kind, [x, given_axes, keep], [output(x.type) if wanted is None else wanted])
    return y


@pytest.mark.parametrize(
    ("kind", "expected"),
    [
        (T.MEAN, [2.5, 0.5]),
        (T.REDUCE_SUM, [5, 1]),
        (T.REDUCE_PROD, [6, -2]),
        (T.REDUCE_MAX, [3, 2]),
        (T.REDUCE_MIN, [2, -1]),
    ],
)
@pytest.mark.parametrize("type_", [F32, F16])
def test_reduction_of_rows(kind: OperationType, expected: Any, type_: OperandType) -> None:
    x = tensor(type_, [[2, 3], [-1, 2]])
    np.testing.assert_array_equal(reduce(kind, x, [1]), expected)
    np.testing.assert_array_equal(reduce(kind, x, [-1], True), np.reshape(expected, (2, 1)))


@pytest.mark.parametrize(("kind", "expected"), [(T.REDUCE_ALL, [0, 1]), (T.REDUCE_ANY, [1, 1])])
def test_logical_reduction_counts_any_byte_but_zero_as_true(
    kind: OperationType, expected: Any
) -> None:
    x = tensor(B8, [[0, 2, 0], [255, 1, 3]])
    np.testing.assert_array_equal(reduce(kind, x, [1]), expected)


@pytest.mark.parametrize("kind", REFERENCE)
@given(shape=hnp.array_shapes(max_dims=4, max_side=3), keep_dims=st.booleans(), data=st.data())
def test_reduction_over_any_dimensions(
    kind: OperationType, shape: tuple[int, ...], keep_dims: bool, data: Any
) -> None:
    rank = len(shape)
    axes = data.draw(st.lists(st.integers(-rank, rank - 1), min_size=1, max_size=5))
    x = data.draw(hnp.arrays(np.float32, shape, elements=st.integers(0, 3)))
    y = reduce(kind, tensor(type_of(kind), x), axes, keep_dims)
    once = tuple({axis % rank for axis in axes})
    expected = REFERENCE[kind](x, axis=once, keepdims=keep_dims)
    assert y.shape == (np.shape(expected) or (1,))
    np.testing.assert_allclose(y.reshape(np.shape(expected)), expected, rtol=1e-6)


@pytest.mark.parametrize("kind", REFERENCE)
def test_reduction_over_all_dimensions_keeps_one(kind: OperationType) -> None:
    x = tensor(type_of(kind), np.ones((2, 3)))
    assert reduce(kind, x, [0, 1]).shape == (1,)
    assert reduce(kind, x, [0, 1], True).shape == (1, 1)


@pytest.mark.parametrize("kind", REFERENCE)
@pytest.mark.parametrize("axis", [2, -3])
@pytest.mark.parametrize("keep_dims", [False, True])
def test_axis_out_of_range_fails(kind: OperationType, axis: int, keep_dims: bool) -> None:
    keep = scalar(int(keep_dims)) if kind is MEAN else scalar(keep_dims)
    for constant in (True, False):
        axes = tensor(I32, [0, axis], constant=constant)
        x = tensor(type_of(kind), np.ones((2, 3)))
        refuses(kind, [x, axes, keep], [output(x.type)], "operand 'axes'")


@pytest.mark.parametrize("kind", REFERENCE)
def test_axes_may_be_a_model_input(kind: OperationType) -> None:
    x = tensor(type_of(kind), np.ones((2, 3)))
    keep = scalar(1, constant=False) if kind is MEAN else scalar(True, constant=False)
    [y] = run(kind, [x, tensor(I32, [1]), keep], [output(x.type, [0, 0])])
    assert y.shape == (2, 1)


@pytest.mark.parametrize("kind", REFERENCE)
def test_axes_of_another_rank_fail_at_execution(kind: OperationType) -> None:
    x, keep = tensor(type_of(kind), np.ones((2, 3))), scalar(0 if kind is MEAN else False)
    for constant in (True, False):
        axes = tensor(I32, [[1]], constant=constant)
        refuses(kind, [x, axes, keep], [output(x.type)], "operand 'axes' has shape (1, 1)")


@pytest.mark.parametrize("kind", REFERENCE)
def test_reduction_takes_at_most_four_dimensions_and_no_empty_tensors(kind: OperationType) -> None:
    keep = scalar(0) if kind is MEAN else scalar(False)
    axes = tensor(I32, [0], constant=True)
    five = tensor(type_of(kind), np.ones((1, 1, 1, 1, 1)))
    rejects(kind, [five, axes, keep], [output(five.type)], "rank 5")
    empty = tensor(type_of(kind), np.ones((0, 2)))
    status = ErrorStatus.INVALID_ARGUMENT if kind is MEAN else ErrorStatus.GENERAL_FAILURE
    refuses(kind, [empty, axes, keep], [output(empty.type)], "is empty", status)


def test_type_of_keep_dims_differs_between_mean_and_the_others() -> None:
    x, axes = tensor(F32, [1]), tensor(I32, [0])
    rejects(MEAN, [x, axes, scalar(True)], [output(F32)], "P4")
    rejects(T.REDUCE_SUM, [x, axes, scalar(1)], [output(F32)], "P4")


@pytest.mark.parametrize("kind", [T.REDUCE_SUM, T.REDUCE_PROD])
def test_sums_and_products_of_stored_values_are_rejected(kind: OperationType) -> None:
    inputs = [tensor(Q8, [1], 1.0), tensor(I32, [0]), scalar(False)]
    rejects(kind, inputs, [output(Q8, [1], 1.0)], "operand 'input'")


# Special values


def test_product_with_a_zero_is_zero_beside_anything() -> None:
    x = tensor(F32, [[0, np.inf], [np.nan, 0], [np.inf, 2], [np.nan, 1]])
    np.testing.assert_array_equal(reduce(T.REDUCE_PROD, x, [1]), [0, 0, np.inf, np.nan])


@pytest.mark.parametrize(("type_", "largest"), [(F32, FLOAT32_MAX), (F16, FLOAT16_MAX)])
def test_extrema_pass_over_nan_and_start_at_the_finite_limit(
    type_: OperandType, largest: Any
) -> None:
    x = tensor(type_, [[np.nan, 1], [2, np.nan], [np.nan, np.nan], [-np.inf] * 2, [np.inf] * 2])
    np.testing.assert_array_equal(reduce(T.REDUCE_MAX, x, [1]), [1, 2, -largest, -largest, np.inf])
    np.testing.assert_array_equal(reduce(T.REDUCE_MIN, x, [1]), [1, 2, largest, -np.inf, largest])


# Stored values


@pytest.mark.parametrize("kind", [T.REDUCE_MAX, T.REDUCE_MIN])
@pytest.mark.parametrize("type_", [Q8, Q8S])
@given(x=hnp.arrays(np.uint8, (3, 4)))
def test_extrema_of_stored_values(kind: OperationType, type_: OperandType, x: Any) -> None:
    values = x.astype(int) - (128 if type_ == Q8S else 0)
    y = reduce(kind, tensor(type_, values, 0.5, 3), [0], wanted=output(type_, [4], 0.5, 3))
    np.testing.assert_array_equal(y, REFERENCE[kind](values, axis=0))


@pytest.mark.parametrize(("type_", "offset"), [(Q8, 0), (Q8S, 128)])
@given(x=hnp.arrays(np.uint8, (3, 2, 4)))
def test_mean_of_stored_values_rounds_down_the_same_for_both_types(
    type_: OperandType, offset: Any, x: Any
) -> None:
    values = x.astype(int) - offset
    given_x = tensor(type_, values, 0.5, 3 - offset)
    y = reduce(MEAN, given_x, [0, 2], wanted=output(type_, [2], 0.5, 3 - offset))
    np.testing.assert_array_equal(y, values.sum(axis=(0, 2)) // 12)


def test_mean_of_many_stored_values_does_not_overflow() -> None:
    x = tensor(Q8, np.full((1, 300, 300), 255), 1.0)
    np.testing.assert_array_equal(reduce(MEAN, x, [1, 2], wanted=output(Q8, [1], 1.0)), [255])


@pytest.mark.parametrize("kind", [MEAN, T.REDUCE_MAX, T.REDUCE_MIN])
def test_output_of_reduction_must_be_quantised_like_the_input(kind: OperationType) -> None:
    keep = scalar(0) if kind is MEAN else scalar(False)
    inputs = [tensor(Q8, [1, 2], 0.5, 3), tensor(I32, [0], constant=True), keep]
    refuses(kind, inputs, [output(Q8, [1], 0.25, 3)], "scale")
    refuses(kind, inputs, [output(Q8, [1], 0.5, 4)], "zero point")


# ARGMAX, ARGMIN


@pytest.mark.parametrize(("kind", "expected"), [(ARGMAX, [1, 2]), (ARGMIN, [0, 1])])
@pytest.mark.parametrize("type_", [F32, F16, I32, Q8, Q8S])
def test_index_of_extremum(kind: OperationType, expected: Any, type_: OperandType) -> None:
    scale = 0.5 if type_ in (Q8, Q8S) else 0.0
    x = tensor(type_, [[1, 3, 2], [5, 4, 6]], scale)
    for axis in (1, -1):
        [y] = run(kind, [x, scalar(axis)], [output(I32, [2])])
        np.testing.assert_array_equal(y, expected)


@pytest.mark.parametrize("kind", [ARGMAX, ARGMIN])
@given(
    x=hnp.arrays(np.float32, hnp.array_shapes(max_dims=5, max_side=3), elements=st.integers(0, 2)),
    data=st.data(),
)
def test_first_index_wins_ties_along_any_axis(kind: OperationType, x: Any, data: Any) -> None:
    axis = data.draw(st.integers(-x.ndim, x.ndim - 1))
    [y] = run(kind, [tensor(F32, x), scalar(axis)], [output(I32)])
    expected = (np.argmax if kind is ARGMAX else np.argmin)(x, axis=axis)
    assert y.shape == (np.shape(expected) or (1,))
    np.testing.assert_array_equal(y.reshape(np.shape(expected)), expected)


@pytest.mark.parametrize("kind", [ARGMAX, ARGMIN])
def test_nan_wins_only_at_the_first_index(kind: OperationType) -> None:
    best = 9 if kind is ARGMAX else -9
    nan = np.nan
    x = tensor(F32, [[nan, best, 0], [0, nan, best], [0, best, nan], [0, nan, nan], [nan] * 3])
    [y] = run(kind, [x, scalar(1)], [output(I32)])
    np.testing.assert_array_equal(y, [0, 2, 1, 0, 0])


@pytest.mark.parametrize(("kind", "worst"), [(ARGMAX, -np.inf), (ARGMIN, np.inf)])
def test_nan_never_wins_against_the_worst_infinity(kind: OperationType, worst: Any) -> None:
    x = tensor(F32, [[worst, np.nan], [worst, worst]])
    [y] = run(kind, [x, scalar(1)], [output(I32)])
    np.testing.assert_array_equal(y, [0, 0])


@pytest.mark.parametrize("kind", [ARGMAX, ARGMIN])
def test_index_of_extremum_refuses_bad_axes_and_empty_tensors(kind: OperationType) -> None:
    x = tensor(F32, [[1, 2]])
    for axis in (2, -3):
        refuses(kind, [x, scalar(axis)], [output(I32)], "operand 'axis'")
        refuses(kind, [x, scalar(axis, constant=False)], [output(I32)], "operand 'axis'")
    empty = tensor(F32, np.ones((0, 2)))
    refuses(kind, [empty, scalar(0)], [output(I32)], "is empty", ErrorStatus.INVALID_ARGUMENT)
    rejects(kind, [x, scalar(0)], [output(F32)], "P4")
    rejects(kind, [tensor(B8, [1]), scalar(0)], [output(I32)], "operand 'input'")
