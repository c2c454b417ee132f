"""DEPTH_TO_SPACE, SPACE_TO_DEPTH, BATCH_TO_SPACE_ND, SPACE_TO_BATCH_ND."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given
from hypothesis import strategies as st

from executor.refusal import refuses
from executor.run_operation import Given, output, run, scalar, tensor
from nnburst.executor.graph.declarations import F16, F32, I32, Q8, Q8S
from nnburst.executor.graph.tensor import Array
from nnburst.hal.enums import ErrorStatus, OperationType

D2S = OperationType.DEPTH_TO_SPACE
S2D = OperationType.SPACE_TO_DEPTH
B2S = OperationType.BATCH_TO_SPACE_ND
S2B = OperationType.SPACE_TO_BATCH_ND

small = st.integers(1, 3)


def counting(*shape: int) -> Array:
    return np.arange(np.prod(shape), dtype=np.float32).reshape(shape)


def ints(values: npt.ArrayLike) -> Given:
    return tensor(I32, values)


def to_nchw(x: Array) -> Array:
    return np.ascontiguousarray(x.transpose(0, 3, 1, 2))


def test_depth_to_space_puts_channel_groups_row_by_row_into_a_block() -> None:
    x = tensor(F32, np.arange(8).reshape(1, 1, 1, 8))
    [y] = run(D2S, [x, scalar(2)], [output(F32)])
    np.testing.assert_array_equal(y, [[[[0, 1], [2, 3]], [[4, 5], [6, 7]]]])


@given(small, small, small, small, small, st.booleans())
def test_space_to_depth_undoes_depth_to_space(
    n: int, h: int, w: int, c: int, block: int, nchw: bool
) -> None:
    x = counting(n, h, w, c * block**2)
    x = to_nchw(x) if nchw else x
    args = [scalar(block), scalar(nchw)]
    [y] = run(D2S, [tensor(F32, x), *args], [output(F32)])
    assert y.shape == ((n, c, h * block, w * block) if nchw else (n, h * block, w * block, c))
    [z] = run(S2D, [tensor(F32, y), *args], [output(F32)])
    np.testing.assert_array_equal(z, x)


@given(small, small, small, small, small)
def test_depth_to_space_is_the_same_in_both_layouts(
    n: int, h: int, w: int, c: int, block: int
) -> None:
    x = counting(n, h, w, c * block**2)
    [nhwc] = run(D2S, [tensor(F32, x), scalar(block), scalar(False)], [output(F32)])
    [nchw] = run(D2S, [tensor(F32, to_nchw(x)), scalar(block), scalar(True)], [output(F32)])
    np.testing.assert_array_equal(nchw, to_nchw(nhwc))


def test_space_to_depth_takes_blocks_row_by_row() -> None:
    x = tensor(Q8S, np.arange(4).reshape(1, 2, 2, 1), 0.5, -1)
    [y] = run(S2D, [x, scalar(2)], [output(Q8S, (), 0.5, -1)])
    np.testing.assert_array_equal(y, [[[[0, 1, 2, 3]]]])


@pytest.mark.parametrize(
    ("kind", "shape", "block", "message"),
    [
        (D2S, (1, 1, 1, 6), 2, "has 6 channels"),
        (D2S, (1, 1, 1, 4), 0, "'block_size' is 0"),
        (D2S, (1, 1, 4), 2, "has rank 3"),
        (S2D, (1, 2, 3, 1), 2, "height 2 and width 3"),
        (S2D, (1, 3, 2, 1), 2, "height 3 and width 2"),
        (S2D, (1, 2, 2, 1), -1, "'block_size' is -1"),
    ],
)
def test_depth_operations_refuse_blocks_that_do_not_fit(
    kind: OperationType, shape: tuple[int, ...], block: int, message: str
) -> None:
    refuses(kind, [tensor(F32, counting(*shape)), scalar(block)], [output(F32)], message)


def test_batch_to_space_puts_the_slowest_batches_into_the_lower_rows() -> None:
    x = tensor(F16, np.arange(8).reshape(8, 1, 1, 1))
    [y] = run(B2S, [x, ints([2, 2])], [output(F16)])
    np.testing.assert_array_equal(y.reshape(2, 2, 2), [[[0, 2], [4, 6]], [[1, 3], [5, 7]]])


def test_space_to_batch_pads_with_the_zero_point() -> None:
    x = tensor(Q8, np.array([5, 6]).reshape(1, 1, 2, 1), 0.5, 9)
    args = [ints([1, 2]), ints([[0, 0], [1, 1]])]
    [y] = run(S2B, [x, *args], [output(Q8, (), 0.5, 9)])
    np.testing.assert_array_equal(y.reshape(2, 2), [[9, 6], [5, 9]])


@given(small, small, small, small, small, small, st.booleans())
def test_batch_to_space_undoes_space_to_batch(
    n: int, h: int, w: int, c: int, bh: int, bw: int, nchw: bool
) -> None:
    x = counting(n, h * bh, w * bw, c)
    x = to_nchw(x) if nchw else x
    block, layout = ints([bh, bw]), scalar(nchw)
    none = ints([[0, 0], [0, 0]])
    [y] = run(S2B, [tensor(F32, x), block, none, layout], [output(F32)])
    assert y.shape == ((n * bh * bw, c, h, w) if nchw else (n * bh * bw, h, w, c))
    [z] = run(B2S, [tensor(F32, y), block, layout], [output(F32)])
    np.testing.assert_array_equal(z, x)


@given(st.lists(st.integers(0, 3), min_size=4, max_size=4), small, small, st.booleans())
def test_space_to_batch_is_the_same_of_a_padded_input(
    pads: list[int], bh: int, bw: int, nchw: bool
) -> None:
    top, bottom, left, right = pads
    x = counting(2, 3, 2, 2)
    bottom += -(3 + top + bottom) % bh
    right += -(2 + left + right) % bw
    padded = np.pad(x, [(0, 0), (top, bottom), (left, right), (0, 0)])
    swap = to_nchw if nchw else np.asarray
    block, layout = ints([bh, bw]), scalar(nchw)
    amounts, none = ints([[top, bottom], [left, right]]), ints([[0, 0], [0, 0]])
    [y] = run(S2B, [tensor(F32, swap(x)), block, amounts, layout], [output(F32)])
    [z] = run(S2B, [tensor(F32, swap(padded)), block, none, layout], [output(F32)])
    np.testing.assert_array_equal(y, z)


@pytest.mark.parametrize(
    ("block", "pads", "message"),
    [
        ([2, 2], [[0, 0], [0, 0]], "no multiple of 2 x 2"),
        ([0, 1], [[0, 0], [0, 0]], "'block_shape' is [0, 1]"),
        ([1, 1, 1], [[0, 0], [0, 0]], "has 3 elements, expected 2"),
        ([1, 1], [[0, -1], [0, 0]], "expected no negative value"),
        ([1, 1], [0, 0, 0, 0], "expected (2, 2)"),
    ],
)
def test_space_to_batch_refuses_blocks_and_paddings_that_do_not_fit(
    block: list[int], pads: npt.ArrayLike, message: str
) -> None:
    x = tensor(F32, counting(1, 2, 3, 1))
    refuses(S2B, [x, ints(block), ints(pads)], [output(F32)], message)


def test_batch_to_space_refuses_batches_that_do_not_fit() -> None:
    x = tensor(F32, counting(3, 1, 1, 1))
    refuses(B2S, [x, ints([1, 2])], [output(F32)], "has 3 batches")


def test_batch_to_space_refuses_other_quantisation_of_the_output() -> None:
    x = tensor(Q8, [[[[1]]]], 0.5, 2)
    refuses(B2S, [x, ints([1, 1])], [output(Q8, (), 0.5, 3)], "zero point 2")


@pytest.mark.parametrize("kind", [D2S, S2D])
def test_an_omitted_block_size_is_an_invalid_argument(kind: OperationType) -> None:
    x, missing = tensor(F32, counting(1, 1, 1, 1)), Given(scalar(1).type, None)
    refuses(kind, [x, missing], [output(F32)], "is omitted", ErrorStatus.INVALID_ARGUMENT)
