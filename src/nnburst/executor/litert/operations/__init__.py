"""Registers the lowering functions of all families."""

from nnburst.executor.litert.operations import (
    convolution,
    elementwise,
    movement,
    normalization,
    recurrence,
)

__all__ = ["convolution", "elementwise", "movement", "normalization", "recurrence"]
