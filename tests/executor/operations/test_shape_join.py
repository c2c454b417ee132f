"""CONCATENATION and PACK."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from executor.refusal import refuses, rejects
from executor.run_operation import output, run, scalar, tensor
from nnburst.executor.graph.declarations import F16, F32, I32, Q8, Q8S
from nnburst.executor.graph.tensor import Array
from nnburst.executor.reference.quantized import round_half_away
from nnburst.hal.enums import OperandType, OperationType

CONCATENATION = OperationType.CONCATENATION
PACK = OperationType.PACK

extents = st.lists(st.integers(1, 3), min_size=1, max_size=4)


def counting(shape: list[int], start: int = 0) -> Array:
    return start + np.arange(np.prod(shape), dtype=np.float32).reshape(shape)


@given(extents, st.lists(st.integers(1, 3), min_size=1, max_size=4), st.data())
def test_concatenation_is_numpys(shape: list[int], sizes: list[int], draw: st.DataObject) -> None:
    axis = draw.draw(st.integers(0, len(shape) - 1))
    parts = [
        counting([*shape[:axis], size, *shape[axis + 1 :]], 100 * i) for i, size in enumerate(sizes)
    ]
    for kind in (F32, F16):
        [y] = run(CONCATENATION, [*(tensor(kind, p) for p in parts), scalar(axis)], [output(kind)])
        np.testing.assert_array_equal(y, np.concatenate(parts, axis))


def test_concatenation_copies_stored_values_of_equal_quantisation() -> None:
    x = tensor(Q8, [[0, 255]], 0.3, 7)
    [y] = run(CONCATENATION, [x, x, scalar(0)], [output(Q8, (2, 2), 0.3, 7)])
    np.testing.assert_array_equal(y, [[0, 255], [0, 255]])


def test_concatenation_rescales_rounding_half_away_and_saturating() -> None:
    x = tensor(Q8, [10, 11, 12, 13, 255], 0.5, 11)
    [y] = run(CONCATENATION, [x, scalar(0)], [output(Q8, (5,), 1.0, 2)])
    # reals -0.5, 0, 0.5, 1, 122 become round(...) + 2
    np.testing.assert_array_equal(y, [1, 2, 3, 3, 124])
    [y] = run(CONCATENATION, [x, scalar(0)], [output(Q8, (5,), 0.25, 0)])
    np.testing.assert_array_equal(y, [0, 0, 2, 4, 255])


@given(
    st.floats(2**-6, 8, width=32),
    st.floats(2**-6, 8, width=32),
    st.integers(0, 255),
    st.integers(0, 255),
)
def test_concatenation_rescales_signed_values_as_their_unsigned_twins(
    scale: float, new: float, zero: int, new_zero: int
) -> None:
    values = np.arange(256)
    unsigned = tensor(Q8, values, scale, zero)
    signed = tensor(Q8S, values - 128, scale, zero - 128)
    [a] = run(CONCATENATION, [unsigned, scalar(0)], [output(Q8, (256,), new, new_zero)])
    [b] = run(CONCATENATION, [signed, scalar(0)], [output(Q8S, (256,), new, new_zero - 128)])
    np.testing.assert_array_equal(a.astype(int) - 128, b)


@given(st.floats(2**-6, 8, width=32), st.floats(2**-6, 8, width=32), st.integers(0, 255))
def test_concatenation_stays_within_a_step_of_the_real_value(
    scale: float, new: float, zero: int
) -> None:
    values = np.arange(256)
    x = tensor(Q8, values, scale, zero)
    [y] = run(CONCATENATION, [x, x, scalar(0)], [output(Q8, (512,), new, 128)])
    exact = np.clip(round_half_away((values - zero) * scale / new) + 128, 0, 255)
    assert np.abs(y - np.tile(exact, 2)).max() <= 1


def test_concatenation_rescales_only_inputs_that_differ() -> None:
    same, other = tensor(Q8, [[9]], 1.0, 5), tensor(Q8, [[9]], 2.0, 5)
    [y] = run(CONCATENATION, [same, other, scalar(1)], [output(Q8, (1, 2), 1.0, 5)])
    np.testing.assert_array_equal(y, [[9, 13]])


@pytest.mark.parametrize(
    ("shapes", "axis", "message"),
    [
        ([(1, 2), (1, 2)], -1, "'axis' is -1"),
        ([(1, 2), (1, 2)], 2, "'axis' is 2"),
        ([(1, 2), (2, 2)], 1, "differ in more than dimension 1"),
        ([(1, 2), (2,)], 0, "differ in more than dimension 0"),
        ([(2,), (2, 2)], 0, "differ in more than dimension 0"),
    ],
)
def test_concatenation_refuses_axes_and_extents_that_do_not_fit(
    shapes: list[tuple[int, ...]], axis: int, message: str
) -> None:
    inputs = [*(tensor(F32, np.zeros(s)) for s in shapes), scalar(axis)]
    refuses(CONCATENATION, inputs, [output(F32)], message)


def test_concatenation_rejects_rank_five_mixed_types_integers_and_nothing() -> None:
    five = tensor(F32, np.zeros((1,) * 5))
    rejects(CONCATENATION, [five, scalar(0)], [output(F32)], "has rank 5")
    mixed = [tensor(F32, [1.0]), tensor(F16, [1.0]), scalar(0)]
    rejects(CONCATENATION, mixed, [output(F32)], "'input' is TENSOR_FLOAT16")
    rejects(CONCATENATION, [tensor(I32, [1]), scalar(0)], [output(I32)], "TENSOR_INT32")
    rejects(CONCATENATION, [scalar(0)], [output(F32)], "fit no form")


@given(extents, st.integers(1, 4), st.data())
def test_pack_is_numpys_stack(shape: list[int], count: int, draw: st.DataObject) -> None:
    axis = draw.draw(st.integers(0, len(shape)))
    parts = [counting(shape, 100 * i) for i in range(count)]
    [y] = run(PACK, [scalar(axis), *(tensor(F32, p) for p in parts)], [output(F32)])
    np.testing.assert_array_equal(y, np.stack(parts, axis))


@pytest.mark.parametrize("kind", [Q8, Q8S])
def test_pack_keeps_stored_values(kind: OperandType) -> None:
    x, z = tensor(kind, [1, 2], 0.5, 3), tensor(kind, [3, 4], 0.5, 3)
    [y] = run(PACK, [scalar(1), x, z], [output(kind, (2, 2), 0.5, 3)])
    np.testing.assert_array_equal(y, [[1, 3], [2, 4]])


@pytest.mark.parametrize("axis", [-1, 2])
def test_pack_refuses_an_axis_outside(axis: int) -> None:
    refuses(PACK, [scalar(axis), tensor(F32, [1.0])], [output(F32)], "expected [0, 1]")


def test_pack_refuses_different_shapes() -> None:
    inputs = [scalar(0), tensor(F32, [1.0]), tensor(F32, [1.0, 2.0])]
    refuses(PACK, inputs, [output(F32)], "different shapes")


def test_pack_rejects_other_quantisation_rank_and_type() -> None:
    x = tensor(Q8, [1], 0.5, 3)
    rejects(PACK, [scalar(0), x], [output(Q8, (1, 1), 0.5, 4)], "zero point 3")
    rejects(PACK, [scalar(0), x], [output(Q8, (1,), 0.5, 3)], "has rank 1, expected 2")
    other = tensor(Q8, [1], 0.25, 3)
    rejects(PACK, [scalar(0), x, other], [output(Q8, (2, 1), 0.5, 3)], "has scale 0.25")
    rejects(PACK, [scalar(0)], [output(F32)], "fit no form")
