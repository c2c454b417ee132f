"""ABS, NEG, EXP, LOG, SIN, SQRT, RSQRT, FLOOR."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from executor.refusal import refuses, rejects
from executor.run_operation import output, run, tensor
from nnburst.executor.graph.declarations import B8, F16, F32, I32, Q8, Q8S
from nnburst.hal.enums import OperandType, OperationType

T = OperationType
SMALLEST = -(2**31)
UNARY = [T.ABS, T.NEG, T.EXP, T.LOG, T.SIN, T.SQRT, T.RSQRT, T.FLOOR]


@pytest.mark.parametrize(
    ("kind", "x", "expected"),
    [
        (T.ABS, [-1.5, 0, 2], [1.5, 0, 2]),
        (T.NEG, [-1.5, 0, 2], [1.5, 0, -2]),
        (T.EXP, [0, 1, -1], [1, np.e, 1 / np.e]),
        (T.LOG, [1, np.e, 0.5], [0, 1, np.log(0.5)]),
        (T.SIN, [0, np.pi / 2, -1], [0, 1, np.sin(-1)]),
        (T.SQRT, [0, 4, 2], [0, 2, np.sqrt(2)]),
        (T.RSQRT, [1, 4, 0.25], [1, 0.5, 2]),
        (T.FLOOR, [-1.5, -0.0, 2.9], [-2, 0, 2]),
    ],
)
@pytest.mark.parametrize(("type_", "tolerance"), [(F32, 1e-6), (F16, 2e-3)])
def test_function_of_floats(
    kind: OperationType, x: Any, expected: Any, type_: OperandType, tolerance: float
) -> None:
    [y] = run(kind, [tensor(type_, [x])], [output(type_)])
    np.testing.assert_allclose(y, [expected], rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize(
    ("kind", "x", "expected"),
    [
        (T.ABS, [-np.inf, np.nan], [np.inf, np.nan]),
        (T.NEG, [-np.inf, np.nan], [np.inf, np.nan]),
        (T.EXP, [-np.inf, np.inf, np.nan, 1000], [0, np.inf, np.nan, np.inf]),
        (T.LOG, [0, -1, np.inf], [-np.inf, np.nan, np.inf]),
        (T.SIN, [np.inf], [np.nan]),
        (T.SQRT, [-1, np.inf], [np.nan, np.inf]),
        (T.RSQRT, [0, -1, np.inf], [np.inf, np.nan, 0]),
        (T.FLOOR, [np.inf, -np.inf, np.nan], [np.inf, -np.inf, np.nan]),
    ],
)
def test_special_floats_follow_ieee(kind: OperationType, x: Any, expected: Any) -> None:
    [y] = run(kind, [tensor(F32, x)], [output(F32)])
    np.testing.assert_array_equal(y, expected)


@given(hnp.arrays(np.int32, 4))
def test_negation_and_absolute_value_of_int32_keep_the_smallest(x: Any) -> None:
    x[0] = SMALLEST
    [negated] = run(T.NEG, [tensor(I32, x)], [output(I32)])
    [absolute] = run(T.ABS, [tensor(I32, x)], [output(I32)])
    np.testing.assert_array_equal(negated, [v if v == SMALLEST else -int(v) for v in x])
    np.testing.assert_array_equal(absolute, [v if v == SMALLEST else abs(int(v)) for v in x])


@pytest.mark.parametrize("kind", UNARY)
@given(shape=hnp.array_shapes(max_dims=4, max_side=3))
def test_extents_stay(kind: OperationType, shape: tuple[int, ...]) -> None:
    [y] = run(kind, [tensor(F32, np.ones(shape))], [output(F32, [0] * len(shape))])
    assert y.shape == shape


def test_declared_extents_must_agree() -> None:
    refuses(T.ABS, [tensor(F32, [1, 2])], [output(F32, [3])], "dimensions")


@pytest.mark.parametrize("kind", UNARY)
def test_empty_input_fails(kind: OperationType) -> None:
    refuses(kind, [tensor(F32, np.ones((0, 2)))], [output(F32)], "is empty")


@pytest.mark.parametrize("kind", UNARY)
def test_types_that_the_operation_does_not_know_are_rejected(kind: OperationType) -> None:
    rejects(kind, [tensor(B8, [1])], [output(B8)], "operand 'input'")
    rejects(kind, [tensor(F32, [1])], [output(F16)], "P4")


@pytest.mark.parametrize("kind", [T.EXP, T.LOG, T.SIN, T.SQRT, T.RSQRT, T.FLOOR])
def test_int32_is_rejected(kind: OperationType) -> None:
    rejects(kind, [tensor(I32, [1])], [output(I32)], "operand 'input'")


def test_only_floor_is_bound_to_four_dimensions() -> None:
    five = tensor(F32, np.ones((1, 1, 1, 1, 2)))
    rejects(T.FLOOR, [five], [output(F32)], "rank 5")
    for kind in UNARY[:-1]:
        [y] = run(kind, [five], [output(F32)])
        assert y.shape == (1, 1, 1, 1, 2)


@given(
    hnp.arrays(np.uint8, 8),
    st.integers(0, 255),
    st.sampled_from([0.5, 0.01, 2.0]),
    st.integers(0, 255),
    st.sampled_from([0.5, 0.01]),
)
def test_quantised_reciprocal_root_rounds_once_and_saturates(
    q: Any, zero: Any, scale: float, new_zero: Any, new_scale: Any
) -> None:
    [y] = run(T.RSQRT, [tensor(Q8, q, scale, zero)], [output(Q8, [8], new_scale, new_zero)])
    real = (q - float(zero)) * scale
    with np.errstate(all="ignore"):
        expected = np.where(real > 0, 1 / np.sqrt(real) / new_scale + new_zero, 255)
    assert np.abs(y - np.clip(expected, 0, 255)).max() <= 0.501
    signed = tensor(Q8S, q.astype(np.int16) - 128, scale, zero - 128)
    [twin] = run(T.RSQRT, [signed], [output(Q8S, [8], new_scale, new_zero - 128)])
    np.testing.assert_array_equal(twin.astype(int) + 128, y)
