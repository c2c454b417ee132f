"""Random models with known results, executed a second way and compared."""

from nnburst.testing.models.random_graphs.builder import SIZES, RandomGraph
from nnburst.testing.models.random_graphs.check import check
from nnburst.testing.models.random_graphs.generate import PRIMARY, generate
from nnburst.testing.models.random_graphs.shrink import shrink

__all__ = ["generate", "check", "shrink", "RandomGraph", "PRIMARY", "SIZES"]
