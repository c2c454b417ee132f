"""QUANTIZE, DEQUANTIZE, CAST."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from executor.exact_integers import half_away
from executor.refusal import refuses, rejects
from executor.run_operation import output, run, tensor
from nnburst.executor.graph.declarations import B8, F16, F32, I32, Q8, Q8S, Q16A, Q16S, QPC, QSYM8
from nnburst.hal.enums import ErrorStatus, OperandType, OperationType
from nnburst.hal.model import DTYPES, SymmPerChannelQuantParams

QUANTIZE, DEQUANTIZE = OperationType.QUANTIZE, OperationType.DEQUANTIZE
CAST = OperationType.CAST

float32s = st.floats(width=32, allow_nan=False, allow_infinity=False)


def bits(type_: OperandType, values: npt.ArrayLike) -> Any:
    """The bytes of an array of this type, so that NaN compares as well."""
    return np.ascontiguousarray(values, DTYPES[type_]).view(np.uint8)


# QUANTIZE


@pytest.mark.parametrize("source", [F32, F16])
@pytest.mark.parametrize(("target", "offset"), [(Q8, 0), (Q8S, 128)])
def test_quantisation_rounds_ties_away_from_zero_and_saturates(
    source: OperandType, target: OperandType, offset: Any
) -> None:
    x = [[0, 0.25, 0.75, -0.25, -0.75, 1000, -1000, np.nan, np.inf, -np.inf]]
    [y] = run(QUANTIZE, [tensor(source, x)], [output(target, [1, 10], 0.5, 100 - offset)])
    expected = np.array([[100, 101, 102, 99, 98, 255, 0, 255, 255, 0]]) - offset
    np.testing.assert_array_equal(y, expected)


@given(
    hnp.arrays(np.float32, 5, elements=float32s),
    st.floats(2**-10, 4, width=32),
    st.integers(0, 255),
)
def test_quantisation_divides_in_float32_and_rounds_once(x: Any, scale: float, zero: Any) -> None:
    [y] = run(QUANTIZE, [tensor(F32, x)], [output(Q8, [5], scale, zero)])
    with np.errstate(over="ignore"):
        quotients = np.clip(x / np.float32(scale), -1000, 1000)
    expected = [min(max(half_away(Fraction(float(q))) + zero, 0), 255) for q in quotients]
    np.testing.assert_array_equal(y, expected)


def test_quantisation_takes_empty_tensors_and_any_rank() -> None:
    for shape in ((0, 2), (1, 1, 1, 1, 2)):
        [y] = run(QUANTIZE, [tensor(F32, np.ones(shape))], [output(Q8, [0] * len(shape), 1.0)])
        np.testing.assert_array_equal(y, np.ones(shape))


def test_quantisation_of_integers_is_rejected() -> None:
    rejects(QUANTIZE, [tensor(I32, [1])], [output(Q8, [1], 1.0)], "operand 'input'")
    rejects(QUANTIZE, [tensor(F32, [1])], [output(QSYM8, [1], 1.0)], "P4")


# DEQUANTIZE


@pytest.mark.parametrize("target", [F32, F16])
@pytest.mark.parametrize(("source", "zero"), [(Q8, 3), (Q8S, -3), (QSYM8, 0)])
def test_dequantisation_of_every_stored_value(
    source: OperandType, zero: Any, target: OperandType
) -> None:
    q = np.arange(256).astype(np.uint8).view(DTYPES[source]).reshape(4, 64)
    [y] = run(DEQUANTIZE, [tensor(source, q, 0.1, zero)], [output(target)])
    expected = np.float32(0.1) * (q.astype(np.int32) - zero).astype(np.float32)
    np.testing.assert_array_equal(y, expected.astype(y.dtype))


@pytest.mark.parametrize("target", [F32, F16])
@pytest.mark.parametrize("axis", [0, 1, 2])
def test_dequantisation_per_channel_along_any_dimension(target: OperandType, axis: int) -> None:
    q = np.arange(-12, 12).reshape(2, 3, 4)
    scales = (0.5, 2.0, 0.1, 1.0)[: q.shape[axis]]
    params = SymmPerChannelQuantParams(scales, axis)
    [y] = run(DEQUANTIZE, [tensor(QPC, q, extra_params=params)], [output(target)])
    along = np.array(scales, np.float32).reshape([-1 if i == axis else 1 for i in range(3)])
    np.testing.assert_array_equal(y, (q.astype(np.float32) * along).astype(y.dtype))


def test_dequantisation_takes_empty_tensors_and_at_most_four_dimensions() -> None:
    [y] = run(DEQUANTIZE, [tensor(Q8, np.ones((0, 2)), 1.0)], [output(F32)])
    assert y.shape == (0, 2)
    five = tensor(Q8, np.ones((1, 1, 1, 1, 1)), 1.0)
    rejects(DEQUANTIZE, [five], [output(F32)], "rank 5")
    rejects(DEQUANTIZE, [tensor(Q16A, [1], 1.0)], [output(F32)], "operand 'input'")


@given(hnp.arrays(np.uint8, 6), st.floats(2**-10, 4, width=32), st.integers(0, 255))
def test_quantisation_undoes_dequantisation(q: Any, scale: float, zero: Any) -> None:
    [real] = run(DEQUANTIZE, [tensor(Q8, q, scale, zero)], [output(F32)])
    [again] = run(QUANTIZE, [tensor(F32, real)], [output(Q8, [6], scale, zero)])
    np.testing.assert_array_equal(again, q)


# CAST


@pytest.mark.parametrize("source", [F16, F32, I32])
def test_cast_to_octets_truncates_and_saturates(source: OperandType) -> None:
    x = [[0, 1, 255, 256, 3000, -1, -3000]]
    [y] = run(CAST, [tensor(source, x)], [output(Q8, [1, 7], 0.5, 7)])
    np.testing.assert_array_equal(y, [[0, 1, 255, 255, 255, 0, 0]])


@pytest.mark.parametrize("source", [F16, F32])
@pytest.mark.parametrize("target", [Q8, I32])
def test_cast_of_floats_to_integers_truncates_towards_zero(
    source: OperandType, target: OperandType
) -> None:
    x = [0.9, 1.5, 2.999, 100.5]
    [y] = run(CAST, [tensor(source, x)], [output(target, [4], 1.0 if target == Q8 else 0.0)])
    np.testing.assert_array_equal(y, [0, 1, 2, 100])


def test_cast_of_floats_to_int32_saturates_and_nan_is_zero() -> None:
    x = [-1.9, 3e9, -3e9, np.nan, np.inf, -np.inf, 2147483520.0]
    [y] = run(CAST, [tensor(F32, x)], [output(I32)])
    largest = 2**31 - 1
    expected = [-1, largest, -largest - 1, 0, largest, -largest - 1, 2147483520]
    np.testing.assert_array_equal(y, expected)


@pytest.mark.parametrize("target", [F16, F32, I32])
def test_cast_ignores_scale_and_zero_point(target: OperandType) -> None:
    [y] = run(CAST, [tensor(Q8, [0, 3, 255], 0.5, 7)], [output(target)])
    np.testing.assert_array_equal(y, [0, 3, 255])


@given(hnp.arrays(np.int32, 6))
def test_cast_of_int32_to_floats_rounds_to_nearest(x: Any) -> None:
    [y] = run(CAST, [tensor(I32, x)], [output(F32)])
    np.testing.assert_array_equal(y, x.astype(np.float32))
    with np.errstate(over="ignore"):
        expected = x.astype(np.float64).astype(np.float16)
    [y] = run(CAST, [tensor(I32, x)], [output(F16)])
    np.testing.assert_array_equal(y, expected)


def test_cast_between_float_widths_rounds_and_overflows_to_infinity() -> None:
    [y] = run(CAST, [tensor(F32, [0.1, 65504, 1e6])], [output(F16)])
    np.testing.assert_array_equal(y, np.array([0.1, 65504, np.inf], np.float16))
    [y] = run(CAST, [tensor(F16, [0.1, np.inf])], [output(F32)])
    np.testing.assert_array_equal(y, np.array([0.1, np.inf], np.float16).astype(np.float32))


@pytest.mark.parametrize("type_", [F16, F32, I32, Q8, B8, Q8S, QSYM8, Q16A, Q16S])
@given(data=st.data())
def test_cast_to_the_same_type_copies(type_: OperandType, data: Any) -> None:
    x = data.draw(hnp.arrays(DTYPES[type_], (2, 3), elements={"allow_nan": False}))
    scale = 0.0 if type_ in (F16, F32, I32, B8) else 0.5
    [y] = run(CAST, [tensor(type_, x, scale)], [output(type_, [2, 3], scale)])
    expected = x.astype(bool).astype(x.dtype) if type_ is B8 else x  # truth values are 0 or 1
    np.testing.assert_array_equal(bits(type_, y), bits(type_, expected))


@pytest.mark.parametrize(
    ("source", "target"), [(B8, I32), (Q8S, F32), (Q8, Q8S), (QPC, QPC), (Q16A, Q16S), (F32, B8)]
)
def test_other_casts_are_rejected(source: OperandType, target: OperandType) -> None:
    x = tensor(source, [1], 1.0, extra_params=None)
    rejects(CAST, [x], [output(target, [1], 1.0)], "P4")


def test_cast_to_other_extents_is_rejected_at_preparation() -> None:
    for shape in ([3], [2, 1], [1, 2]):
        rejects(CAST, [tensor(F32, [1, 2])], [output(I32, shape)], "operand 'output'")
    for shape in ([], [0], [2]):
        [y] = run(CAST, [tensor(F32, [1, 2])], [output(I32, shape)])
        np.testing.assert_array_equal(y, [1, 2])


def test_cast_of_empty_tensors_is_an_invalid_argument() -> None:
    refuses(
        CAST,
        [tensor(F32, np.ones((0, 2)))],
        [output(I32)],
        "is empty",
        ErrorStatus.INVALID_ARGUMENT,
    )
