"""Translates the operators of .tflite files, by families.

Importing this package fills the table of operators.
"""

from nnburst.importer.tflite.operators import (
    convolution,
    elementwise,
    movement,
    recurrence,
)

__all__ = ["convolution", "elementwise", "movement", "recurrence"]
