"""TRANSPOSE, REVERSE, CHANNEL_SHUFFLE."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given
from hypothesis import strategies as st

from executor.refusal import refuses, rejects
from executor.run_operation import Given, omitted, output, run, scalar, tensor
from nnburst.executor.graph.declarations import F16, F32, I32, Q8, Q8S
from nnburst.executor.graph.tensor import Array
from nnburst.hal.enums import OperationType

TRANSPOSE = OperationType.TRANSPOSE
REVERSE = OperationType.REVERSE
CHANNEL_SHUFFLE = OperationType.CHANNEL_SHUFFLE

extents = st.lists(st.integers(1, 4), min_size=1, max_size=4)


def ints(*values: int) -> Given:
    return tensor(I32, values)


def counting(shape: Sequence[int], dtype: npt.DTypeLike = np.float32) -> Array:
    return np.arange(math.prod(shape), dtype=dtype).reshape(shape)


def test_transpose_moves_dimension_perm_i_to_i() -> None:
    [y] = run(TRANSPOSE, [tensor(F32, counting((1, 2, 3))), ints(2, 0, 1)], [output(F32)])
    np.testing.assert_array_equal(y, [[[0, 3]], [[1, 4]], [[2, 5]]])


@given(extents, st.data())
def test_transposing_back_gives_the_input(shape: list[int], draw: st.DataObject) -> None:
    x = counting(shape, np.uint8)
    perm = draw.draw(st.permutations(range(len(shape))))
    meta = (0.5, 3)
    [y] = run(TRANSPOSE, [tensor(Q8, x, *meta), ints(*perm)], [output(Q8, (), *meta)])
    np.testing.assert_array_equal(y, x.transpose(perm))
    inverse = np.argsort(perm)
    [z] = run(TRANSPOSE, [tensor(Q8, y, *meta), ints(*inverse)], [output(Q8, (), *meta)])
    np.testing.assert_array_equal(z, x)


def test_transpose_without_permutation_swaps_a_matrix() -> None:
    [y] = run(TRANSPOSE, [tensor(F16, [[1, 2, 3]]), omitted(I32)], [output(F16)])
    np.testing.assert_array_equal(y, [[1], [2], [3]])


def test_transpose_without_permutation_refuses_other_ranks() -> None:
    refuses(TRANSPOSE, [tensor(F32, [1.0]), omitted(I32)], [output(F32)], "has rank 1, not 2")


@pytest.mark.parametrize("perm", [(0, 2), (-1, 0), (0, 0)])
def test_transpose_refuses_what_is_not_a_permutation(perm: tuple[int, ...]) -> None:
    refuses(
        TRANSPOSE, [tensor(F32, [[1.0]]), ints(*perm)], [output(F32)], "a permutation of 0 to 1"
    )


def test_transpose_refuses_a_permutation_of_another_length() -> None:
    refuses(TRANSPOSE, [tensor(F32, [[1.0]]), ints(0)], [output(F32)], "has 1 elements, expected 2")


def test_transpose_rejects_rank_five_and_integers() -> None:
    perm = ints(0, 1, 2, 3, 4)
    rejects(TRANSPOSE, [tensor(F32, [[[[[1.0]]]]]), perm], [output(F32)], "has rank 5")
    rejects(TRANSPOSE, [tensor(I32, [1]), ints(0)], [output(I32)], "TENSOR_INT32")


@given(st.lists(st.integers(1, 3), min_size=1, max_size=6), st.data())
def test_reverse_flips_one_dimension(shape: list[int], draw: st.DataObject) -> None:
    x = counting(shape, np.int32)
    axis = draw.draw(st.integers(0, len(shape) - 1))
    [y] = run(REVERSE, [tensor(I32, x), ints(axis)], [output(I32)])
    np.testing.assert_array_equal(y, np.flip(x, axis))


@pytest.mark.parametrize("axis", [-1, 2])
def test_reverse_refuses_negative_and_large_axes(axis: int) -> None:
    refuses(REVERSE, [tensor(F32, [[1.0]]), ints(axis)], [output(F32)], "expected [0, 1]")


@pytest.mark.parametrize("axis", [ints(0, 1), tensor(I32, [[0]])])
def test_reverse_rejects_an_axis_that_is_not_one_element(axis: Given) -> None:
    rejects(REVERSE, [tensor(F32, [[1.0]]), axis], [output(F32)], "'axis' has shape")


def test_reverse_rejects_other_quantisation_and_rank_of_the_output() -> None:
    x = tensor(Q8S, [[1, 2]], 0.5, 1)
    rejects(REVERSE, [x, ints(0)], [output(Q8S, (1, 2), 0.25, 1)], "has scale 0.5")
    rejects(REVERSE, [x, ints(0)], [output(Q8S, (2,), 0.5, 1)], "has rank 1, expected 2")


def test_reverse_rejects_rank_nine() -> None:
    rejects(REVERSE, [tensor(F32, np.zeros((1,) * 9)), ints(0)], [output(F32)], "has rank 9")


def test_channel_shuffle_interleaves_groups() -> None:
    x = tensor(F32, [[0, 1, 2, 3, 4, 5]])
    [y] = run(CHANNEL_SHUFFLE, [x, scalar(3), scalar(-1)], [output(F32)])
    np.testing.assert_array_equal(y, [[0, 2, 4, 1, 3, 5]])


@given(st.integers(1, 4), st.integers(1, 4), st.data())
def test_shuffling_with_groups_and_sizes_swapped_undoes_it(
    groups: int, size: int, draw: st.DataObject
) -> None:
    shape = draw.draw(extents)
    axis = draw.draw(st.integers(0, len(shape) - 1))
    shape[axis] = groups * size
    x = counting(shape)
    args = scalar(axis), [output(F32)]
    [y] = run(CHANNEL_SHUFFLE, [tensor(F32, x), scalar(groups), args[0]], args[1])
    [z] = run(CHANNEL_SHUFFLE, [tensor(F32, y), scalar(size), args[0]], args[1])
    np.testing.assert_array_equal(z, x)
    for i in range(size):
        for j in range(groups):
            np.testing.assert_array_equal(y.take(i * groups + j, axis), x.take(j * size + i, axis))


@pytest.mark.parametrize(
    ("groups", "axis", "message"),
    [
        (0, 0, "'groups' is 0"),
        (-2, 0, "'groups' is -2"),
        (4, 0, "does not divide 6"),
        (2, 1, "'axis' is 1"),
        (2, -2, "'axis' is -2"),
    ],
)
def test_channel_shuffle_refuses_groups_and_axes_that_do_not_fit(
    groups: int, axis: int, message: str
) -> None:
    x = tensor(F32, np.zeros(6))
    refuses(CHANNEL_SHUFFLE, [x, scalar(groups), scalar(axis)], [output(F32)], message)
