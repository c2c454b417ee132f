"""Networks with weights: convolutions and FULLY_CONNECTED."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from nnburst.testing.models.tflite_builder import TfliteBuilder
from nnburst.testing.models.tflite_networks.registry import (
    DTYPES,
    EVERY,
    OUTPUT,
    QUANTIZATION,
    network,
)


def weights(shape: Sequence[int], kind: str = "INT8") -> np.ndarray[Any, Any]:
    """Weights that use the whole range."""
    random = np.random.default_rng(sum(shape))
    if kind == "FLOAT32":
        return random.uniform(-1, 1, shape).astype("<f4")
    limits = np.iinfo(DTYPES[kind])
    low = -127 if kind == "INT8" else limits.min
    return random.integers(low, limits.max, shape, DTYPES[kind], endpoint=True)


def weight_tensor(b: TfliteBuilder, kind: str, shape: Sequence[int], axis: int | None) -> int:
    """A constant filter; scales along `axis` if it is not None."""
    if kind == "FLOAT32":
        return b.constant(kind, weights(shape, kind))
    if axis is None:
        zero_point = 130 if kind == "UINT8" else 0
        return b.constant(kind, weights(shape, kind), scale=2**-8, zero_point=zero_point)
    scales = [2.0 ** -(8 + i % 3) for i in range(shape[axis])]
    return b.constant("INT8", weights(shape), scale=scales, axis=axis)


def bias_tensor(b: TfliteBuilder, kind: str, units: int) -> int:
    """A constant bias."""
    values = np.arange(-units, units, 2)
    if kind == "FLOAT32":
        return b.constant(kind, (values / 8).astype("<f4"))
    return b.constant("INT32", (values * 500).astype("<i4"), scale=0.03125 * 2**-8)


def convolution(
    name: str, kind: str, shape: Sequence[int], out: Sequence[int], axis: int | None,
    options: str, operator: str = "CONV_2D", **fields: object,
) -> None:  # fmt: skip
    """Register a network of one convolution of an image of 4×5×4."""

    @network(f"{operator}-{name}", kind)
    def build(b: TfliteBuilder, kind: str) -> None:
        x = b.input(kind, (2, 4, 5, 4), **QUANTIZATION.get(kind, {}))
        filters = weight_tensor(b, kind, shape, axis)
        coarse = {k: {**q, "scale": 0.5} for k, q in OUTPUT.items()}
        y = b.output(kind, out, **coarse.get(kind, {}))
        inputs = [x, filters, bias_tensor(b, kind, out[-1])]
        b.operator(operator, inputs, [y], options, strideW=1, strideH=1, **fields)


for kind, axis in (("FLOAT32", None), ("UINT8", None), ("INT8", None), ("INT8", 0)):
    tag = "" if axis is None else "channels-"
    convolution(
        f"{tag}same", kind, (6, 3, 2, 4), (2, 4, 5, 6), axis, "Conv2DOptions",
        fusedActivationFunction=1,
    )  # fmt: skip
    convolution(
        f"{tag}dilated", kind, (6, 2, 2, 4), (2, 2, 3, 6), axis, "Conv2DOptions",
        padding=1, dilationWFactor=2, dilationHFactor=2,
    )  # fmt: skip
    depthwise = None if axis is None else 3
    convolution(
        f"{tag}valid", kind, (1, 3, 2, 8), (2, 2, 4, 8), depthwise, "DepthwiseConv2DOptions",
        "DEPTHWISE_CONV_2D", padding=1, depthMultiplier=2, fusedActivationFunction=3,
    )  # fmt: skip
convolution("grouped", "FLOAT32", (6, 3, 2, 2), (2, 4, 5, 6), None, "Conv2DOptions")


@network("CONV_2D-hybrid")
def _hybrid(b: TfliteBuilder, kind: str) -> None:
    """Real numbers with quantised weights that DEQUANTIZE makes real."""
    x = b.input(kind, (1, 4, 4, 2))
    stored = b.constant("INT8", weights((3, 2, 2, 2)), scale=[0.5, 0.25, 0.125], axis=0)
    filters = b.tensor(kind, (3, 2, 2, 2))
    b.operator("DEQUANTIZE", [stored], [filters])
    y = b.output(kind, (1, 4, 4, 3))
    bias = bias_tensor(b, kind, 3)
    b.operator("CONV_2D", [x, filters, bias], [y], "Conv2DOptions", strideW=1, strideH=1)


@network("TRANSPOSE_CONV", *EVERY)
def _transpose_conv(b: TfliteBuilder, kind: str) -> None:
    shape = b.constant("INT32", np.array([1, 6, 8, 3], "<i4"))
    x = b.input(kind, (1, 3, 4, 2), **QUANTIZATION.get(kind, {}))
    filters = weight_tensor(b, kind, (3, 2, 2, 2), 0 if kind == "INT8" else None)
    coarse = {k: {**q, "scale": 0.25} for k, q in OUTPUT.items()}
    y = b.output(kind, (1, 6, 8, 3), **coarse.get(kind, {}))
    b.operator(
        "TRANSPOSE_CONV", [shape, filters, x], [y], "TransposeConvOptions", strideW=2, strideH=2
    )


def fully_connected(
    name: str, kind: str, axis: int | None, out: Sequence[int], **f: object
) -> None:
    """Register a network of one FULLY_CONNECTED on 6 rows of 8."""

    @network(f"FULLY_CONNECTED-{name}", kind)
    def build(b: TfliteBuilder, kind: str) -> None:
        x = b.input(kind, (2, 3, 8), **QUANTIZATION.get(kind, {}))
        filters = weight_tensor(b, kind, (5, 8), axis)
        coarse = {k: {**q, "scale": 0.25} for k, q in OUTPUT.items()}
        y = b.output(kind, out, **coarse.get(kind, {}))
        inputs = [x, filters, bias_tensor(b, kind, 5)]
        b.operator("FULLY_CONNECTED", inputs, [y], "FullyConnectedOptions", **f)


for kind in EVERY:
    fully_connected("flat", kind, None, (6, 5), fusedActivationFunction=1)
    fully_connected("kept", kind, None, (2, 3, 5), keepNumDims=True)
fully_connected("channels", "INT8", 0, (6, 5))
