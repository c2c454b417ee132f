from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from executor.exact_integers import c_mbqm
from nnburst.executor.graph.memory import Workspace
from nnburst.executor.graph.operation import Node
from nnburst.executor.reference.fixed_point import Requantization, multiply_by_quantized_multiplier
from nnburst.hal.enums import FeatureLevel, OperationType
from nnburst.hal.signature import Form, Match

NODE = Node(OperationType.CONV_2D, Match(Form((), ()), (), (), FeatureLevel.V1_0), [])


def requantise(found: Requantization, sums: np.ndarray, offset: np.ndarray) -> np.ndarray:
    out = np.empty(sums.shape, np.int8 if found.low < 0 else np.uint8)
    found.bind(sums, offset, out, Workspace(NODE))()
    return out


def expected(found: Requantization, sums: np.ndarray, offset: np.ndarray) -> np.ndarray:
    out = np.empty(sums.shape, np.int64)
    for row, column in np.ndindex(*sums.shape):
        at = column % found.multiplier.size
        pair = int(found.multiplier[at]), int(found.shift[at])
        value = c_mbqm(int(sums[row, column] + offset[column]), *pair) + found.zero_point
        out[row, column] = min(max(value, found.low), found.high)
    return out


multipliers = st.integers(2**30, 2**31 - 1)


@st.composite
def requantisations(draw: st.DrawFn, shifts: st.SearchStrategy[int]) -> Requantization:
    signed = draw(st.booleans())
    lowest, highest = (-128, 127) if signed else (0, 255)
    zero_point = draw(st.integers(lowest, highest))
    low = draw(st.sampled_from([lowest, zero_point]))
    per_channel = draw(st.booleans())
    pairs = draw(st.lists(st.tuples(multipliers, shifts), min_size=3, max_size=3))
    table = np.array(pairs if per_channel else pairs[:1], np.int64)
    return Requantization(table[:, 0], table[:, 1], zero_point, low, highest)


@given(requantisations(st.integers(-12, 0)), st.data())
def test_float64_gives_every_bit_of_both_roundings(
    found: Requantization, data: st.DataObject
) -> None:
    assert found.is_exact_in_float64
    edge = st.integers(-(2**31), 2**31 - 1) | st.integers(-3000, 3000)
    sums = np.array(data.draw(st.lists(edge, min_size=12, max_size=12)), np.float64).reshape(4, 3)
    offset = np.array([0.0, 7.0, -3.0])
    sums = np.clip(sums, -(2.0**31) + 10, 2.0**31 - 10)
    assert (requantise(found, sums, offset) == expected(found, sums, offset)).all()


@given(requantisations(st.integers(-30, 3)), st.data())
def test_any_multiplier_gives_every_bit(found: Requantization, data: st.DataObject) -> None:
    edge = st.integers(-(2**27), 2**27)
    sums = np.array(data.draw(st.lists(edge, min_size=6, max_size=6)), np.float64).reshape(2, 3)
    offset = np.array([1.0, 0.0, -1.0])
    assert (requantise(found, sums, offset) == expected(found, sums, offset)).all()


@pytest.mark.parametrize("shift", [0, -1, -3, -8, -12])
@pytest.mark.parametrize("zero_point", [0, 100, 255])
@pytest.mark.parametrize("multiplier", [2**30, 3 * 2**29, 2**31 - 1])
def test_ties_of_every_kind_go_the_way_of_the_original(
    shift: int, zero_point: int, multiplier: int
) -> None:
    found = Requantization(np.array([multiplier]), np.array([shift]), zero_point, 0, 255)
    sums = np.arange(-3000, 3000, dtype=np.float64).reshape(-1, 3)
    integers = sums.astype(np.int64)
    wanted = multiply_by_quantized_multiplier(integers, multiplier, shift) + zero_point
    for dtype in (np.float32, np.float64):
        got = requantise(found, sums.astype(dtype), np.zeros(3))
        assert (got == wanted.clip(0, 255)).all()


def rounded_twice(product: int, shift: int) -> int:
    """A product that is rounded at 2**31 and again by the shift."""
    n = -shift
    return product + (1 << 30) + (1 << (30 + n)) >> (31 + n)


@pytest.mark.parametrize(
    ("shift", "multiplier", "large", "wanted"),
    [
        (-14, 1077936129, 4194303, 128),
        (-15, 1077801595, 10609485, 162),
        (-16, 1082130433, 8388607, 64),
    ],
)
def test_products_too_long_for_float64_are_not_rounded_up(
    shift: int, multiplier: int, large: int, wanted: int
) -> None:
    """Found by trying multipliers: products that one more unit would round up."""
    product = multiplier * large
    assert product % 2 == 1
    assert product > 2**52, "as long as float64's mantissa at least"
    assert (rounded_twice(product, shift), rounded_twice(product + 1, shift)) == (
        wanted,
        wanted + 1,
    )
    found = Requantization(np.array([multiplier]), np.array([shift]), 0, 0, 255)
    sums = np.array([[float(large)]])
    assert c_mbqm(large, multiplier, shift) == wanted
    assert requantise(found, sums, np.zeros(1)) == wanted


def test_results_go_to_memory_of_any_order() -> None:
    found = Requantization(np.array([2**30]), np.array([1]), 0, 0, 255)  # times one
    sums = np.arange(24, dtype=np.float32).reshape(2, 12)
    memory = np.zeros((1, 4, 2, 3), np.uint8)
    found.bind(sums, np.zeros(12), memory.transpose(0, 2, 3, 1), Workspace(NODE))()
    assert (memory.transpose(0, 2, 3, 1).reshape(-1) == np.arange(24)).all()


def test_a_ratio_too_close_to_zero_gives_the_zero_point() -> None:
    found = Requantization(np.array([0]), np.array([0]), 9, 0, 255)
    sums = np.array([[-(2.0**30), 0.0, 2.0**30]])
    assert (requantise(found, sums, np.zeros(3)) == 9).all()
