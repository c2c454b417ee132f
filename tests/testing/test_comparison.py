"""Tolerances, and where results first differ."""

from __future__ import annotations

import numpy as np
import pytest

from nnburst.hal.enums import OperandType
from nnburst.testing.conformance.comparison import (
    Limits,
    first_mismatch,
    frequency_mismatch,
    limits_for,
)
from nnburst.testing.conformance.vectors import Tolerance

T = OperandType


@pytest.mark.parametrize(
    ("kind", "expected"),
    [
        (T.TENSOR_FLOAT32, Limits(1e-5, 5 * 2.0**-23)),
        (T.TENSOR_FLOAT16, Limits(5 * 2.0**-10, 5 * 2.0**-10)),
        (T.TENSOR_INT32, Limits(1, 0)),
        (T.TENSOR_QUANT8_ASYMM, Limits(1, 0)),
        (T.TENSOR_QUANT16_SYMM, Limits(1, 0)),
        (T.TENSOR_BOOL8, Limits(0, 0)),
    ],
)
def test_limits_follow_the_type(kind: OperandType, expected: Limits) -> None:
    assert limits_for(kind, Tolerance()) == expected


def test_rough_models_give_float32_the_limits_of_float16() -> None:
    assert limits_for(T.TENSOR_FLOAT32, Tolerance(), half=True)[0] == 5 * 2.0**-10
    assert limits_for(T.TENSOR_INT32, Tolerance(), half=True) == Limits(1, 0)


def test_exact_comparison_leaves_floating_point_its_limits() -> None:
    assert limits_for(T.TENSOR_QUANT8_ASYMM, Tolerance(), exact=True) == Limits(0, 0)
    assert limits_for(T.TENSOR_FLOAT32, Tolerance(), exact=True)[0] > 0


def test_difference_at_the_limit_passes_and_beyond_it_fails() -> None:
    expected = np.array([100.0, 200.0])
    limits = Limits(1, 0.01)
    assert first_mismatch(expected, np.array([102.0, 203.0]), limits) is None
    found = first_mismatch(expected, np.array([102.0, 203.1]), limits)
    assert found is not None
    assert found.index == (1,)
    assert (found.count, found.total) == (1, 2)


def test_mismatch_names_index_expected_actual_and_tolerance() -> None:
    expected = np.zeros((2, 3), np.int8)
    actual = expected.copy()
    actual[1, 2] = -5
    text = str(first_mismatch(expected, actual, Limits(1, 0)))
    assert "[1, 2]" in text
    assert "expected 0" in text
    assert "actual -5" in text
    assert "tolerance 1" in text


def test_unsigned_results_do_not_wrap() -> None:
    expected, actual = np.array([0], np.uint8), np.array([255], np.uint8)
    assert first_mismatch(expected, actual, Limits(1, 0)) is not None


def test_infinities_equal_themselves_and_not_each_other() -> None:
    infinity = np.array([np.inf])
    assert first_mismatch(infinity, infinity, Limits(1, 1)) is None
    assert first_mismatch(infinity, -infinity, Limits(1, 0)) is not None


def test_number_is_a_mismatch_where_an_infinity_is_expected() -> None:
    infinity, number = np.array([np.inf]), np.array([1000.0])
    assert first_mismatch(infinity, number, Limits(1e-5, 1e-6)) is not None
    assert first_mismatch(number, infinity, Limits(1e-5, 1e-6)) is not None


@pytest.mark.parametrize("dtype", [np.float16, np.float32])
def test_largest_number_stands_for_an_infinity_of_its_sign(dtype: type[np.floating]) -> None:
    infinity, largest = np.array([np.inf], dtype), np.array([np.finfo(dtype).max], dtype)
    assert first_mismatch(infinity, largest, Limits(0, 0)) is None
    assert first_mismatch(-infinity, -largest, Limits(0, 0)) is None
    assert first_mismatch(infinity, -largest, Limits(1, 1)) is not None
    assert first_mismatch(infinity, largest / dtype(2), Limits(1, 1)) is not None


def test_not_a_number_is_a_mismatch_where_a_number_is_expected() -> None:
    nan, number = np.array([np.nan]), np.array([1.0])
    assert first_mismatch(number, nan, Limits(1, 1)) is not None
    assert first_mismatch(nan, number, Limits(1, 1)) is not None
    assert first_mismatch(nan, nan, Limits(0, 0)) is None


def test_frequencies_are_compared_with_probabilities() -> None:
    logits = np.log([[0.25, 0.75]])
    fair = np.array([[0] * 25 + [1] * 75])
    assert frequency_mismatch(logits, fair, 0.01) is None
    assert "batch 0, class" in str(frequency_mismatch(logits, np.ones((1, 100), int), 0.1))
    assert "outside" in str(frequency_mismatch(logits, np.full((1, 100), 2), 0.9))
