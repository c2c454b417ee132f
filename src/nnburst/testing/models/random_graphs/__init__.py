"""Draws random models with known results, executes them a second way, and compares."""

from nnburst.testing.models.random_graphs.builder import SIZES, RandomGraph
from nnburst.testing.models.random_graphs.graphs import PRIMARY, check, generate, shrink

__all__ = ["generate", "check", "shrink", "RandomGraph", "PRIMARY", "SIZES"]
