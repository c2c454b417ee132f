"""Pictures and real numbers as a network takes them: resized, scaled, quantised."""

from __future__ import annotations

from typing import Any, Final

import numpy as np
import numpy.typing as npt

from nnburst.hal.enums import OperandType
from nnburst.hal.model import Operand
from nnburst.hal.operand_types import DTYPES, QUANTIZED_RANGES

Array = npt.NDArray[Any]
Range = tuple[float, float]

#: Pillow's name of a picture with so many channels.
_MODES: Final = {1: "L", 3: "RGB", 4: "RGBA"}
#: What a network of real numbers takes for black and white unless its user gives others.
_UNIT: Final = (0.0, 1.0)


def takes_picture(operand: Operand) -> bool:
    """Whether an input has the extents of one picture: (1, height, width, 1, 3 or 4), or without the 1."""
    extents = _extents(operand)
    return len(extents) == 3 and extents[2] in _MODES and all(extents)


def looks_like_photograph(operand: Operand) -> bool:
    """Whether an input is likely to want photographs: colours, or neither side twice the other."""
    if not takes_picture(operand):
        return False
    height, width, channels = _extents(operand)
    return channels == 3 or max(height, width) <= 2 * min(height, width)


def from_picture(picture: Array, operand: Operand, pixel_range: Range | None = None) -> Array:
    """A picture as the values of an input.

    Args:
        picture: uint8, (height, width) or (height, width, channels).
        operand: an input for which `takes_picture`. The picture is resized to its extents and gets as
            many channels.
        pixel_range: real values of black and white. Unless given, the least and the greatest value that
            scale and zero point can represent (stored 8-bit values are then the pixels themselves);
            0 and 1 for an input of real numbers.

    Returns:
        An array of the operand's dtype and dimensions.
    """
    from PIL import Image

    height, width, channels = _extents(operand)
    image = Image.fromarray(picture).convert(_MODES[channels])
    image = image.resize((width, height), Image.Resampling.BILINEAR)
    low, high = pixel_range or representable(operand) or _UNIT
    pixels = np.asarray(image, np.float64).reshape(operand.dimensions)
    return stored(low + pixels * ((high - low) / 255), operand)


def representable(operand: Operand) -> Range | None:
    """The least and the greatest real value of a quantised operand; None for one that is not."""
    limits = QUANTIZED_RANGES.get(OperandType(operand.type))
    if limits is None or not operand.scale:
        return None
    low, high = ((limit - operand.zero_point) * operand.scale for limit in limits)
    return low, high


def stored(real: Array, operand: Operand) -> Array:
    """Real values as an operand stores them: quantised by its scale and zero point, or converted.

    Halves are rounded away from zero; what the operand cannot represent becomes its nearest value.
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
    """What stored values stand for, as float64."""
    numbers = values.astype(np.float64)
    if OperandType(operand.type) in QUANTIZED_RANGES and operand.scale:
        numbers = (numbers - operand.zero_point) * operand.scale
    return numbers


def _extents(operand: Operand) -> tuple[int, ...]:
    """Extents without a leading batch of 1."""
    batched = len(operand.dimensions) == 4 and operand.dimensions[0] == 1
    return operand.dimensions[1:] if batched else operand.dimensions
