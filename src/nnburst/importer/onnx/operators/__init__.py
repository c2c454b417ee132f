"""Translates the operators of ONNX, by families. Importing this package fills the table of operators."""

from __future__ import annotations

from nnburst.importer.onnx.operators import (
    activation,
    convolution,
    elementwise,
    matmul,
    pooling,
    quantized,
    recurrence,
    reduction,
    shape,
    slicing,
)

__all__ = [
    "activation",
    "convolution",
    "elementwise",
    "matmul",
    "pooling",
    "quantized",
    "reduction",
    "shape",
    "slicing",
    "recurrence",
]
