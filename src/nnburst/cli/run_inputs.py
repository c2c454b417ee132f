"""Reads files as the inputs of a network: arrays (.npy), sounds (.wav), pictures (all else)."""

from __future__ import annotations

import argparse
import math
import wave
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path
from tokenize import TokenError
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from nnburst.hal.enums import OperandType
from nnburst.hal.errors import InvalidArgument
from nnburst.hal.model import QUANTIZED_RANGES, Operand
from nnburst.hal.whole_graph import array_dtype
from nnburst.testing.models.network_file import Range, from_picture, stored, takes_picture

Array = npt.NDArray[Any]

#: By the bytes of a sample: the dtype in which it is stored, and the value of full scale.
_PCM: Final = {1: ("u1", 128.0), 2: ("<i2", 32768.0), 4: ("<i4", 2147483648.0)}

#: Errors of reading an .npy file: its header is a Python literal and may claim any shape.
_NO_ARRAY: Final = (
    ValueError,
    EOFError,
    TypeError,
    SyntaxError,
    TokenError,
    OverflowError,
    MemoryError,
    RecursionError,
)


def pixel_range(text: str) -> Range:
    """Parse LOW:HIGH as two numbers (type of `--pixel-range`)."""
    low, colon, high = text.partition(":")
    try:
        found = float(low), float(high)
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r}, expected LOW:HIGH such as -1:1") from None
    if not colon or not all(map(math.isfinite, found)) or found[0] >= found[1]:
        raise argparse.ArgumentTypeError(f"{text!r}, expected LOW:HIGH such as -1:1")
    return found


def add_pixel_range_option(parser: argparse.ArgumentParser) -> None:
    """Add `--pixel-range`."""
    parser.add_argument(
        "--pixel-range",
        type=pixel_range,
        metavar="LOW:HIGH",
        help="real values of black and white (default: what a quantised input can represent, or 0:1)",
    )


def read_inputs(
    paths: Sequence[Path], names: Sequence[str], operands: Sequence[Operand], pixels: Range | None
) -> list[Array]:
    """Read one array for each input, of the input's dtype and shape.

    Args:
        paths: one file for each input, in order.
        names: the inputs' names.
        operands: the inputs' operands.
        pixels: real values of black and white; see `nnburst.testing.models.network_file.from_picture`.

    Raises:
        InvalidArgument: there are too few or too many files, or a file does not fit; the message names it.
        OSError: a file cannot be read.
    """
    if len(paths) != len(names):
        wanted = ", ".join(f"{n} ({_wanted(o)})" for n, o in zip(names, operands, strict=True))
        raise InvalidArgument(
            f"--input: {len(paths)} given, the model has {len(names)}: {wanted or 'none'}"
        )
    return [
        _Input(path, name, operand).read(pixels)
        for path, name, operand in zip(paths, names, operands, strict=True)
    ]


class _Input:
    """One file for one input."""

    def __init__(self, path: Path, name: str, operand: Operand) -> None:
        self._path = path
        self._name = name
        self._operand = operand

    def read(self, pixels: Range | None) -> Array:
        self._path.stat()  # a file that is not there is no picture
        suffix = self._path.suffix.lower()
        if suffix == ".npy":
            return self._array()
        if suffix == ".wav":
            return self._sound()
        return self._picture(pixels)

    def _array(self) -> Array:
        """Stored values as they are; real numbers for a quantised input are quantised."""
        try:
            with self._path.open("rb") as file:
                found: Array = np.lib.format.read_array(file, allow_pickle=False)
        except _NO_ARRAY as error:
            raise self._refused(f"is not a .npy file of numbers: {error}") from None
        self._check_shape(found.shape)
        shape = found.shape if 0 in self._operand.dimensions else self._operand.dimensions
        dtype = array_dtype(OperandType(self._operand.type))
        if found.dtype == dtype or (dtype == np.bool_ and found.dtype == np.uint8):
            return np.ascontiguousarray(found, dtype).reshape(shape)
        if found.dtype.kind != "f":
            raise self._refused(f"has dtype {found.dtype}")
        if dtype.kind != "f" and OperandType(self._operand.type) not in QUANTIZED_RANGES:
            raise self._refused(f"has dtype {found.dtype}")
        if dtype.kind != "f" and not np.isfinite(found).all():
            raise self._refused("has values that are not finite")
        return stored(found, self._operand).reshape(shape)

    def _check_shape(self, shape: tuple[int, ...]) -> None:
        """Check an array's shape; extents of 1 may be missing or added."""
        wanted = self._operand.dimensions
        if 0 in wanted or (not wanted and shape):  # the driver checks it
            return
        if [n for n in shape if n != 1] != [n for n in wanted if n != 1]:
            raise self._refused(f"has shape {shape}")

    def _sound(self) -> Array:
        """One window of sound, from the beginning: channels averaged, -1 to 1, silence at the end."""
        try:
            with wave.open(str(self._path), "rb") as file:
                width, channels = file.getsampwidth(), file.getnchannels()
                content = file.readframes(file.getnframes())
        except (wave.Error, EOFError) as error:
            why = str(error) or "it ends too early"  # an EOFError has no text
            raise self._refused(f"is not PCM sound: {why}") from None
        content = content[: len(content) // (width * channels) * width * channels]  # whole samples
        samples = self._samples(content, width).reshape(-1, channels).mean(axis=1)
        operand = self._operand
        count = math.prod(operand.dimensions)
        if not count or not operand.dimensions:
            raise self._refused("is a sound, but the input's extents are not known")
        window = np.zeros(count)
        kept = min(count, len(samples))
        window[:kept] = samples[:kept]
        return stored(window.reshape(operand.dimensions), operand)

    def _samples(self, content: bytes, width: int) -> Array:
        if width == 3:  # 3 bytes are widened to 4, with 0 as the lowest one
            wide = np.zeros((len(content) // 3, 4), np.uint8)
            wide[:, 1:] = np.frombuffer(content, np.uint8).reshape(-1, 3)
            return wide.view("<i4").reshape(-1) / _PCM[4][1]
        if width not in _PCM:
            raise self._refused(f"has samples of {width} bytes")
        dtype, loudest = _PCM[width]
        samples = np.frombuffer(content, dtype).astype(np.float64)
        return (samples - 128 if width == 1 else samples) / loudest

    def _picture(self, pixels: Range | None) -> Array:
        if find_spec("PIL") is None:
            raise self._refused("is a picture, which needs Pillow: pip install 'nnburst[cli]'")
        from PIL import Image, UnidentifiedImageError

        if not takes_picture(self._operand):
            raise self._refused(
                "is taken for a picture, whose extents are (1, height, width, 3) or (1, 3, height, width)"
            )
        try:
            with Image.open(self._path) as image:
                content = np.asarray(image.convert("RGBA" if _has_alpha(image) else "RGB"))
        except (UnidentifiedImageError, Image.DecompressionBombError, SyntaxError) as error:
            raise self._refused(f"is not a picture: {error}") from None
        return from_picture(content, self._operand, pixels)

    def _refused(self, why: str) -> InvalidArgument:
        return InvalidArgument(
            f"--input {self._path}: {why}; input {self._name!r} takes {_wanted(self._operand)}"
        )


def _has_alpha(image: Any) -> bool:  # noqa: ANN401 - a Pillow image
    return "A" in image.getbands() or "transparency" in image.info


def _wanted(operand: Operand) -> str:
    kind = OperandType(operand.type)
    extents = ", ".join("any" if n == 0 else str(n) for n in operand.dimensions)
    either = " or real numbers, which are quantised," if kind in QUANTIZED_RANGES else ""
    return f"{array_dtype(kind).name}{either} of shape ({extents})"
