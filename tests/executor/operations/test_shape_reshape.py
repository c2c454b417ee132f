"""RESHAPE, EXPAND_DIMS, SQUEEZE."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from executor.refusal import refuses, rejects
from executor.run_operation import Given, omitted, output, run, scalar, tensor
from nnburst.executor.graph.declarations import F16, F32, I32, INT32, Q8, Q8S
from nnburst.executor.graph.operation import REGISTRY
from nnburst.hal.enums import ErrorStatus, OperandLifeTime, OperandType, OperationType
from nnburst.hal.errors import InvalidArgument
from nnburst.hal.model import Operand

RESHAPE = OperationType.RESHAPE
EXPAND_DIMS = OperationType.EXPAND_DIMS
SQUEEZE = OperationType.SQUEEZE

extents = st.lists(st.integers(1, 4), min_size=1, max_size=4)


def ints(*values: int) -> Given:
    return tensor(I32, values)


@pytest.mark.parametrize("kind", [F32, F16, I32])
def test_reshape_keeps_elements_in_memory_order(kind: OperandType) -> None:
    [y] = run(RESHAPE, [tensor(kind, [[1, 2, 3], [4, 5, 6]]), ints(3, 2)], [output(kind)])
    np.testing.assert_array_equal(y, [[1, 2], [3, 4], [5, 6]])


@pytest.mark.parametrize("kind", [Q8, Q8S])
def test_reshape_keeps_stored_values_and_quantisation(kind: OperandType) -> None:
    [y] = run(RESHAPE, [tensor(kind, [[1, 2]], 0.5, 7), ints(2)], [output(kind, (2,), 0.5, 7)])
    np.testing.assert_array_equal(y, [1, 2])


@given(extents, st.data())
def test_reshape_minus_one_stands_for_what_is_left(shape: list[int], draw: st.DataObject) -> None:
    x = np.arange(math.prod(shape), dtype=np.float32).reshape(shape)
    target = list(draw.draw(st.permutations(shape)))
    wanted = tuple(target)
    target[draw.draw(st.integers(0, len(target) - 1))] = -1
    [y] = run(RESHAPE, [tensor(F32, x), ints(*target)], [output(F32)])
    np.testing.assert_array_equal(y, x.reshape(wanted))


@pytest.mark.parametrize(
    ("target", "message"),
    [
        ((4, 2), "'input' has 6 elements"),
        ((-1, -1), "more than one -1"),
        ((-1, 4), "-1 cannot stand for 6 elements"),
        ((-1, 0), "-1 cannot stand for 6 elements"),
        ((0, 6), "'input' has 6 elements"),
        ((-2, -3), "negative extent"),
    ],
)
def test_reshape_refuses_a_target_that_does_not_fit(target: tuple[int, ...], message: str) -> None:
    refuses(RESHAPE, [tensor(F32, [1, 2, 3, 4, 5, 6]), ints(*target)], [output(F32)], message)


def test_reshape_refuses_more_dimensions_than_are_computed_with() -> None:
    refuses(RESHAPE, [tensor(F32, [1]), ints(*[1] * 17)], [output(F32)], "at most 16 fit")


def test_reshape_refuses_a_target_that_is_not_a_vector() -> None:
    refuses(RESHAPE, [tensor(F32, [1, 2]), tensor(I32, [[2, 1]])], [output(F32)], "not rank 1")


def test_reshape_refuses_another_scale_on_the_model_output() -> None:
    refuses(
        RESHAPE,
        [tensor(Q8, [1, 2], 0.5, 7), ints(2, 1)],
        [output(Q8, (2, 1), 0.25, 7)],
        "computes scale 0.5",
    )


def test_reshape_rejects_rank_five() -> None:
    rejects(RESHAPE, [tensor(F32, [[[[[1.0]]]]]), ints(1)], [output(F32)], "has rank 5")


def test_reshape_of_omitted_input_is_an_invalid_argument() -> None:
    refuses(
        RESHAPE,
        [omitted(F32), ints(1)],
        [output(F32)],
        "'input' is omitted",
        ErrorStatus.INVALID_ARGUMENT,
    )


@given(extents, st.data())
def test_expand_dims_inserts_one_where_numpy_does(shape: list[int], draw: st.DataObject) -> None:
    x = np.arange(math.prod(shape), dtype=np.int32).reshape(shape)
    axis = draw.draw(st.integers(-len(shape) - 1, len(shape)))
    [y] = run(EXPAND_DIMS, [tensor(I32, x), scalar(axis)], [output(I32)])
    np.testing.assert_array_equal(y, np.expand_dims(x, axis))
    assert y.shape == np.expand_dims(x, axis).shape


@pytest.mark.parametrize("axis", [-4, 3])
def test_expand_dims_refuses_an_axis_outside(axis: int) -> None:
    refuses(EXPAND_DIMS, [tensor(F32, [[1.0]]), scalar(axis)], [output(F32)], "expected [-3, 2]")


def test_squeeze_drops_listed_dimensions_counted_from_either_end_and_twice() -> None:
    x = np.arange(6, dtype=np.float32).reshape(1, 2, 1, 3)
    [y] = run(SQUEEZE, [tensor(F32, x), ints(0, -2, 2, 0)], [output(F32)])
    np.testing.assert_array_equal(y, x.reshape(2, 3))


def test_squeeze_keeps_unlisted_extents_of_one() -> None:
    [y] = run(SQUEEZE, [tensor(Q8, [[[5]]], 1.0, 3), ints(1)], [output(Q8, (1, 1), 1.0, 3)])
    assert y.shape == (1, 1)


@given(extents)
def test_squeeze_without_list_drops_every_extent_of_one(shape: list[int]) -> None:
    x = np.arange(math.prod(shape), dtype=np.float16).reshape(shape)
    [y] = run(SQUEEZE, [tensor(F16, x), omitted(I32)], [output(F16)])
    np.testing.assert_array_equal(y, np.atleast_1d(x.squeeze()))
    assert y.ndim >= 1


def test_squeeze_of_everything_gives_one_element() -> None:
    [y] = run(SQUEEZE, [tensor(F32, [[[4.0]]]), ints(0, 1, 2)], [output(F32)])
    np.testing.assert_array_equal(y, [4.0])


@pytest.mark.parametrize(
    ("dims", "message"),
    [
        ((0,), "are not all 1"),
        ((2,), "values [2], expected [-2, 1]"),
        ((-3,), "values [-3], expected"),
    ],
)
def test_squeeze_refuses_other_extents_and_axes_outside(
    dims: tuple[int, ...], message: str
) -> None:
    refuses(SQUEEZE, [tensor(F32, [[1], [2]]), ints(*dims)], [output(F32)], message)


def test_squeeze_rejects_rank_five() -> None:
    rejects(SQUEEZE, [tensor(F32, [[[[[1.0]]]]]), ints(0)], [output(F32)], "has rank 5")


@pytest.mark.parametrize("dimensions", [(), (1, 1)])
def test_squeeze_rejects_dims_without_value_that_are_not_a_vector(
    dimensions: tuple[int, ...],
) -> None:
    x = Operand(F32, (1, 2))
    dims = Operand(I32, dimensions, lifetime=OperandLifeTime.NO_VALUE)
    with pytest.raises(InvalidArgument, match="'squeeze_dims' has rank"):
        REGISTRY[SQUEEZE].signature.match([x, dims], [Operand(F32, (2,))])


def test_squeeze_takes_no_integers() -> None:
    rejects(SQUEEZE, [tensor(I32, [[1]]), ints(0)], [output(I32)], "'input' is TENSOR_INT32")


def test_expand_dims_rejects_an_axis_tensor() -> None:
    rejects(EXPAND_DIMS, [tensor(F16, [1.0]), ints(0)], [output(F16)], f"expected {INT32.name}")
