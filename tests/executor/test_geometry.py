from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from executor.plain_windows import same_padding
from nnburst.executor.graph import windows
from nnburst.executor.graph.windows import SAME, VALID, Axis, row_chunks

small = st.integers(1, 7)
axes = st.builds(
    Axis, small, small, small, st.integers(0, 3), st.integers(0, 3), st.integers(1, 3)
).filter(lambda axis: axis.output > 0 and axis.head < axis.span and axis.tail < axis.span)


@given(st.integers(1, 20), small, small, st.integers(1, 3))
def test_same_padding_keeps_one_window_per_stride_and_the_smaller_half_first(
    size: int, filter_size: int, stride: int, dilation: int
) -> None:
    head, tail = windows.implicit_padding(SAME, size, filter_size, stride, dilation)
    assert (head, tail) == same_padding(size, filter_size, stride, dilation)
    assert 0 <= tail - head <= 1
    extent = windows.output_extent(size, filter_size, stride, head, tail, dilation)
    assert extent == -(-size // stride)


def test_valid_and_unknown_schemes_do_not_pad() -> None:
    assert windows.implicit_padding(VALID, 5, 3, 1) == (0, 0)
    assert windows.implicit_padding(7, 5, 3, 1) == (0, 0)
    assert windows.transposed_implicit_padding(VALID, 5, 3, 1) == (0, 0)


def test_transposed_padding_has_a_negative_tail_where_the_filter_is_too_short() -> None:
    assert windows.transposed_implicit_padding(SAME, 6, 1, 3) == (0, -2)
    assert windows.transposed_output_extent(2, 1, 3, 0, -2) == 6
    assert windows.transposed_implicit_padding(SAME, 5, 4, 2) == (1, 2)


@given(st.integers(1, 20), small, small)
def test_transposed_same_padding_gives_the_wanted_extent(
    output: int, filter_size: int, stride: int
) -> None:
    head, tail = windows.transposed_implicit_padding(SAME, output, filter_size, stride)
    size = -(-output // stride)
    found = windows.transposed_output_extent(size, filter_size, stride, head, tail)
    assert found == output


@given(axes)
def test_meetings_are_all_pairs_of_cells_and_windows_inside_the_input(axis: Axis) -> None:
    found = {
        (cell, seen, window)
        for cell, inputs, windows in windows.meetings(axis)
        for seen, window in zip(
            range(inputs.start, inputs.stop, inputs.step),
            range(windows.start, windows.stop),
            strict=True,
        )
    }
    wanted = {
        (cell, at, window)
        for window in range(axis.output)
        for cell in range(axis.filter)
        if 0 <= (at := window * axis.stride + cell * axis.dilation - axis.head) < axis.size
    }
    assert found == wanted


@given(axes)
def test_windows_see_the_cells_that_they_meet(axis: Axis) -> None:
    axis = replace(axis, dilation=1, head=min(axis.head, axis.filter - 1), tail=0)
    if axis.output > 0:
        met = [
            {
                window * axis.stride + cell - axis.head
                for cell, _, windows in windows.meetings(axis)
                if windows.start <= window < windows.stop
            }
            for window in range(axis.output)
        ]
        assert [set(range(axis.size)[part]) for part in windows.seen_by_windows(axis)] == met


@given(axes, axes)
def test_windows_view_the_padded_image(height: Axis, width: Axis) -> None:
    padded = np.arange(2 * height.padded * width.padded * 3).reshape(
        2, height.padded, width.padded, 3
    )
    views = windows.windows(padded, height, width)
    for y, x, i, j in np.ndindex(*views.shape[1:5]):
        row = y * height.stride + i * height.dilation
        column = x * width.stride + j * width.dilation
        assert (views[:, y, x, i, j] == padded[:, row, column]).all()
    assert not views.flags.writeable


@given(axes)
def test_padded_extent_ends_with_the_last_window(axis: Axis) -> None:
    target, used = axis.inside
    assert target.start == axis.head
    assert target.stop - target.start == used.stop - used.start
    assert target.stop <= axis.padded <= axis.head + axis.size + axis.tail


def test_a_huge_filter_is_tried_only_where_it_meets_the_input() -> None:
    axis = Axis(size=3, filter=2**31 - 1, stride=1, head=2**31 - 3, tail=0)
    assert axis.output == 2
    assert len(windows.meetings(axis)) <= 4


def test_layouts_are_views_of_each_other() -> None:
    image = np.arange(24).reshape(1, 2, 3, 4)
    assert windows.nhwc(image, nchw=False) is image
    view = windows.nhwc(image, nchw=True)
    assert view.shape == (1, 3, 4, 2)
    assert np.shares_memory(view, image)
    assert windows.nhwc_extents(image.shape, nchw=True) == view.shape
    assert windows.in_layout(*view.shape, nchw=True) == image.shape


@given(st.integers(0, 9), st.integers(1, 9), st.integers(1, 500), st.integers(1, 2000))
def test_chunks_cover_every_row_once_and_keep_to_the_budget(
    batches: int, rows: int, row_bytes: int, budget: int
) -> None:
    covered = np.zeros((batches, rows), int)
    for some_batches, some_rows in row_chunks(batches, rows, row_bytes, budget):
        covered[some_batches, some_rows] += 1
        size = covered[some_batches, some_rows].size
        assert size == 1 or size * row_bytes <= budget
    assert (covered == 1).all()
