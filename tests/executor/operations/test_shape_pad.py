"""PAD, PAD_V2, MIRROR_PAD."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given
from hypothesis import strategies as st

from executor.refusal import refuses, rejects
from executor.run_operation import Given, omitted, output, run, scalar, tensor
from nnburst.executor.graph.declarations import F16, F32, FLOAT16, I32, Q8, Q8S
from nnburst.executor.graph.tensor import Array
from nnburst.hal.enums import ErrorStatus, OperandType, OperationType

PAD = OperationType.PAD
PAD_V2 = OperationType.PAD_V2
MIRROR_PAD = OperationType.MIRROR_PAD

REFLECT, SYMMETRIC = 0, 1


def ints(values: npt.ArrayLike) -> Given:
    return tensor(I32, values)


@st.composite
def padded(draw: st.DrawFn, limit: int | None = None) -> tuple[Array, list[tuple[int, int]]]:
    """A tensor and paddings, at most extent - `limit` if a limit is given."""
    shape = draw(st.lists(st.integers(1, 4), min_size=1, max_size=4))
    most = [3 if limit is None else extent - limit for extent in shape]
    pairs = [(draw(st.integers(0, m)), draw(st.integers(0, m))) for m in most]
    return np.arange(1, 1 + np.prod(shape), dtype=np.int32).reshape(shape), pairs


def test_pad_surrounds_with_zeros() -> None:
    x = tensor(F32, [[1, 2]])
    [y] = run(PAD, [x, ints([[1, 0], [0, 2]])], [output(F32)])
    np.testing.assert_array_equal(y, [[0, 0, 0, 0], [1, 2, 0, 0]])


@pytest.mark.parametrize(("kind", "zero_point"), [(Q8, 9), (Q8S, -3)])
def test_pad_surrounds_quantised_values_with_the_zero_point(
    kind: OperandType, zero_point: int
) -> None:
    x = tensor(kind, [5], 0.5, zero_point)
    [y] = run(PAD, [x, ints([[1, 1]])], [output(kind, (3,), 0.5, zero_point)])
    np.testing.assert_array_equal(y, [zero_point, 5, zero_point])


@given(padded())
def test_pad_is_numpys_constant_padding(case: tuple[Array, list[tuple[int, int]]]) -> None:
    x, pairs = case
    [y] = run(PAD, [tensor(F16, x), ints(pairs)], [output(F16)])
    np.testing.assert_array_equal(y, np.pad(x, pairs))


@given(padded(), st.floats(width=16))
def test_pad_v2_surrounds_with_any_float(
    case: tuple[Array, list[tuple[int, int]]], value: float
) -> None:
    x, pairs = case
    for kind, scalar_kind in ((F32, OperandType.FLOAT32), (F16, FLOAT16)):
        args = [tensor(kind, x), ints(pairs), scalar(value, scalar_kind)]
        [y] = run(PAD_V2, args, [output(kind)])
        np.testing.assert_array_equal(y, np.pad(x.astype(y.dtype), pairs, constant_values=value))


@pytest.mark.parametrize(
    ("kind", "value", "stored"), [(Q8, 200, 200), (Q8, 258, 2), (Q8S, -7, -7), (Q8S, 255, -1)]
)
def test_pad_v2_takes_the_low_byte_as_stored_value(
    kind: OperandType, value: int, stored: int
) -> None:
    args = [tensor(kind, [5], 0.5, 1), ints([[1, 0]]), scalar(value)]
    [y] = run(PAD_V2, args, [output(kind, (2,), 0.5, 1)])
    np.testing.assert_array_equal(y, [stored, 5])


@pytest.mark.parametrize(
    ("pads", "message"),
    [
        ([[1, -1]], "expected no negative value"),
        ([[1, 1], [0, 0]], "expected (1, 2)"),
        ([1, 1], "expected (1, 2)"),
    ],
)
def test_pad_refuses_paddings_that_do_not_fit(pads: npt.ArrayLike, message: str) -> None:
    refuses(PAD, [tensor(F32, [1.0]), ints(pads)], [output(F32)], message)
    args = [tensor(F32, [1.0]), ints(pads), scalar(0.0)]
    refuses(PAD_V2, args, [output(F32)], message)
    refuses(PAD, [tensor(F32, [1.0]), omitted(I32)], [output(F32)], "omitted", ErrorStatus(4))


def test_pad_rejects_rank_five() -> None:
    x = tensor(F32, np.zeros((1,) * 5))
    rejects(PAD, [x, ints(np.zeros((5, 2)))], [output(F32)], "has rank 5")


def test_pad_v2_rejects_a_float_value_for_quantised_tensors() -> None:
    x = tensor(Q8, [5], 0.5, 1)
    with_float = [x, ints([[0, 0]]), scalar(1.0)]
    rejects(PAD_V2, with_float, [output(Q8, (), 0.5, 1)], "PAD_V2")


def test_mirror_pad_reflects_without_or_with_the_edge() -> None:
    x = tensor(I32, [1, 2, 3])
    [y] = run(MIRROR_PAD, [x, ints([[2, 1]]), scalar(REFLECT)], [output(I32)])
    np.testing.assert_array_equal(y, [3, 2, 1, 2, 3, 2])
    [y] = run(MIRROR_PAD, [x, ints([[2, 1]]), scalar(SYMMETRIC)], [output(I32)])
    np.testing.assert_array_equal(y, [2, 1, 1, 2, 3, 3])


@given(padded(limit=1))
def test_mirror_pad_0_is_numpys_reflect(case: tuple[Array, list[tuple[int, int]]]) -> None:
    x, pairs = case
    [y] = run(MIRROR_PAD, [tensor(I32, x), ints(pairs), scalar(REFLECT)], [output(I32)])
    np.testing.assert_array_equal(y, np.pad(x, pairs, mode="reflect"))


@given(padded(limit=0))
def test_mirror_pad_1_is_numpys_symmetric(case: tuple[Array, list[tuple[int, int]]]) -> None:
    x, pairs = case
    x = x.astype(np.uint8)
    args = [tensor(Q8, x, 0.5, 3), ints(pairs), scalar(SYMMETRIC)]
    [y] = run(MIRROR_PAD, args, [output(Q8, (0,) * x.ndim, 0.5, 3)])
    np.testing.assert_array_equal(y, np.pad(x, pairs, mode="symmetric"))


@pytest.mark.parametrize(
    ("pads", "mode", "message"),
    [
        ([[2, 0]], REFLECT, "expected at most 1"),
        ([[0, 3]], SYMMETRIC, "expected at most 2"),
        ([[-1, 0]], SYMMETRIC, "expected no negative value"),
        ([[0, 0]], 2, "'mode' is 2"),
        ([[0, 0]], -1, "'mode' is -1"),
    ],
)
def test_mirror_pad_refuses_paddings_larger_than_the_tensor(
    pads: npt.ArrayLike, mode: int, message: str
) -> None:
    args = [tensor(F32, [1, 2]), ints(pads), scalar(mode)]
    refuses(MIRROR_PAD, args, [output(F32)], message)


@pytest.mark.parametrize("pads", [[[0, 0], [0, 0]], [[0, 0, 0]], [0, 0]])
def test_mirror_pad_rejects_paddings_of_another_shape(pads: npt.ArrayLike) -> None:
    args = [tensor(F32, [1, 2]), ints(pads), scalar(0)]
    rejects(MIRROR_PAD, args, [output(F32)], "'paddings' has shape")


def test_mirror_pad_rejects_other_quantisation_and_rank_of_the_output() -> None:
    args = [tensor(Q8, [1, 2], 0.5, 1), ints([[0, 0]]), scalar(0)]
    rejects(MIRROR_PAD, args, [output(Q8, (2,), 0.5, 2)], "zero point 1")
    rejects(MIRROR_PAD, args, [output(Q8, (2, 1), 0.5, 1)], "has rank 2, expected 1")
