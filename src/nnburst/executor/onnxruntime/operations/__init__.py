"""OnnxLowering functions by family; importing this package registers all of them."""

from nnburst.executor.onnxruntime.operations import (
    convolution,
    elementwise,
    movement,
    normalization,
    recurrence,
)

__all__ = ["convolution", "elementwise", "movement", "normalization", "recurrence"]
