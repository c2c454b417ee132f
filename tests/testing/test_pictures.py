"""Pictures and real numbers as a network takes them."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from nnburst.hal.enums import OperandType
from nnburst.hal.model import QUANTIZED_RANGES, Operand
from nnburst.testing.models.network_file import (
    from_picture,
    looks_like_photograph,
    real_values,
    representable,
    stored,
    takes_picture,
)

QUANTIZED = sorted(QUANTIZED_RANGES)
F32 = OperandType.TENSOR_FLOAT32


@st.composite
def quantized_operands(
    draw: st.DrawFn, kinds: tuple[OperandType, ...] = tuple(QUANTIZED)
) -> Operand:
    """An operand with any scale and zero point."""
    kind = draw(st.sampled_from(kinds))
    scale = draw(st.floats(2.0**-30, 2.0**30, width=32))
    low, high = QUANTIZED_RANGES[kind]
    return Operand(kind, (16, 16, 1), scale=scale, zero_point=draw(st.integers(low, high)))


@given(quantized_operands(), st.lists(st.floats(0, 1), min_size=1, max_size=20))
def test_what_an_operand_can_represent_is_stored_within_half_a_step(
    operand: Operand, shares: list[float]
) -> None:
    limits = representable(operand)
    assert limits is not None
    real = limits[0] + np.array(shares) * (limits[1] - limits[0])
    found = real_values(stored(real, operand), operand)
    assert (np.abs(found - real) <= 0.5001 * operand.scale).all()


@given(quantized_operands())
def test_stored_values_come_back_the_same(operand: Operand) -> None:
    low, high = QUANTIZED_RANGES[OperandType(operand.type)]
    every = np.linspace(low, high, 256).astype(np.int64)
    np.testing.assert_array_equal(stored(real_values(every, operand), operand), every)


def test_what_lies_outside_becomes_the_nearest_value_and_halves_go_away_from_zero() -> None:
    operand = Operand(OperandType.TENSOR_QUANT8_ASYMM_SIGNED, (6,), scale=2.0, zero_point=1)
    real = np.array([1e9, -1e9, 1.0, -1.0, 0.9, np.inf])
    assert stored(real, operand).tolist() == [127, -128, 2, 0, 1, 127]


def test_real_inputs_take_numbers_as_they_are() -> None:
    found = stored(np.array([1.5, -1e9]), Operand(F32, (2,)))
    assert found.dtype == np.float32
    assert found.tolist() == [1.5, -1e9]
    assert representable(Operand(F32, (2,))) is None


EIGHT_BITS = (OperandType.TENSOR_QUANT8_ASYMM, OperandType.TENSOR_QUANT8_ASYMM_SIGNED)


@given(quantized_operands(EIGHT_BITS))
def test_pixels_are_the_stored_values_of_8_bits_whatever_they_stand_for(operand: Operand) -> None:
    pytest.importorskip("PIL", reason="Pillow is not installed (extra 'cli')")
    pixels = np.arange(256, dtype=np.uint8).reshape(16, 16)
    lowest, _ = QUANTIZED_RANGES[OperandType(operand.type)]
    found = from_picture(pixels, operand)
    np.testing.assert_array_equal(found[..., 0], pixels.astype(int) + lowest)


def test_picture_gets_the_channels_and_the_size_that_are_wanted() -> None:
    pytest.importorskip("PIL", reason="Pillow is not installed (extra 'cli')")
    grey = np.full((40, 30), 51, np.uint8)
    found = from_picture(grey, Operand(F32, (1, 8, 4, 3)))
    np.testing.assert_allclose(found, np.full((1, 8, 4, 3), 0.2, np.float32), rtol=1e-6)
    colours = np.zeros((4, 4, 3), np.uint8)
    colours[..., 1] = 255
    assert from_picture(colours, Operand(F32, (2, 2, 1)), (0, 255)).shape == (2, 2, 1)


@pytest.mark.parametrize(
    ("dimensions", "picture", "photograph"),
    [
        ((1, 224, 224, 3), True, True),
        ((96, 96, 1), True, True),
        ((1, 100, 300, 3), True, True),
        ((1, 49, 10, 1), True, False),
        ((1, 49, 10, 2), False, False),
        ((2, 8, 8, 3), False, False),
        ((1, 0, 8, 3), False, False),
        ((1, 16), False, False),
        ((), False, False),
    ],
)
def test_pictures_are_recognised_by_their_extents(
    dimensions: tuple[int, ...], picture: bool, photograph: bool
) -> None:
    operand = Operand(F32, dimensions)
    assert (takes_picture(operand), looks_like_photograph(operand)) == (picture, photograph)
