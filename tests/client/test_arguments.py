from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from nnburst import GeneralFailure, InvalidArgument, ModelBuilder, OperandType, OutputShape
from nnburst.client.arguments import Parameter, check_timeout, parameters
from nnburst.hal.model import DTYPES, SCALARS

_DATA_TYPES = sorted(DTYPES)
_extents = st.lists(st.integers(0, 4), max_size=4).map(tuple)
_dtypes = st.sampled_from(["f4", "f2", "i4", "u4", "u1", "i1", "i2", "u2", "?", "f8", ">f4"])


def parameter(kind: OperandType, dimensions: tuple[int, ...]) -> Parameter:
    dtype = np.dtype(np.bool_) if kind == OperandType.TENSOR_BOOL8 else DTYPES[kind]
    return Parameter("inputs[0]", kind, dtype, dimensions, kind in SCALARS)


def fits(dimensions: tuple[int, ...], shape: tuple[int, ...], least: int = 1) -> bool:
    """The rules R7 to R9 of validation for a tensor; what a driver reports may have no elements."""
    if min(shape, default=-1) < least:
        return False
    return not dimensions or (
        len(dimensions) == len(shape)
        and all(d in (0, s) for d, s in zip(dimensions, shape, strict=True))
    )


@given(
    kind=st.sampled_from([k for k in _DATA_TYPES if k not in SCALARS]),
    dimensions=_extents,
    shape=_extents,
    dtype=_dtypes,
    swap=st.booleans(),
)
def test_exactly_the_arrays_that_fit_are_accepted(
    kind: OperandType, dimensions: tuple[int, ...], shape: tuple[int, ...], dtype: str, swap: bool
) -> None:
    array = np.zeros(shape, dtype)
    array = array.T if swap else array
    boolean = array.dtype == np.bool_ and kind == OperandType.TENSOR_BOOL8
    expected = (
        (array.dtype == DTYPES[kind] or boolean)
        and array.flags.c_contiguous
        and fits(dimensions, array.shape)
    )
    subject = parameter(kind, dimensions)
    if expected:
        assert subject.check_input(array) is array
        assert not subject.known or subject.size == array.nbytes
    else:
        with pytest.raises(InvalidArgument, match=r"inputs\[0\]"):
            subject.check_input(array)


@pytest.mark.parametrize(
    ("dimensions", "shape", "expected"),
    [
        ((0, 3), (0, 3), r"float32 of shape \(any, 3\) with extents above 0"),
        ((), (0, 3), r"float32 of shape \(\.\.\.\) with extents above 0"),
        ((0, 3), (2, 4), r"float32 of shape \(any, 3\)"),
        ((2, 3), (0, 3), r"float32 of shape \(2, 3\)"),
    ],
)
def test_that_any_extent_is_not_0_is_said_where_one_is(
    dimensions: tuple[int, ...], shape: tuple[int, ...], expected: str
) -> None:
    subject = parameter(OperandType.TENSOR_FLOAT32, dimensions)
    with pytest.raises(InvalidArgument, match=f"has shape .*, expected {expected}$"):
        subject.check_input(np.zeros(shape, np.float32))


@given(array=hnp.arrays(dtype=_dtypes, shape=hnp.array_shapes(min_dims=0, max_dims=2)))
def test_scalar_takes_arrays_of_rank_0_only(array: np.ndarray) -> None:
    subject = parameter(OperandType.FLOAT32, ())
    if array.shape == () and array.dtype == np.dtype("<f4"):
        assert subject.check_input(array).shape == ()
        assert subject.check_input(array[()]).shape == ()
    else:
        with pytest.raises(InvalidArgument):
            subject.check_input(array)


@given(dimensions=_extents, reported=st.none() | _extents)
def test_reported_shape_is_used_only_where_the_model_allows_it(
    dimensions: tuple[int, ...], reported: tuple[int, ...] | None
) -> None:
    subject = parameter(OperandType.TENSOR_FLOAT32, dimensions)
    shape = None if reported is None else OutputShape(reported, is_sufficient=True)
    if reported and fits(dimensions, reported, least=0):
        assert subject.shape_of(shape) == reported
    elif not reported and subject.known:
        assert subject.shape_of(shape) == dimensions
    else:
        with pytest.raises(GeneralFailure, match="driver reports shape"):
            subject.shape_of(shape)


def test_parameters_follow_the_model() -> None:
    builder = ModelBuilder()
    builder.input(OperandType.TENSOR_QUANT8_ASYMM, (1, 0), 0.5, 3)
    builder.input(OperandType.INT32)
    builder.output(0x10001, (2,))
    inputs, outputs = parameters(builder.build())
    assert [(p.name, p.dtype, p.dimensions, p.scalar, p.known) for p in (*inputs, *outputs)] == [
        ("inputs[0]", np.dtype("u1"), (1, 0), False, False),
        ("inputs[1]", np.dtype("<i4"), (), True, True),
        ("outputs[0]", np.dtype("u1"), (2,), False, True),
    ]


def test_model_that_names_operands_it_does_not_have_is_refused() -> None:
    builder = ModelBuilder()
    builder.identify([0], [])
    with pytest.raises(InvalidArgument, match=r"inputs\[0\] is operand 0, which is not defined"):
        parameters(builder.build())


@pytest.mark.parametrize("value", [1, 0.25, 1e9])
def test_timeout_is_a_number_of_seconds(value: Any) -> None:
    assert check_timeout(value) == value


@pytest.mark.parametrize("value", [1e300, 10**400, 4e9 + 1], ids=["1e300", "10**400", "4e9 + 1"])
def test_a_timeout_beyond_what_messages_carry_is_cut(value: float) -> None:
    assert check_timeout(value) == 4e9


def test_a_numpy_scalar_cannot_take_an_output() -> None:
    with pytest.raises(InvalidArgument, match="numpy scalar"):
        parameter(OperandType.FLOAT32, ()).check_output(np.float32(1))
