"""Random models with known results, executed a second way and compared.

builder.py     one graph as it grows
templates.py   the registry of what operations are drawn with
the families   elementwise, normalization, movement, spatial, lookup, recurrent
generate.py    whole graphs
as_vector.py   a graph, or a part of it, as a conformance vector
check.py       running one and judging its results
shrink.py      the smallest part that still fails
"""

from nnburst.testing.models.random_graphs.builder import SIZES, RandomGraph
from nnburst.testing.models.random_graphs.check import check
from nnburst.testing.models.random_graphs.generate import PRIMARY, generate
from nnburst.testing.models.random_graphs.shrink import shrink

__all__ = ["generate", "check", "shrink", "RandomGraph", "PRIMARY", "SIZES"]
