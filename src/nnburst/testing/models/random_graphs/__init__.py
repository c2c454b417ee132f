"""Draws random models with known results, executes them a second way, and compares."""

from nnburst.testing.models.random_graphs.builder import SIZES, RandomGraph
from nnburst.testing.models.random_graphs.check import check, shrink
from nnburst.testing.models.random_graphs.generate import PRIMARY, generate

__all__ = ["generate", "check", "shrink", "RandomGraph", "PRIMARY", "SIZES"]
