"""Reads a network's file for its own engine and for NNAPI, and makes inputs of pictures and numbers."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt
from msgspec import structs

from nnburst.hal.enums import OperandType
from nnburst.hal.model import DTYPES, QUANTIZED_RANGES, Operand
from nnburst.hal.regular_file import read_regular_file
from nnburst.importer.imported_model import ImportedModel
from nnburst.importer.load import is_onnx, load

Array = npt.NDArray[Any]


@dataclass(frozen=True)
class NetworkFile:
    """A network with its inputs and outputs, apart from states.

    Attributes:
        name: name of the file, without suffix.
        content: bytes of the file.
        imported: the model, whose inputs and outputs include states.
        inputs: operands of the inputs.
        outputs: operands of the outputs.
        input_names: the file's names of the inputs.
        output_names: the file's names of the outputs.
        output_positions: positions of the outputs among the model's outputs.
        reading: imports a file's bytes with the same options.
        constants: values of inputs of an .onnx file that are the same in every execution.
    """

    name: str
    content: bytes
    imported: ImportedModel
    inputs: tuple[Operand, ...]
    outputs: tuple[Operand, ...]
    input_names: tuple[str, ...]
    output_names: tuple[str, ...]
    output_positions: tuple[int, ...]
    reading: Callable[[bytes], ImportedModel] = load
    constants: Mapping[str, npt.ArrayLike] = field(default_factory=dict)

    @classmethod
    def read(cls, path: Path, **options: Any) -> NetworkFile:  # noqa: ANN401 - those of `load`
        """Read a file, with options of `nnburst.load`.

        Raises:
            InvalidArgument: it is not a network that NNAPI can express.
            OSError: it cannot be read.
        """
        reading = partial(load, **options)
        found = cls.of(path.stem, read_regular_file(path), load(path, **options), reading)
        return replace(found, constants=options.get("constants") or {})

    @classmethod
    def of(
        cls,
        name: str,
        content: bytes,
        imported: ImportedModel,
        reading: Callable[[bytes], ImportedModel],
    ) -> NetworkFile:
        """Make it from a file's content and the model imported from it.

        Args:
            name: name of the network.
            content: bytes of the file.
            imported: the model.
            reading: imports a file's bytes with the same options.
        """
        main = imported.model.main
        given = {state.input_index for state in imported.states}
        left = {state.output_index for state in imported.states}
        into = [at for at in range(len(main.input_indexes)) if at not in given]
        out = [at for at in range(len(main.output_indexes)) if at not in left]
        return cls(
            name,
            content,
            imported,
            tuple(main.operands[main.input_indexes[at]] for at in into),
            tuple(main.operands[main.output_indexes[at]] for at in out),
            tuple(imported.input_names[at] for at in into),
            tuple(imported.output_names[at] for at in out),
            tuple(out),
            reading,
        )

    @property
    def is_tflite(self) -> bool:
        """Whether this is a .tflite file, which LiteRT runs unchanged."""
        return not is_onnx(self.content)

    def relaxed(self) -> NetworkFile:
        """The same network, with permission to compute float32 as float16."""
        model = structs.replace(self.imported.model, relax_computation_float32_to_float16=True)
        return replace(self, imported=replace(self.imported, model=model))

    def with_states(self, inputs: Sequence[Array]) -> list[Array]:
        """All inputs of the model, with copies of the states' initial values."""
        initial = {state.input_index: state.initial for state in self.imported.states}
        others = iter(inputs)
        count = len(self.imported.model.main.input_indexes)
        return [np.array(initial[at]) if at in initial else next(others) for at in range(count)]

    def without_states(self, outputs: Sequence[Array]) -> list[Array]:
        """Pick the outputs without states from all outputs of the model."""
        return [outputs[at] for at in self.output_positions]


Range = tuple[float, float]

#: Pillow's mode of a picture, by number of channels.
_MODES: Final = {1: "L", 3: "RGB", 4: "RGBA"}
#: Default real values of black and white.
_UNIT: Final = (0.0, 1.0)


def takes_picture(operand: Operand) -> bool:
    """Whether an input has the extents of one picture; see `from_picture`."""
    return _layout(operand) is not None


def looks_like_photograph(operand: Operand) -> bool:
    """Whether an input is likely to be for photographs: in colour, or neither side twice the other."""
    layout = _layout(operand)
    if layout is None:
        return False
    height, width, channels, _ = layout
    return channels == 3 or max(height, width) <= 2 * min(height, width)


def from_picture(picture: Array, operand: Operand, pixel_range: Range | None = None) -> Array:
    """Convert a picture to the values of an input.

    Args:
        picture: uint8, (height, width) or (height, width, channels).
        operand: an input for which `takes_picture` is true: of extents (height, width, channels), or
            (channels, height, width) if only that is possible, with or without a leading 1; 1, 3 or 4
            channels. The picture is resized to these extents and converted to this number of channels.
        pixel_range: real values of black and white. By default the least and the greatest value that scale
            and zero point can represent (stored 8-bit values are then the pixels themselves), or 0 and 1 for
            an input of real numbers.

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
    """Convert real values to an operand's stored values: quantised by its scale and zero point, or converted.

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
    """The layout of an input's picture; None if it has none. If both layouts fit, channels are last."""
    batched = len(operand.dimensions) == 4 and operand.dimensions[0] == 1
    extents = operand.dimensions[1:] if batched else operand.dimensions
    if len(extents) != 3 or not all(extents):
        return None
    if extents[2] in _MODES:
        return _Layout(*extents, is_planar=False)
    if extents[0] in _MODES:
        return _Layout(extents[1], extents[2], extents[0], is_planar=True)
    return None
