"""What each operator of ONNX becomes. Importing this fills the table."""

from __future__ import annotations

from nnburst.importer.onnx.operators import (
    activation,
    convolution,
    elementwise,
    matmul,
    normalization,
    pooling,
    quantized,
    recurrent,
    reduction,
    resize,
    shape,
    slicing,
)

__all__ = [
    "activation",
    "convolution",
    "elementwise",
    "matmul",
    "normalization",
    "pooling",
    "quantized",
    "recurrent",
    "reduction",
    "resize",
    "shape",
    "slicing",
]
