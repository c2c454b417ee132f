"""Implements the core operations a second time: one element after the other, in real numbers.

It shares nothing with the reference executor, so that agreement means something: no vectorised
kernels, no integer arithmetic, no shape rules. Quantised tensors are turned into real numbers and
results back again, so they may differ from exact integer arithmetic by a step.
"""

from nnburst.testing.models.naive import detection, elementwise, movement, recurrence, spatial
from nnburst.testing.models.naive.registry import NAIVE, Meta, Value, evaluate

__all__ = [
    "NAIVE",
    "evaluate",
    "Meta",
    "Value",
    "detection",
    "elementwise",
    "movement",
    "spatial",
    "recurrence",
]
