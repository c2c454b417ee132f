"""Small .tflite files, at least one per operator of the importer's table and type.

`NETWORKS` maps a name to a function that builds the file. The files are intact, and their inputs may
have any values.
"""

from nnburst.testing.models.tflite_networks import (
    elementwise,
    movement,
    plain,
    quantized,
    sparse,
    stateful,
    weighted,
)
from nnburst.testing.models.tflite_networks.registry import NETWORKS

__all__ = [
    "NETWORKS",
    "elementwise",
    "movement",
    "plain",
    "quantized",
    "sparse",
    "stateful",
    "weighted",
]
