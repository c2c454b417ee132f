"""One model of one operation for every type that its random template has."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import count

import numpy as np

from nnburst.hal.enums import OperandType, OperationType
from nnburst.testing.conformance.vectors import Vector
from nnburst.testing.models.random_graphs.as_vector import as_vector
from nnburst.testing.models.random_graphs.builder import SIZES, GraphBuilder, RandomGraph
from nnburst.testing.models.random_graphs.generate import FAMILIES, draw
from nnburst.testing.models.random_graphs.templates import TEMPLATES

assert FAMILIES  # their import has filled TEMPLATES


def drawn_vectors() -> Iterator[Vector]:
    """Vectors of one operation each, the same in every run."""
    for operation, template in sorted(TEMPLATES.items()):
        for kind in template.kinds:
            yield as_vector(_drawn(operation, kind))


def _drawn(operation: OperationType, kind: OperandType) -> RandomGraph:
    for seed in count():
        builder = GraphBuilder(
            np.random.default_rng([int(operation), int(kind), seed]), SIZES["single"]
        )
        if not draw(builder, operation, kind):
            continue
        inputs = builder.operations[0].inputs
        # One operand in two places could be changed to another valid operand of both.
        if len(set(inputs)) == len(inputs):
            return builder.finish(f"{operation.name}_{kind.name}", "single")
    raise AssertionError
