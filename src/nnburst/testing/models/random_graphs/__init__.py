"""Draws random models with known results, executes them, and compares the results."""

from nnburst.testing.models.random_graphs.builder import SIZES, RandomGraph
from nnburst.testing.models.random_graphs.graphs import PRIMARY, check, generate, shrink

__all__ = ["generate", "check", "shrink", "RandomGraph", "PRIMARY", "SIZES"]
