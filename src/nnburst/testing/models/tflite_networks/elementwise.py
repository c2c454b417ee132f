"""Networks of operators on every element that need more than one of each."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from nnburst.testing.models.tflite_builder import TfliteBuilder
from nnburst.testing.models.tflite_networks.registry import (
    DTYPES,
    EVERY,
    IMAGE,
    OUTPUT,
    QUANTIZATION,
    network,
)


@network("SOFTMAX", *EVERY)
def _softmax(b: TfliteBuilder, kind: str) -> None:
    x = b.input(kind, (2, 5), **QUANTIZATION.get(kind, {}))
    forced = {"UINT8": {"scale": 1 / 256}, "INT8": {"scale": 1 / 256, "zero_point": -128}}
    y = b.output(kind, (2, 5), **forced.get(kind, {}))
    b.operator("SOFTMAX", [x], [y], "SoftmaxOptions", beta=1.0)


@network("LOGISTIC", *EVERY)
def _logistic(b: TfliteBuilder, kind: str) -> None:
    x = b.input(kind, (2, 50), **QUANTIZATION.get(kind, {}))
    forced = {"UINT8": {"scale": 1 / 256}, "INT8": {"scale": 1 / 256, "zero_point": -128}}
    b.operator("LOGISTIC", [x], [b.output(kind, (2, 50), **forced.get(kind, {}))])


@network("TANH", *EVERY)
def _tanh(b: TfliteBuilder, kind: str) -> None:
    x = b.input(kind, (2, 50), **QUANTIZATION.get(kind, {}))
    forced = {"UINT8": {"scale": 1 / 128, "zero_point": 128}, "INT8": {"scale": 1 / 128}}
    b.operator("TANH", [x], [b.output(kind, (2, 50), **forced.get(kind, {}))])


def positive(b: TfliteBuilder, shape: Sequence[int]) -> int:
    """A computed tensor of numbers above 0."""
    x, y = b.input("FLOAT32", shape), b.tensor("FLOAT32", shape)
    b.operator("EXP", [x], [y])
    return y


for unary in ("LOG", "SQRT", "RSQRT"):

    @network(unary)
    def _of_positive(b: TfliteBuilder, kind: str, unary: str = unary) -> None:
        b.operator(unary, [positive(b, (2, 3))], [b.output(kind, (2, 3))])


@network("POW")
def _pow(b: TfliteBuilder, kind: str) -> None:
    x = positive(b, (2, 3))
    b.operator("POW", [x, b.input(kind, (2, 3))], [b.output(kind, (2, 3))])


@network("PRELU", *EVERY)
def _prelu(b: TfliteBuilder, kind: str) -> None:
    x = b.input(kind, IMAGE, **QUANTIZATION.get(kind, {}))
    slopes = np.array([[[1, 2, 3]]], DTYPES[kind])
    alpha = b.constant(kind, slopes, **({"scale": 0.125} if kind != "FLOAT32" else {}))
    b.operator("PRELU", [x, alpha], [b.output(kind, IMAGE, **OUTPUT.get(kind, {}))])


@network("LOGICAL")
def _logical(b: TfliteBuilder, kind: str) -> None:
    x, y = b.input(kind, (2, 3)), b.input(kind, (2, 3))
    above, below, both = (b.tensor("BOOL", (2, 3)) for _ in range(3))
    b.operator("GREATER", [x, y], [above])
    b.operator("LOGICAL_NOT", [above], [below])
    b.operator("LOGICAL_OR", [above, below], [both])
    b.operator("LOGICAL_AND", [both, above], [b.output("BOOL", (2, 3))])
    b.operator("SELECT_V2", [above, x, y], [b.output(kind, (2, 3))])
    b.operator("SELECT", [below, x, y], [b.output(kind, (2, 3))])
    axes = b.constant("INT32", np.array([1], "<i4"))
    for operator in ("REDUCE_ANY", "REDUCE_ALL"):
        b.operator(operator, [above, axes], [b.output("BOOL", (2,))], "ReducerOptions")
