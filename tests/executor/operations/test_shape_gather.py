"""GATHER, TILE, FILL, RANK."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from executor.refusal import refuses, rejects
from executor.run_operation import Given, output, run, scalar, tensor
from nnburst.executor.graph.declarations import B8, F16, F32, FLOAT16, I32, INT32, Q8, Q16S, QPC
from nnburst.executor.graph.tensor import Array
from nnburst.hal.enums import ErrorStatus, OperandType, OperationType
from nnburst.hal.model import SymmPerChannelQuantParams

GATHER = OperationType.GATHER
TILE = OperationType.TILE
FILL = OperationType.FILL
RANK = OperationType.RANK

extents = st.lists(st.integers(1, 4), min_size=1, max_size=4)


def ints(*values: int) -> Given:
    return tensor(I32, values)


def counting(shape: list[int]) -> Array:
    return np.arange(np.prod(shape), dtype=np.int32).reshape(shape)


@given(extents, st.lists(st.integers(1, 3), min_size=1, max_size=2), st.data())
def test_gather_puts_the_shape_of_the_indices_in_place_of_the_axis(
    shape: list[int], picked: list[int], draw: st.DataObject
) -> None:
    x = counting(shape)
    axis = draw.draw(st.integers(-len(shape), len(shape) - 1))
    number = int(np.prod(picked))
    chosen = draw.draw(st.lists(st.integers(0, shape[axis] - 1), min_size=number, max_size=number))
    indices = np.array(chosen, np.int32).reshape(picked)
    [y] = run(GATHER, [tensor(I32, x), scalar(axis), tensor(I32, indices)], [output(I32)])
    np.testing.assert_array_equal(y, np.take(x, indices, axis))


def test_gather_keeps_stored_values_whatever_the_outputs_quantisation() -> None:
    args = [tensor(Q8, [7, 8], 0.5, 1), scalar(0), ints(1, 0, 1)]
    [y] = run(GATHER, args, [output(Q8, (3,), 0.25, 0)])
    np.testing.assert_array_equal(y, [8, 7, 8])


@pytest.mark.parametrize("index", [-1, 2, -(2**31), 2**31 - 1])
def test_gather_refuses_an_index_outside(index: int) -> None:
    args = [tensor(F32, [1, 2]), scalar(0), ints(0, index)]
    refuses(GATHER, args, [output(F32)], "expected [0, 1]")
    args[2] = tensor(I32, [0, index], constant=True)
    refuses(GATHER, args, [output(F32)], "expected [0, 1]")


@pytest.mark.parametrize("axis", [-2, 1])
def test_gather_refuses_an_axis_outside(axis: int) -> None:
    refuses(GATHER, [tensor(F32, [1]), scalar(axis), ints(0)], [output(F32)], f"'axis' is {axis}")


@given(extents, st.data())
def test_tile_is_numpys(shape: list[int], draw: st.DataObject) -> None:
    multiples = [draw.draw(st.integers(1, 3)) for _ in shape]
    x = counting(shape)
    [y] = run(TILE, [tensor(F16, x), ints(*multiples)], [output(F16)])
    np.testing.assert_array_equal(y, np.tile(x, multiples))


@pytest.mark.parametrize(
    ("multiples", "message"),
    [
        ([0], "expected more than 0"),
        ([-1], "expected more than 0"),
        ([1, 1], "has 2 elements, expected 1"),
    ],
)
def test_tile_refuses_multiples_that_do_not_fit(multiples: list[int], message: str) -> None:
    refuses(TILE, [tensor(F32, [1, 2]), ints(*multiples)], [output(F32)], message)


def test_tile_refuses_more_than_four_gigabytes() -> None:
    args = [tensor(F32, [[1, 2]]), ints(2**31 - 1, 2**31 - 1)]
    refuses(TILE, args, [output(F32)], "exceeds 2**32 - 1 bytes")


def test_tile_without_input_is_an_invalid_argument() -> None:
    refuses(
        TILE, [Given(F32, None), ints(1)], [output(F32)], "omitted", ErrorStatus.INVALID_ARGUMENT
    )


@pytest.mark.parametrize(
    ("kind", "value", "scalar_kind"),
    [(F32, 1.5, OperandType.FLOAT32), (F16, 0.1, FLOAT16), (I32, -7, INT32)],
)
def test_fill_gives_one_value_everywhere(
    kind: OperandType, value: float, scalar_kind: OperandType
) -> None:
    [y] = run(FILL, [ints(2, 3), scalar(value, scalar_kind)], [output(kind)])
    np.testing.assert_array_equal(y, np.full((2, 3), value, y.dtype))


@pytest.mark.parametrize("dims", [(2, 0), (-1,)])
def test_fill_refuses_extents_below_one(dims: tuple[int, ...]) -> None:
    refuses(FILL, [ints(*dims), scalar(1)], [output(I32)], "expected more than 0")


def test_fill_refuses_extents_that_are_not_a_vector() -> None:
    refuses(FILL, [tensor(I32, [[1]]), scalar(1)], [output(I32)], "not rank 1")


def test_fill_rejects_a_value_of_another_type() -> None:
    rejects(FILL, [ints(1), scalar(1.0)], [output(I32)], "FILL")


@given(st.lists(st.integers(1, 2), min_size=1, max_size=8))
def test_rank_counts_dimensions(shape: list[int]) -> None:
    [y] = run(RANK, [tensor(B8, np.zeros(shape))], [output(INT32)])
    assert y.shape == ()
    assert y == len(shape)


@pytest.mark.parametrize("kind", [F32, F16, I32, Q8, Q16S, QPC])
def test_rank_takes_any_tensor(kind: OperandType) -> None:
    quantised = kind in (Q8, Q16S)
    params = SymmPerChannelQuantParams((1.0, 2.0), 0) if kind == QPC else None
    x = tensor(kind, np.zeros((2, 3)), 0.5 if quantised else 0.0, 0, params)
    [y] = run(RANK, [x], [output(INT32)])
    assert y == 2


def test_rank_rejects_a_scalar() -> None:
    rejects(RANK, [scalar(1)], [output(INT32)], "'input' is INT32")
