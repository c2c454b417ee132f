"""The operators that can be translated, one table entry each; importing this registers them all."""

from nnburst.importer.tflite.operators import (
    control_flow,
    convolution,
    elementwise,
    fully_connected,
    join,
    lookup,
    normalization,
    pooling,
    quantization,
    recurrent,
    reduction,
    reshape,
    resize,
    slicing,
    spatial,
    variables,
)

__all__ = [
    "control_flow",
    "convolution",
    "elementwise",
    "fully_connected",
    "join",
    "lookup",
    "normalization",
    "pooling",
    "quantization",
    "recurrent",
    "reduction",
    "reshape",
    "resize",
    "slicing",
    "spatial",
    "variables",
]
