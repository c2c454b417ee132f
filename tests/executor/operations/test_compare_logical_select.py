"""Comparisons, logic of booleans, SELECT."""

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

COMPARISONS = {
    OperationType.EQUAL: np.equal,
    OperationType.NOT_EQUAL: np.not_equal,
    OperationType.LESS: np.less,
    OperationType.LESS_EQUAL: np.less_equal,
    OperationType.GREATER: np.greater,
    OperationType.GREATER_EQUAL: np.greater_equal,
}
LOGIC = {OperationType.LOGICAL_AND: np.logical_and, OperationType.LOGICAL_OR: np.logical_or}
NOT, SELECT = OperationType.LOGICAL_NOT, OperationType.SELECT

octets = st.integers(0, 255)
scales = st.sampled_from([0.125, 0.5, 0.03, 1.25])
shape_pairs = hnp.mutually_broadcastable_shapes(num_shapes=2, min_dims=1, max_dims=5, max_side=3)


@pytest.mark.parametrize("kind", COMPARISONS)
@pytest.mark.parametrize("type_", [F32, F16, I32, B8])
def test_comparison_element_by_element(kind: OperationType, type_: OperandType) -> None:
    x, y = [0, 1, 1, 0], [0, 0, 1, 1]
    [z] = run(kind, [tensor(type_, x), tensor(type_, y)], [output(B8, [4])])
    np.testing.assert_array_equal(z, COMPARISONS[kind](x, y).astype(np.uint8))


@pytest.mark.parametrize("kind", COMPARISONS)
def test_nan_is_only_unequal(kind: OperationType) -> None:
    x, y = tensor(F32, [np.nan, 1, np.nan]), tensor(F32, [1, np.nan, np.nan])
    [z] = run(kind, [x, y], [output(B8)])
    np.testing.assert_array_equal(z, [kind is OperationType.NOT_EQUAL] * 3)


@pytest.mark.parametrize("kind", COMPARISONS)
@pytest.mark.parametrize("type_", [Q8, Q8S])
@given(
    data=hnp.arrays(np.uint8, (2, 6)),
    zeros=st.tuples(octets, octets),
    steps=st.tuples(scales, scales),
)
def test_comparison_of_stored_values_compares_what_they_stand_for(
    kind: OperationType, type_: OperandType, data: Any, zeros: Any, steps: Any
) -> None:
    offset = 128 if type_ == Q8S else 0
    inputs = [
        tensor(type_, data[i].astype(int) - offset, steps[i], zeros[i] - offset) for i in (0, 1)
    ]
    [z] = run(kind, inputs, [output(B8, [6])])
    real = [
        (data[i].astype(np.float32) - np.float32(zeros[i])) * np.float32(steps[i]) for i in (0, 1)
    ]
    np.testing.assert_array_equal(z, COMPARISONS[kind](*real))


def test_stored_values_of_different_scales_can_be_equal() -> None:
    x, y = tensor(Q8, [10], 0.5, 0), tensor(Q8, [30], 0.25, 10)
    [z] = run(OperationType.EQUAL, [x, y], [output(B8)])
    np.testing.assert_array_equal(z, [1])


@pytest.mark.parametrize("kind", [*COMPARISONS, *LOGIC])
@given(shapes=shape_pairs, data=st.data())
def test_comparison_and_logic_broadcast(kind: OperationType, shapes: Any, data: Any) -> None:
    x, y = (
        data.draw(hnp.arrays(np.uint8, s, elements=st.integers(0, 1))) for s in shapes.input_shapes
    )
    [z] = run(kind, [tensor(B8, x), tensor(B8, y)], [output(B8)])
    assert z.shape == shapes.result_shape
    np.testing.assert_array_equal(z, (COMPARISONS | LOGIC)[kind](x, y))


@pytest.mark.parametrize("kind", [*COMPARISONS, *LOGIC])
def test_extents_that_do_not_broadcast_and_empty_tensors_fail(kind: OperationType) -> None:
    refuses(kind, [tensor(B8, [1, 0]), tensor(B8, [1, 0, 1])], [output(B8)], "broadcast")
    refuses(kind, [tensor(B8, np.ones((0, 1))), tensor(B8, [1])], [output(B8)], "is empty")


@pytest.mark.parametrize("kind", COMPARISONS)
def test_comparison_gives_booleans_only(kind: OperationType) -> None:
    x = tensor(F32, [1])
    rejects(kind, [x, x], [output(F32)], "P4")
    rejects(kind, [x, tensor(I32, [1])], [output(B8)], "P4")


# Logic


@pytest.mark.parametrize("kind", LOGIC)
def test_any_byte_but_zero_is_true(kind: OperationType) -> None:
    x, y = [0, 0, 2, 255, 4], [0, 7, 0, 1, 3]
    [z] = run(kind, [tensor(B8, x), tensor(B8, y)], [output(B8)])
    np.testing.assert_array_equal(z, LOGIC[kind](x, y).astype(np.uint8))


def test_negation_of_booleans() -> None:
    [z] = run(NOT, [tensor(B8, [[0, 1, 2, 255]])], [output(B8)])
    np.testing.assert_array_equal(z, [[1, 0, 0, 0]])
    refuses(NOT, [tensor(B8, np.ones((0, 1)))], [output(B8)], "is empty")


@pytest.mark.parametrize("kind", [*LOGIC, NOT])
def test_logic_takes_booleans_only(kind: OperationType) -> None:
    inputs = [tensor(Q8, [1], 1.0)] * (1 if kind is NOT else 2)
    rejects(kind, inputs, [output(B8)], "is TENSOR_QUANT8_ASYMM")


# SELECT


@pytest.mark.parametrize("type_", [F32, F16, I32])
def test_selection_by_condition(type_: OperandType) -> None:
    condition = tensor(B8, [[0, 1, 2, 255]])
    x, y = tensor(type_, [[1, 2, 3, 4]]), tensor(type_, [[5, 6, 7, 8]])
    [z] = run(SELECT, [condition, x, y], [output(type_)])
    np.testing.assert_array_equal(z, [[5, 2, 3, 4]])


@pytest.mark.parametrize("type_", [Q8, Q8S])
@given(
    condition=hnp.arrays(np.uint8, 6, elements=st.integers(0, 1)),
    data=hnp.arrays(np.uint8, (2, 6)),
    zeros=st.tuples(octets, octets, octets),
    steps=st.tuples(scales, scales, scales),
)
def test_selection_stores_both_inputs_anew(
    type_: OperandType, condition: Any, data: Any, zeros: Any, steps: Any
) -> None:
    offset = 128 if type_ == Q8S else 0
    inputs = [
        tensor(type_, data[i].astype(int) - offset, steps[i], zeros[i] - offset) for i in (0, 1)
    ]
    wanted = output(type_, [6], steps[2], zeros[2] - offset)
    [z] = run(SELECT, [tensor(B8, condition), *inputs], [wanted])
    x, y = ((data[i] - float(zeros[i])) * steps[i] / steps[2] + zeros[2] for i in (0, 1))
    expected = np.clip(np.where(condition, x, y), 0, 255)
    assert np.abs(z.astype(int) + offset - expected).max() <= 0.501


def test_selection_rounds_ties_of_the_stored_value_away_from_zero() -> None:
    condition, other = tensor(B8, [1, 1, 1]), tensor(Q8S, [0, 0, 0], 1.0)
    x = tensor(Q8S, [1, -1, -3], 0.5)
    [z] = run(SELECT, [condition, x, other], [output(Q8S, [3], 1.0, 0)])
    np.testing.assert_array_equal(z, [1, -1, -2])
    [z] = run(SELECT, [condition, x, other], [output(Q8S, [3], 1.0, 10)])
    np.testing.assert_array_equal(z, [11, 10, 9])


def test_selection_does_not_broadcast() -> None:
    three, one = tensor(F32, [1, 2, 3]), tensor(F32, [1])
    refuses(SELECT, [tensor(B8, [1]), three, three], [output(F32)], "operand 'input0'")
    refuses(SELECT, [tensor(B8, [1, 0, 1]), three, one], [output(F32)], "operand 'input1'")
    refuses(SELECT, [tensor(B8, [[1, 0, 1]]), three, three], [output(F32)], "operand 'input0'")


def test_selection_refuses_empty_tensors_and_unequal_types() -> None:
    empty = np.ones((0, 2))
    inputs = [tensor(B8, empty), tensor(F32, empty), tensor(F32, empty)]
    refuses(SELECT, inputs, [output(F32)], "is empty")
    rejects(SELECT, [tensor(B8, [1]), tensor(F32, [1]), tensor(I32, [1])], [output(F32)], "P4")
    rejects(SELECT, [tensor(I32, [1]), tensor(F32, [1]), tensor(F32, [1])], [output(F32)], "P4")
