"""Implements the core operations a second time: one element after the other, in real numbers.

It shares no code with the reference executor, so that agreement is evidence: it has no vectorised kernels,
integer arithmetic or shape rules. Quantised tensors are converted to real numbers and results back again, so
results may differ from exact integer arithmetic by a step.
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
