"""RESIZE_BILINEAR and RESIZE_NEAREST_NEIGHBOR."""

from __future__ import annotations

import math
import tracemalloc

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from executor.refusal import refuses, rejects
from executor.run_operation import Given, output, run, scalar, tensor
from nnburst.executor.graph.declarations import F16, F32, FLOAT16, FLOAT32, Q8, Q8S
from nnburst.executor.graph.tensor import Array
from nnburst.hal.enums import OperandType, OperationType

BILINEAR = OperationType.RESIZE_BILINEAR
NEAREST = OperationType.RESIZE_NEAREST_NEIGHBOR
BOTH = pytest.mark.parametrize("kind", [BILINEAR, NEAREST])

small = st.integers(1, 5)
flags = st.sampled_from([(False, False), (True, False), (False, True)])


def image(h: int, w: int, c: int = 1) -> Array:
    rng = np.random.default_rng(100 * h + 10 * w + c)
    return rng.uniform(-10, 10, (2, h, w, c)).astype(np.float32)


def options(nchw: bool = False, align: bool = False, half: bool = False) -> list[Given]:
    return [scalar(nchw), scalar(align), scalar(half)]


def to_nchw(x: Array) -> Array:
    return np.ascontiguousarray(x.transpose(0, 3, 1, 2))


def position(k: int, have: int, want: int, align: bool, half: bool, shift: float) -> float:
    scale = (have - 1) / (want - 1) if align and want > 1 else have / want
    return (k + 0.5) * scale - shift if half else k * scale


def bilinear_pixel(row: Array, k: int, want: int, align: bool, half: bool) -> Array:
    """One output of a one-dimensional resize, in float64."""
    at = min(max(position(k, len(row), want, align, half, 0.5), 0.0), len(row) - 1)
    low = math.floor(at)
    return row[low] + (at - low) * (row[math.ceil(at)] - row[low])


def test_bilinear_weights_the_four_neighbours() -> None:
    x = tensor(F32, np.array([[1, 3], [5, 9]]).reshape(1, 2, 2, 1))
    [y] = run(BILINEAR, [x, scalar(4), scalar(4)], [output(F32)])
    wanted = [[1, 2, 3, 3], [3, 4.5, 6, 6], [5, 7, 9, 9], [5, 7, 9, 9]]
    np.testing.assert_array_equal(y.reshape(4, 4), wanted)


def test_width_comes_before_height() -> None:
    x = tensor(F32, np.zeros((1, 2, 2, 3)))
    assert run(BILINEAR, [x, scalar(5), scalar(7)], [output(F32)])[0].shape == (1, 7, 5, 3)
    nearest = [x, scalar(5), scalar(7), scalar(False)]
    assert run(NEAREST, nearest, [output(F32)])[0].shape == (1, 7, 5, 3)


@given(small, small, small, small, flags)
def test_bilinear_is_linear_in_rows_and_columns(
    h: int, w: int, height: int, width: int, both: tuple[bool, bool]
) -> None:
    x, (align, half) = image(h, w, 2), both
    args = [tensor(F32, x), scalar(width), scalar(height), *options(False, align, half)]
    [y] = run(BILINEAR, args, [output(F32)])
    wide = np.moveaxis(x.astype(np.float64), 1, 0)
    rows = np.stack([bilinear_pixel(wide, k, height, align, half) for k in range(height)])
    rows = np.moveaxis(rows, 2, 0)
    wanted = np.stack([bilinear_pixel(rows, k, width, align, half) for k in range(width)])
    np.testing.assert_allclose(y, wanted.transpose(2, 1, 0, 3), rtol=1e-4, atol=1e-4)


@given(small, small, small, small, flags)
def test_nearest_copies_the_pixel_of_its_rule(
    h: int, w: int, height: int, width: int, both: tuple[bool, bool]
) -> None:
    x, (align, half) = image(h, w), both
    args = [tensor(F32, x), scalar(width), scalar(height), *options(False, align, half)]
    [y] = run(NEAREST, args, [output(F32)])

    def pick(k: int, have: int, want: int) -> int:
        at = np.float32(position(k, have, want, align, half, 0.0))
        return min(math.floor(at + 0.5) if align else math.floor(at), have - 1)

    for i in range(height):
        for j in range(width):
            pixel = x[:, pick(i, h, height), pick(j, w, width)]
            np.testing.assert_array_equal(y[:, i, j], pixel)


@BOTH
@given(small, small, small, small, flags)
def test_both_layouts_give_the_same(
    kind: OperationType, h: int, w: int, height: int, width: int, both: tuple[bool, bool]
) -> None:
    x, sizes = image(h, w, 3), [scalar(width), scalar(height)]
    [nhwc] = run(kind, [tensor(F32, x), *sizes, *options(False, *both)], [output(F32)])
    [nchw] = run(kind, [tensor(F32, to_nchw(x)), *sizes, *options(True, *both)], [output(F32)])
    np.testing.assert_array_equal(nchw, to_nchw(nhwc))


@BOTH
@given(small, small, flags)
def test_resizing_to_the_same_size_changes_nothing(
    kind: OperationType, h: int, w: int, both: tuple[bool, bool]
) -> None:
    x = image(h, w)
    args = [tensor(F32, x), scalar(w), scalar(h), *options(False, *both)]
    [y] = run(kind, args, [output(F32)])
    np.testing.assert_array_equal(y, x)


@BOTH
@pytest.mark.parametrize(("type_", "scalar_type"), [(F32, FLOAT32), (F16, FLOAT16)])
def test_factors_are_multiplied_and_rounded_down(
    kind: OperationType, type_: OperandType, scalar_type: OperandType
) -> None:
    x = tensor(type_, np.arange(15).reshape(1, 5, 3, 1))
    factors = [scalar(1.5, scalar_type), scalar(0.5, scalar_type)]
    [y] = run(kind, [x, *factors, scalar(False)], [output(type_)])
    assert y.shape == (1, 2, 4, 1)
    [z] = run(kind, [x, scalar(4), scalar(2), scalar(False)], [output(type_)])
    np.testing.assert_array_equal(y, z)


@pytest.mark.parametrize(("kind", "shift"), [(Q8, 0), (Q8S, -128)])
def test_bilinear_rounds_stored_values_up_from_the_half(kind: OperandType, shift: int) -> None:
    values = np.array([100, 101, 3, 8]).reshape(1, 1, 4, 1) + shift
    args = [tensor(kind, values, 0.5, 4), scalar(8), scalar(1)]
    [y] = run(BILINEAR, args, [output(kind, (), 0.5, 4)])
    wanted = np.array([100, 101, 101, 52, 3, 6, 8, 8]) + shift
    np.testing.assert_array_equal(y.reshape(-1), wanted)


@given(st.lists(st.integers(0, 255), min_size=6, max_size=6), small, small, flags)
def test_signed_images_resize_as_their_unsigned_twins(
    values: list[int], height: int, width: int, both: tuple[bool, bool]
) -> None:
    unsigned = np.array(values).reshape(1, 2, 3, 1)
    for kind in (BILINEAR, NEAREST):
        rest = [scalar(width), scalar(height), *options(False, *both)]
        [a] = run(kind, [tensor(Q8, unsigned, 0.5, 3), *rest], [output(Q8, (), 0.5, 3)])
        signed = tensor(Q8S, unsigned - 128, 0.5, -125)
        [b] = run(kind, [signed, *rest], [output(Q8S, (), 0.5, -125)])
        assert np.abs(a.astype(int) - 128 - b).max() <= 1


@BOTH
@pytest.mark.parametrize(
    ("width", "height", "name"),
    [
        (scalar(0), scalar(1), "width"),
        (scalar(1), scalar(-1), "height"),
        (scalar(0.2), scalar(1.0), "width"),
        (scalar(1.0), scalar(math.nan), "height"),
        (scalar(math.inf), scalar(1.0), "width"),
        (scalar(1e30), scalar(1.0), "width"),
    ],
)
def test_a_size_below_one_or_beyond_integers_is_refused(
    kind: OperationType, width: Given, height: Given, name: str
) -> None:
    args = [tensor(F32, image(2, 2)), width, height, scalar(False)]
    refuses(kind, args, [output(F32)], f"operand '{name}' is")


@BOTH
def test_aligned_corners_with_half_pixels_are_refused(kind: OperationType) -> None:
    args = [tensor(F32, image(2, 2)), scalar(2), scalar(2), *options(False, True, True)]
    refuses(kind, args, [output(F32)], "are both true")


@BOTH
def test_other_ranks_and_mixed_sizes_are_rejected(kind: OperationType) -> None:
    rank_3 = tensor(F32, np.zeros((1, 2, 2)))
    rejects(kind, [rank_3, scalar(1), scalar(1), scalar(False)], [output(F32)], "has rank 3")
    mixed = [tensor(F32, image(2, 2)), scalar(1), scalar(1.0), scalar(False)]
    rejects(kind, mixed, [output(F32)], kind.name)


def test_nearest_requires_a_layout() -> None:
    args = [tensor(F32, image(2, 2)), scalar(1), scalar(1)]
    rejects(NEAREST, args, [output(F32)], "3 inputs")


@BOTH
def test_quantisation_of_the_output_is_the_inputs(kind: OperationType) -> None:
    args = [tensor(Q8, image(1, 1), 0.5, 3), scalar(1), scalar(1), scalar(False)]
    refuses(kind, args, [output(Q8, (2, 1, 1, 1), 0.5, 4)], "zero point 3")


@given(small, small, small, small, st.booleans())
def test_bilinear_products_are_rounded_in_one_order(
    h: int, w: int, height: int, width: int, nchw: bool
) -> None:
    """Value times the row's weight, times the column's; left column first: whatever shrinks."""
    x = image(h, w, 2)
    args = [tensor(F32, to_nchw(x) if nchw else x), scalar(width), scalar(height), *options(nchw)]
    [found] = run(BILINEAR, args, [output(F32)])

    def neighbours(have: int, want: int) -> list[tuple[Array, Array]]:
        at = np.arange(want, dtype=np.float32) * (np.float32(have) / np.float32(want))
        low = np.minimum(np.floor(at), have - 1)
        high = np.minimum(np.ceil(at), have - 1)
        return [(low.astype(int), np.float32(1) - (at - low)), (high.astype(int), at - low)]

    wanted = np.zeros((2, height, width, 2), np.float32)
    for columns, to_columns in neighbours(w, width):
        for rows, to_rows in neighbours(h, height):
            pixels = x[:, rows][:, :, columns]
            wanted += pixels * to_rows[:, None, None] * to_columns[:, None]
    np.testing.assert_array_equal(found, to_nchw(wanted) if nchw else wanted)


@BOTH
@pytest.mark.parametrize(("h", "w", "height", "width"), [(1, 2000, 5000, 1), (2000, 1, 1, 5000)])
def test_nothing_in_between_is_larger_than_the_input_and_the_output(
    kind: OperationType, h: int, w: int, height: int, width: int
) -> None:
    x = image(h, w)
    args = [tensor(F32, x), scalar(width), scalar(height), *options()]
    tracemalloc.start()
    try:
        run(kind, args, [output(F32)])
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < 2**22  # rows first would take 80 MB if they grow
