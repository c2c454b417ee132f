"""OnnxLowering functions by family; importing this package registers all of them."""

from nnburst.executor.onnxruntime.operations import (
    blocks,
    convolution,
    elementwise,
    movement,
    normalization,
    pooling,
    recurrence,
    reduction,
    resizing,
)

__all__ = [
    "blocks",
    "convolution",
    "elementwise",
    "movement",
    "normalization",
    "pooling",
    "recurrence",
    "reduction",
    "resizing",
]
