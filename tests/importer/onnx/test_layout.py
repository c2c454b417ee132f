from __future__ import annotations

import math

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from nnburst.importer.onnx.tensor import (
    Order,
    collapsed,
    identity,
    merged,
    permuted,
    removed,
    reshaped,
)

extents = st.lists(st.integers(1, 4), min_size=1, max_size=6).map(tuple)


@st.composite
def stored_shapes(draw: st.DrawFn) -> tuple[tuple[int, ...], Order]:
    shape = draw(extents)
    return shape, tuple(draw(st.permutations(range(len(shape)))))


@st.composite
def other_shape(draw: st.DrawFn, elements: int) -> tuple[int, ...]:
    found = []
    while elements > 1:
        factor = draw(st.sampled_from([d for d in range(2, elements + 1) if elements % d == 0]))
        found.append(factor)
        elements //= factor
        if draw(st.booleans()):
            found.append(1)
    return tuple(found) or (1,)


@given(stored_shapes(), st.data())
def test_reshaped_elements_are_those_that_numpy_gives(
    stored: tuple[tuple[int, ...], Order], data: st.DataObject
) -> None:
    shape, order = stored
    new = data.draw(other_shape(math.prod(shape)))
    logical = np.arange(math.prod(shape)).reshape(shape)
    needed, new_order = reshaped(shape, order, new)
    elements = logical.transpose(needed).reshape(-1)
    seen = elements.reshape(permuted(new, new_order)).transpose(np.argsort(new_order))
    np.testing.assert_array_equal(seen, logical.reshape(new))


@given(stored_shapes(), st.data())
def test_collapsed_change_of_order_moves_every_element_to_its_place(
    stored: tuple[tuple[int, ...], Order], data: st.DataObject
) -> None:
    shape, have = stored
    want = tuple(data.draw(st.permutations(range(len(shape)))))
    logical = np.arange(math.prod(shape)).reshape(shape)
    dims, permutation = collapsed(shape, have, want)
    moved = logical.transpose(have).reshape(dims).transpose(permutation)
    np.testing.assert_array_equal(moved.reshape(-1), logical.transpose(want).reshape(-1))


@given(extents, st.data())
def test_merged_shapes_broadcast_to_the_same_elements(
    shape: tuple[int, ...], data: st.DataObject
) -> None:
    keep = [
        data.draw(st.lists(st.booleans(), min_size=len(shape), max_size=len(shape))) for _ in "xy"
    ]
    x, y = (tuple(e if k else 1 for e, k in zip(shape, kept, strict=True)) for kept in keep)
    result = np.broadcast_shapes(x, y)
    a, b = np.arange(math.prod(x)), 100 * np.arange(math.prod(y))
    small = merged([x, y, result])
    assert len(small[0]) == len(small[1]) == len(small[2]) <= max(len(shape), 1)
    expected = a.reshape(x) + b.reshape(y)
    np.testing.assert_array_equal(
        (a.reshape(small[0]) + b.reshape(small[1])).reshape(-1), expected.reshape(-1)
    )


def test_a_split_of_channels_moves_nothing() -> None:
    order = (0, 2, 3, 1)
    needed, new = reshaped((1, 6, 5, 4), order, (1, 2, 3, 5, 4))
    assert needed == order
    assert [axis for axis in new if axis] == [3, 4, 1, 2]


def test_rows_and_columns_join_without_a_move() -> None:
    order = (0, 2, 3, 1)
    assert reshaped((1, 6, 5, 4), order, (1, 6, 20))[0] == order


def test_channels_and_rows_that_join_are_brought_together() -> None:
    needed, _ = reshaped((1, 6, 5, 4), (0, 2, 3, 1), (1, 120))
    assert [axis for axis in needed if axis] == [1, 2, 3]


def test_an_axis_that_is_taken_out_leaves_the_order_of_the_others() -> None:
    assert removed((1, 2, 0, 3), [1]) == (1, 0, 2)
    assert identity(0) == ()
