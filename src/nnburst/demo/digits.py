"""The digits demo's network as a model, in float32 and in 8 bits, and the images that it is tested on.

image 1x8x8x1 → CONV_2D 3x3x16 RELU → CONV_2D 3x3x24 RELU → MAX_POOL_2D 2x2 → RESHAPE 1x384
              → FULLY_CONNECTED 10 → SOFTMAX → probabilities 1x10
"""

from __future__ import annotations

from enum import Enum
from importlib.resources import as_file, files
from typing import Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt

from nnburst.hal.enums import OperandType, OperationType
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
    """The arrays of `data/NAME.npz`, which ships with the package."""
    with as_file(files(__package__) / "data" / f"{name}.npz") as path, np.load(path) as arrays:
        return dict(arrays)


#: NNAPI's codes of the implicit padding schemes and of the fused activations.
_SAME, _VALID = 1, 2
_NONE, _RELU = 0, 1

#: NNAPI: SOFTMAX on TENSOR_QUANT8_ASYMM has exactly this output quantisation.
_PROBABILITY: Final = (1 / 256, 0)


class Precision(Enum):
    """Which version of the network; the value names its file of weights."""

    FLOAT32 = "float32"
    QUANT8 = "quant8"


def build_network(precision: Precision) -> Model:
    """Build the model from the weights that the package ships.

    Its input is one image, (1, 8, 8, 1): float32 in 0..1, or uint8 as in the split (scale 1/16).
    Its output is the probability of each digit, (1, 10): float32, or uint8 with scale 1/256.
    """
    return _Builder(precision).build()


def encode(images: npt.NDArray[np.uint8], precision: Precision) -> npt.NDArray[Any]:
    """Images of the split, (count, 8, 8), as inputs of the network, (count, 1, 8, 8, 1)."""
    inputs = images.reshape(-1, 1, 8, 8, 1)
    return inputs if precision is Precision.QUANT8 else inputs.astype(np.float32) / np.float32(16)


class _Builder:
    """The model's operands by name: weights, biases and quantisations come from one file."""

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
