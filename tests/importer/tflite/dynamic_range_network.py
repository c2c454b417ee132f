"""A network as converters make them by default: 8-bit weights, real activations."""

from __future__ import annotations

import numpy as np

from nnburst.testing.models.tflite_builder import TfliteBuilder

#: Extents of its image.
SIDE = 96
#: Channels after each pair of a depthwise and a pointwise convolution, and its stride.
_BLOCKS = ((32, 1), (64, 2), (64, 1), (128, 2), (128, 1), (256, 2), (256, 1), (256, 1))
_CLASSES = 100


def dynamic_range_network() -> bytes:
    """A MobileNet of 96×96 pixels: a convolution, eight pairs, a mean, FULLY_CONNECTED and SOFTMAX."""
    random = np.random.default_rng(5)
    b = TfliteBuilder()

    def stored(shape: tuple[int, ...], axis: int) -> int:
        values = random.integers(-127, 128, shape).astype("i1")
        spread = 1 / (74 * np.sqrt(np.prod(shape) / shape[axis]))  # outputs as wide as inputs
        scales = random.uniform(0.7, 1.4, shape[axis]) * spread
        return b.constant("INT8", values, scale=scales.tolist(), axis=axis)

    def bias(count: int) -> int:
        return b.constant("FLOAT32", random.normal(0, 0.1, count).astype("<f4"))

    side, channels = SIDE // 2, 16
    x = b.input("FLOAT32", (1, SIDE, SIDE, 3))
    y = b.tensor("FLOAT32", (1, side, side, channels))
    window = {"fusedActivationFunction": 3}
    b.operator(
        "CONV_2D", [x, stored((channels, 3, 3, 3), 0), bias(channels)], [y],
        "Conv2DOptions", strideW=2, strideH=2, **window,
    )  # fmt: skip
    for wide, stride in _BLOCKS:
        x, side = y, side // stride
        y = b.tensor("FLOAT32", (1, side, side, channels))
        b.operator(
            "DEPTHWISE_CONV_2D", [x, stored((1, 3, 3, channels), 3), bias(channels)], [y],
            "DepthwiseConv2DOptions", strideW=stride, strideH=stride, depthMultiplier=1, **window,
        )  # fmt: skip
        x, y = y, b.tensor("FLOAT32", (1, side, side, wide))
        b.operator(
            "CONV_2D", [x, stored((wide, 1, 1, channels), 0), bias(wide)], [y],
            "Conv2DOptions", strideW=1, strideH=1, **window,
        )  # fmt: skip
        channels = wide
    pooled, rows = b.tensor("FLOAT32", (1, channels)), b.tensor("FLOAT32", (1, _CLASSES))
    axes = b.constant("INT32", np.array([1, 2], "<i4"))
    b.operator("MEAN", [y, axes], [pooled], "ReducerOptions")
    b.operator(
        "FULLY_CONNECTED", [pooled, stored((_CLASSES, channels), 0), bias(_CLASSES)], [rows],
        "FullyConnectedOptions", asymmetricQuantizeInputs=True,
    )  # fmt: skip
    out = b.output("FLOAT32", (1, _CLASSES))
    b.operator("SOFTMAX", [rows], [out], "SoftmaxOptions", beta=1.0)
    return b.finish()
