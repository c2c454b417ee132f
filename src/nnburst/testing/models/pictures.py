"""Turns pictures and real numbers into a network's inputs: resized, scaled, quantised."""

from __future__ import annotations

from typing import Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt

from nnburst.hal.enums import OperandType
from nnburst.hal.model import DTYPES, QUANTIZED_RANGES, Operand

Array = npt.NDArray[Any]
Range = tuple[float, float]

#: Pillow's name of a picture with so many channels.
_MODES: Final = {1: "L", 3: "RGB", 4: "RGBA"}
#: Real values of black and white unless a network's user gives others.
_UNIT: Final = (0.0, 1.0)


def takes_picture(operand: Operand) -> bool:
    """Whether an input has the extents of one picture, as `from_picture` takes them."""
    return _layout(operand) is not None


def looks_like_photograph(operand: Operand) -> bool:
    """Whether an input is likely to want photographs: colours, or neither side twice the other."""
    layout = _layout(operand)
    if layout is None:
        return False
    height, width, channels, _ = layout
    return channels == 3 or max(height, width) <= 2 * min(height, width)


def from_picture(picture: Array, operand: Operand, pixel_range: Range | None = None) -> Array:
    """A picture as the values of an input.

    Args:
        picture: uint8, (height, width) or (height, width, channels).
        operand: an input for which `takes_picture`: of extents (height, width, channels), or (channels,
            height, width) if only that can be, with a 1 before them or not; 1, 3 or 4 channels. The picture
            is resized to them and gets as many channels.
        pixel_range: real values of black and white. Unless given, the least and the greatest value that
            scale and zero point can represent (stored 8-bit values are then the pixels themselves);
            0 and 1 for an input of real numbers.

    Returns:
        An array of the operand's dtype and dimensions.
    """
    from PIL import Image

    layout = _layout(operand)
    assert layout is not None
    height, width, channels, is_planar = layout
    image = Image.fromarray(picture).convert(_MODES[channels])
    image = image.resize((width, height), Image.Resampling.BILINEAR)
    low, high = pixel_range or representable(operand) or _UNIT
    pixels = np.asarray(image, np.float64).reshape(height, width, channels)
    if is_planar:
        pixels = np.moveaxis(pixels, 2, 0)
    real = low + pixels.reshape(operand.dimensions) * ((high - low) / 255)
    return stored(real, operand)


def representable(operand: Operand) -> Range | None:
    """The least and the greatest real value of a quantised operand; None for one that is not."""
    limits = QUANTIZED_RANGES.get(OperandType(operand.type))
    if limits is None or not operand.scale:
        return None
    low, high = ((limit - operand.zero_point) * operand.scale for limit in limits)
    return low, high


def stored(real: Array, operand: Operand) -> Array:
    """Real values as an operand stores them: quantised by its scale and zero point, or converted.

    Halves are rounded away from zero; values that the operand cannot represent become the nearest one.
    """
    kind = OperandType(operand.type)
    dtype = DTYPES[kind]
    if dtype.kind == "f":
        return real.astype(dtype)
    values = real.astype(np.float64)
    low, high = QUANTIZED_RANGES.get(kind) or (np.iinfo(dtype).min, np.iinfo(dtype).max)
    if kind in QUANTIZED_RANGES and operand.scale:
        values = values / operand.scale
    rounded = np.trunc(values + np.copysign(0.5, values)) + operand.zero_point
    limited: Array = np.clip(rounded, low, high)
    return limited.astype(dtype)


def real_values(values: Array, operand: Operand) -> Array:
    """The real values of stored ones, as float64."""
    numbers = values.astype(np.float64)
    if OperandType(operand.type) in QUANTIZED_RANGES and operand.scale:
        numbers = (numbers - operand.zero_point) * operand.scale
    return numbers


class _Layout(NamedTuple):
    """Extents of a picture, and whether each channel is a plane of its own (N×C×H×W)."""

    height: int
    width: int
    channels: int
    is_planar: bool


def _layout(operand: Operand) -> _Layout | None:
    """How an input takes a picture; None if it takes none. Of two that can be, the channels come last."""
    batched = len(operand.dimensions) == 4 and operand.dimensions[0] == 1
    extents = operand.dimensions[1:] if batched else operand.dimensions
    if len(extents) != 3 or not all(extents):
        return None
    if extents[2] in _MODES:
        return _Layout(*extents, is_planar=False)
    if extents[0] in _MODES:
        return _Layout(extents[1], extents[2], extents[0], is_planar=True)
    return None
