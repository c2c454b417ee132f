"""Conversions between stored integers and real numbers."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from nnburst.executor.graph.operation import OperationFailed
from nnburst.executor.reference import quantized as qv
from nnburst.hal.enums import OperandType
from nnburst.hal.model import DTYPES, QUANTIZED_RANGES

Q8 = OperandType.TENSOR_QUANT8_ASYMM
Q8S = OperandType.TENSOR_QUANT8_ASYMM_SIGNED
Q16A = OperandType.TENSOR_QUANT16_ASYMM
Q16S = OperandType.TENSOR_QUANT16_SYMM
FLOAT32_MAX = float(np.finfo(np.float32).max)
scales = st.floats(2.0**-10, 2.0**4, width=32)


@pytest.mark.parametrize(
    ("code", "kind", "scale", "zero_point", "expected"),
    [
        (0, Q8, 0.5, 10, (0, 255)),
        (0, Q16S, 0.5, 0, (-32768, 32767)),
        (1, Q8, 0.5, 10, (10, 255)),
        (1, Q8S, 0.5, -128, (-128, 127)),
        (2, Q8, 0.5, 10, (8, 12)),
        (2, Q8, 0.5, 1, (0, 3)),
        (3, Q8, 0.5, 10, (10, 22)),
        (3, Q8S, 0.5, 120, (120, 127)),
        (3, Q8S, 4.0, 0, (0, 2)),  # 1.5 goes away from zero
        (2, Q8S, 2.0, 0, (-1, 1)),  # so does -0.5
        (3, Q8, 1e-45, 10, (10, 255)),
    ],
)
def test_activation_range_of_stored_values(
    code: int, kind: OperandType, scale: float, zero_point: int, expected: tuple[int, int]
) -> None:
    assert qv.activation_range(code, kind, scale, zero_point) == expected


def test_activation_range_of_floats() -> None:
    assert qv.float_activation_range(0) == (-FLOAT32_MAX, FLOAT32_MAX)
    assert qv.float_activation_range(1) == (0, FLOAT32_MAX)
    assert qv.float_activation_range(2) == (-1, 1)
    assert qv.float_activation_range(3) == (0, 6)


@pytest.mark.parametrize("code", [-1, 4, 5])
def test_unknown_activation_fails(code: int) -> None:
    with pytest.raises(OperationFailed, match="operand 'activation'"):
        qv.activation_range(code, Q8, 1.0, 0)


@pytest.mark.parametrize("kind", [Q8, Q8S])
def test_all_stored_values_are_in_byte_order(kind: OperandType) -> None:
    values = qv.all_stored_values(kind)
    assert values.dtype == DTYPES[kind]
    assert values.tobytes() == bytes(range(256))


@pytest.mark.parametrize(("kind", "top", "bottom"), [(Q8, 255, 0), (Q8S, 127, -128)])
def test_quantize_saturates_and_sends_nan_to_the_top(
    kind: OperandType, top: int, bottom: int
) -> None:
    x = np.array([np.nan, np.inf, -np.inf, 1e30, -1e30], np.float32)
    stored = qv.quantize(x, 0.5, 3, kind)
    np.testing.assert_array_equal(stored, [top, top, bottom, top, bottom])
    assert stored.dtype == DTYPES[kind]


def test_quantize_sends_ties_away_from_zero() -> None:
    x = np.array([0.25, 0.75, -0.25, -0.75, 0.24], np.float32)
    np.testing.assert_array_equal(qv.quantize(x, 0.5, 10, Q8), [11, 12, 9, 8, 10])


@pytest.mark.parametrize("kind", [Q8, Q8S, Q16A])
@given(data=st.data())
def test_quantize_inverts_dequantize(data: st.DataObject, kind: OperandType) -> None:
    stored = st.integers(*QUANTIZED_RANGES[kind])
    scale, zero_point = data.draw(scales), data.draw(stored)
    q = np.array(data.draw(st.lists(stored, min_size=1)), DTYPES[kind])
    real = qv.dequantize(q, scale, zero_point)
    assert real.dtype == np.float32
    np.testing.assert_array_equal(qv.quantize(real, scale, zero_point, kind), q)


@given(st.integers(0, 255), st.integers(0, 255), scales, st.integers(0, 255), scales)
def test_requantize_rounds_once_and_saturates(
    q: int, zero_point: int, scale: float, new_zero_point: int, new_scale: float
) -> None:
    real = Fraction(float(np.float32(q - zero_point) * np.float32(scale)))
    exact = float(real / Fraction(new_scale)) + new_zero_point
    expected = min(max(math.copysign(math.floor(abs(exact) + 0.5), exact), 0), 255)
    result = qv.requantize(
        np.array([q], np.uint8), zero_point, scale, new_scale, new_zero_point, Q8
    )
    assert result.dtype == np.uint8
    assert int(result[0]) == expected


def test_requantize_to_the_same_quantisation_changes_nothing() -> None:
    q = qv.all_stored_values(Q8S)
    np.testing.assert_array_equal(qv.requantize(q, 3, 0.1, 0.1, 3, Q8S), q)
