"""SLICE, STRIDED_SLICE, SPLIT."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from executor.refusal import refuses, rejects
from executor.run_operation import Given, output, run, scalar, tensor
from nnburst.executor.graph.declarations import F16, F32, I32, Q8, Q8S
from nnburst.executor.graph.tensor import Array
from nnburst.hal.enums import ErrorStatus, OperationType

SLICE = OperationType.SLICE
STRIDED_SLICE = OperationType.STRIDED_SLICE
SPLIT = OperationType.SPLIT

extents = st.lists(st.integers(1, 4), min_size=1, max_size=4)


def ints(values: Sequence[int]) -> Given:
    return tensor(I32, values)


def counting(shape: Sequence[int]) -> Array:
    return np.arange(np.prod(shape), dtype=np.float32).reshape(shape)


def strided(
    x: Given, begin: Sequence[int], end: Sequence[int], strides: Sequence[int], *masks: int
) -> list[Given]:
    begin_mask, end_mask, shrink_mask = (*masks, 0, 0, 0)[:3]
    steps = [ints(begin), ints(end), ints(strides)]
    return [x, *steps, scalar(begin_mask), scalar(end_mask), scalar(shrink_mask)]


@given(extents, st.data())
def test_slice_takes_the_box(shape: list[int], draw: st.DataObject) -> None:
    x = counting(shape)
    begin = [draw.draw(st.integers(0, d)) for d in shape]
    end = [draw.draw(st.integers(b, d)) for b, d in zip(begin, shape, strict=True)]
    sizes = [e - b for b, e in zip(begin, end, strict=True)]
    [y] = run(SLICE, [tensor(F32, x), ints(begin), ints(sizes)], [output(F32)])
    wanted = x[tuple(slice(b, e) for b, e in zip(begin, end, strict=True))]
    np.testing.assert_array_equal(y, wanted)
    assert y.shape == wanted.shape


def test_slice_size_minus_one_goes_to_the_end() -> None:
    [y] = run(SLICE, [tensor(I32, [1, 2, 3]), ints([1]), ints([-1])], [output(I32)])
    np.testing.assert_array_equal(y, [2, 3])


def test_slice_keeps_stored_values_whatever_the_outputs_quantisation() -> None:
    x = tensor(Q8, [7, 8], 0.5, 1)
    [y] = run(SLICE, [x, ints([1]), ints([1])], [output(Q8, (1,), 0.25, 0)])
    np.testing.assert_array_equal(y, [8])


@pytest.mark.parametrize(
    ("begin", "size"), [([-1], [1]), ([0], [4]), ([3], [1]), ([4], [0]), ([0], [-2]), ([4], [-1])]
)
def test_slice_refuses_a_box_outside(begin: list[int], size: list[int]) -> None:
    args = [tensor(F32, [1, 2, 3]), ints(begin), ints(size)]
    refuses(SLICE, args, [output(F32)], "leave 'input' (3,)")


@pytest.mark.parametrize(("begin", "size"), [([0, 0], [1]), ([0], [1, 1])])
def test_slice_refuses_bounds_of_another_length(begin: list[int], size: list[int]) -> None:
    args = [tensor(F32, [1, 2, 3]), ints(begin), ints(size)]
    refuses(SLICE, args, [output(F32)], "has 2 elements, expected 1")


@given(extents, st.data())
def test_strided_slice_is_numpys_where_bounds_lie_inside(
    shape: list[int], draw: st.DataObject
) -> None:
    x = counting(shape)
    parts, begin, end, strides = [], [], [], []
    for d in shape:
        step = draw.draw(st.sampled_from([-3, -2, -1, 1, 2, 3]))
        first = draw.draw(st.integers(-d, d - 1))
        last = draw.draw(st.integers(-d, d - 1))
        parts.append(slice(first, last, step))
        begin.append(first)
        end.append(last)
        strides.append(step)
    wanted = x[tuple(parts)]
    [y] = run(STRIDED_SLICE, strided(tensor(F32, x), begin, end, strides), [output(F32)])
    np.testing.assert_array_equal(y, wanted)
    assert y.shape == wanted.shape


@pytest.mark.parametrize(
    ("begin", "end", "stride", "wanted"),
    [
        (1, 3, 1, [1, 2]),
        (-3, 9, 2, [1, 3]),
        (-9, 2, 1, [0, 1]),
        (9, 9, 1, []),
        (3, 0, -1, [3, 2, 1]),
        (9, -9, -2, [3, 1]),
        (3, -5, -1, [3, 2, 1, 0]),
        (3, -1, -1, []),
        (-9, 3, -1, []),
    ],
)
def test_strided_slice_bounds_wrap_once_and_are_clamped(
    begin: int, end: int, stride: int, wanted: list[int]
) -> None:
    x = tensor(F32, [0, 1, 2, 3])
    [y] = run(STRIDED_SLICE, strided(x, [begin], [end], [stride]), [output(F32)])
    np.testing.assert_array_equal(y, wanted)


@pytest.mark.parametrize(
    ("stride", "begin_mask", "end_mask", "wanted"),
    [
        (1, 1, 0, [0, 1]),
        (1, 0, 1, [1, 2, 3]),
        (1, 1, 1, [0, 1, 2, 3]),
        (-1, 1, 0, [3]),
        (-1, 0, 1, [1, 0]),
        (-2, 1, 1, [3, 1]),
    ],
)
def test_strided_slice_masks_open_the_bounds(
    stride: int, begin_mask: int, end_mask: int, wanted: list[int]
) -> None:
    args = strided(tensor(F16, [0, 1, 2, 3]), [1], [2], [stride], begin_mask, end_mask)
    [y] = run(STRIDED_SLICE, args, [output(F16)])
    np.testing.assert_array_equal(y, wanted)


def test_strided_slice_mask_bits_name_dimensions() -> None:
    x = counting((2, 3))
    args = strided(tensor(F32, x), [1, 1], [2, 2], [1, 1], 0b10, 0b01)
    [y] = run(STRIDED_SLICE, args, [output(F32)])
    np.testing.assert_array_equal(y, [[3, 4]])


def test_strided_slice_drops_shrunk_dimensions_and_keeps_one_of_all() -> None:
    x = tensor(Q8S, [[1, 2], [3, 4]], 0.5, 1)
    args = strided(x, [1, 0], [2, 2], [1, 1], 0, 0, 0b01)
    [y] = run(STRIDED_SLICE, args, [output(Q8S, (2,), 0.5, 1)])
    np.testing.assert_array_equal(y, [3, 4])
    args = strided(x, [1, 0], [2, 1], [1, 1], 0, 0, 0b11)
    [y] = run(STRIDED_SLICE, args, [output(Q8S, (1,), 0.5, 1)])
    np.testing.assert_array_equal(y, [3])


@pytest.mark.parametrize(
    ("end", "stride", "shrink", "message"),
    [
        (2, 0, 0, "expected no 0"),
        (2, 1, 1, "drops dimension 0, which has 2 elements"),
        (0, 1, 1, "drops dimension 0, which has 0 elements"),
        (-5, -1, 1, "drops dimension 0"),
    ],
)
def test_strided_slice_refuses_zero_steps_and_dropping_other_extents(
    end: int, stride: int, shrink: int, message: str
) -> None:
    args = strided(tensor(F32, [0, 1, 2, 3]), [0], [end], [stride], 0, 0, shrink)
    refuses(STRIDED_SLICE, args, [output(F32)], message)


def test_strided_slice_refuses_bounds_of_another_length() -> None:
    args = strided(tensor(F32, [0, 1]), [0], [1], [1, 1])
    refuses(STRIDED_SLICE, args, [output(F32)], "'strides' has 2 elements, expected 1")


def test_strided_slice_rejects_rank_five() -> None:
    zeros, ones = [0] * 5, [1] * 5
    args = strided(tensor(F32, counting(ones)), zeros, ones, ones)
    rejects(STRIDED_SLICE, args, [output(F32)], "has rank 5")


@given(extents, st.integers(1, 4), st.data())
def test_concatenating_the_parts_of_a_split_gives_the_input(
    shape: list[int], parts: int, draw: st.DataObject
) -> None:
    axis = draw.draw(st.integers(-len(shape), len(shape) - 1))
    shape[axis] *= parts
    x = counting(shape)
    found = run(SPLIT, [tensor(F32, x), scalar(axis), scalar(parts)], [output(F32)] * parts)
    assert len({y.shape for y in found}) == 1
    np.testing.assert_array_equal(np.concatenate(found, axis), x)


def test_split_forces_the_quantisation_of_every_part() -> None:
    args = [tensor(Q8, [1, 2], 0.5, 1), scalar(0), scalar(2)]
    outputs = [output(Q8, (1,), 0.5, 1), output(Q8, (1,), 0.5, 2)]
    refuses(SPLIT, args, outputs, "computes scale 0.5 and zero point 1")


@pytest.mark.parametrize(
    ("axis", "message"), [(1, "does not divide 3"), (2, "'axis' is 2"), (-3, "'axis' is -3")]
)
def test_split_refuses_axes_and_parts_that_do_not_fit(axis: int, message: str) -> None:
    args = [tensor(F32, counting((2, 3))), scalar(axis), scalar(2)]
    refuses(SPLIT, args, [output(F32)] * 2, message)


@pytest.mark.parametrize("parts", [0, 1, 3])
def test_split_into_another_number_of_outputs_is_an_invalid_argument(parts: int) -> None:
    args = [tensor(F32, counting((6,))), scalar(0), scalar(parts)]
    wanted = "expected the number of outputs 2"
    refuses(SPLIT, args, [output(F32)] * 2, wanted, ErrorStatus.INVALID_ARGUMENT)
