"""RELU, RELU1, RELU6, ELU, PRELU."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from executor.exact_integers import c_mbqm, c_multiplier
from executor.refusal import refuses, rejects
from executor.run_operation import output, run, scalar, tensor
from nnburst.executor.graph.declarations import B8, F16, F32, FLOAT16, I32, Q8, Q8S
from nnburst.hal.enums import OperandType, OperationType

RELU, RELU1, RELU6 = OperationType.RELU, OperationType.RELU1, OperationType.RELU6
ELU, PRELU = OperationType.ELU, OperationType.PRELU
BOUNDS = {RELU: (0, np.inf), RELU1: (-1, 1), RELU6: (0, 6)}
FLOAT32_MAX = np.finfo(np.float32).max

octets = st.integers(0, 255)
scales = st.sampled_from([0.125, 0.5, 0.03, 1.25])


@pytest.mark.parametrize("kind", BOUNDS)
@pytest.mark.parametrize("type_", [F32, F16])
def test_rectifier_clamps_floats(kind: OperationType, type_: OperandType) -> None:
    x = np.array([[-7, -1, -0.5, 0, 0.5, 1, 6, 7]])
    [y] = run(kind, [tensor(type_, x)], [output(type_)])
    np.testing.assert_array_equal(y, np.clip(x, *BOUNDS[kind]))


def test_rectifier_of_nan_is_its_lower_bound_and_of_infinity_is_finite() -> None:
    x = tensor(F32, [np.nan, np.inf, -np.inf])
    for kind, expected in (
        (RELU, [0, FLOAT32_MAX, 0]),
        (RELU1, [-1, 1, -1]),
        (RELU6, [0, 6, 0]),
    ):
        [y] = run(kind, [x], [output(F32)])
        np.testing.assert_array_equal(y, expected)


@pytest.mark.parametrize("kind", BOUNDS)
@pytest.mark.parametrize("type_", [Q8, Q8S])
@given(q=hnp.arrays(np.uint8, 8), zero=octets, scale=scales)
def test_rectifier_clamps_stored_values(
    kind: OperationType, type_: OperandType, q: Any, zero: Any, scale: float
) -> None:
    offset = 128 if type_ == Q8S else 0
    values = q.astype(int) - offset
    [y] = run(
        kind,
        [tensor(type_, values, scale, zero - offset)],
        [output(type_, [8], scale, zero - offset)],
    )
    low, high = (np.clip(np.floor(b / scale + 0.5) + zero, 0, 255) - offset for b in BOUNDS[kind])
    if kind is RELU1:
        low = np.clip(zero - np.floor(1 / scale + 0.5), 0, 255) - offset
    np.testing.assert_array_equal(y, np.clip(values, low, high))


@pytest.mark.parametrize("kind", BOUNDS)
def test_output_of_rectifier_must_be_quantised_like_the_input(kind: OperationType) -> None:
    x = tensor(Q8, [1, 2], 0.5, 3)
    for scale, zero in ((0.25, 3), (0.5, 4)):
        refuses(kind, [x], [output(Q8, [2], scale, zero)], "scale")


@pytest.mark.parametrize("kind", BOUNDS)
def test_rectifier_takes_empty_tensors_and_at_most_four_dimensions(kind: OperationType) -> None:
    [y] = run(kind, [tensor(F32, np.ones((0, 3)))], [output(F32)])
    assert y.shape == (0, 3)
    rejects(kind, [tensor(F32, np.ones((1, 1, 1, 1, 1)))], [output(F32)], "rank 5")


@pytest.mark.parametrize("kind", [*BOUNDS, PRELU])
def test_types_that_activations_do_not_know_are_rejected(kind: OperationType) -> None:
    for type_ in (I32, B8):
        inputs = [tensor(type_, [1])] * (2 if kind is PRELU else 1)
        rejects(kind, inputs, [output(type_)], "operand 'input'")


# ELU


@pytest.mark.parametrize("type_", [F32, F16])
def test_exponential_unit_follows_the_definition(type_: OperandType) -> None:
    alpha = scalar(2.0) if type_ == F32 else scalar(2.0, FLOAT16)
    [y] = run(ELU, [tensor(type_, [-1, 0, 3, -np.inf]), alpha], [output(type_)])
    np.testing.assert_allclose(y, [2 * np.expm1(-1), 0, 3, -2], rtol=1e-3)


def test_exponential_unit_of_nan_and_with_negative_alpha_is_not_negative() -> None:
    [y] = run(ELU, [tensor(F32, [np.nan, -1, 2]), scalar(-1.0)], [output(F32)])
    np.testing.assert_allclose(y, [0, 0, 2 + min(0, -(np.exp(2) - 1))], rtol=1e-6)


def test_exponential_unit_takes_alpha_from_a_model_input() -> None:
    [y] = run(ELU, [tensor(F32, [-1]), scalar(3.0, constant=False)], [output(F32)])
    np.testing.assert_allclose(y, [3 * np.expm1(-1)], rtol=1e-6)


def test_exponential_unit_refuses_empty_tensors_and_alpha_of_the_other_type() -> None:
    refuses(ELU, [tensor(F32, np.ones((0, 3))), scalar(1.0)], [output(F32)], "is empty")
    rejects(ELU, [tensor(F32, [1]), scalar(1.0, FLOAT16)], [output(F32)], "P4")


# PRELU


@pytest.mark.parametrize("type_", [F32, F16])
def test_parametric_unit_broadcasts_both_ways(type_: OperandType) -> None:
    x, alpha = np.array([[-2.0], [3.0]]), np.array([0.5, -1])
    [y] = run(PRELU, [tensor(type_, x), tensor(type_, alpha)], [output(type_)])
    np.testing.assert_array_equal(y, [[-1, 2], [3, 3]])
    [y] = run(PRELU, [tensor(type_, alpha), tensor(type_, x)], [output(type_)])
    np.testing.assert_array_equal(y, [[0.5, 2], [0.5, -3]])


def test_parametric_unit_of_nan_is_nan() -> None:
    [y] = run(PRELU, [tensor(F32, [np.nan, np.inf]), tensor(F32, [0.0])], [output(F32)])
    np.testing.assert_array_equal(y, [np.nan, np.inf])


@given(octets, octets, octets, octets, st.tuples(scales, scales, scales))
def test_quantised_parametric_unit_follows_its_definition(
    a: int, zx: int, za: int, zo: int, steps: tuple[float, ...]
) -> None:
    sx, sa, so = (float(np.float32(s)) for s in steps)
    product = float(np.float32(sx) * np.float32(sa))
    positive, negative = c_multiplier(sx / so), c_multiplier(product / so)
    q = np.arange(256)
    exact = [
        c_mbqm(c, *positive) if c >= 0 else c_mbqm(c * (a - za), *negative)
        for c in (q - zx).tolist()
    ]
    expected = np.clip(np.array(exact) + zo, 0, 255)
    for type_, offset in ((Q8, 0), (Q8S, 128)):
        x = tensor(type_, q - offset, sx, zx - offset)
        alpha = tensor(type_, [a - offset], sa, za - offset)
        [y] = run(PRELU, [x, alpha], [output(type_, [256], so, zo - offset)])
        np.testing.assert_array_equal(y.astype(int) + offset, expected)


def test_parametric_unit_refuses_empty_tensors_and_extents_that_do_not_broadcast() -> None:
    refuses(PRELU, [tensor(F32, np.ones((0, 1))), tensor(F32, [1])], [output(F32)], "is empty")
    refuses(PRELU, [tensor(F32, [1, 2]), tensor(F32, [1, 2, 3])], [output(F32)], "broadcast")
