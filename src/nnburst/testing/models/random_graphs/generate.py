"""Draws whole graphs."""

from __future__ import annotations

from typing import Final

import numpy as np

from nnburst.hal.enums import OperandType, OperationType
from nnburst.testing.models.random_graphs import (
    elementwise,
    movement,
    picking,
    recurrence,
    spatial,
)
from nnburst.testing.models.random_graphs.builder import (
    B8,
    F16,
    F32,
    I32,
    Q8,
    Q8S,
    SIZES,
    TEMPLATES,
    GraphBuilder,
    RandomGraph,
    Unsuitable,
)

#: The families, whose import registers their templates.
FAMILIES: Final = (elementwise, movement, picking, recurrence, spatial)

#: Primary types of graphs. Quantised graphs have one operation: an unequal rounding of one step
#: would grow along a chain without meaning anything.
PRIMARY: Final = {
    "single": (F32, F16, I32, B8, Q8, Q8S),
    "small": (F32, F16, I32, B8),
    "large": (F32, F16, I32, B8),
}


def generate(size: str, kind: OperandType, seed: int) -> RandomGraph:
    """A random graph.

    Args:
        size: key of SIZES.
        kind: primary type; operations that take it are drawn.
        seed: the same seed gives the same graph.
    """
    rng = np.random.default_rng([list(SIZES).index(size), int(kind), seed])
    builder = GraphBuilder(rng, SIZES[size])
    usable = [operation for operation, t in TEMPLATES.items() if kind in t.kinds]
    while len(builder.operations) < builder.size.operations:
        draw(builder, builder.choice(usable), kind)
    return builder.finish(f"random_{size}_{kind.name.lower()}_{seed}", size)


def draw(builder: GraphBuilder, operation: OperationType, kind: OperandType) -> bool:
    """Add one operation; False, and nothing added, if the drawn one cannot be used."""
    template = TEMPLATES[operation]
    before = len(builder.operands)
    try:
        inputs, outputs = template.make(builder, kind)
        builder.add(operation, inputs, outputs, template.criteria, exact=template.exact)
    except Unsuitable:
        del builder.operands[before:]
        return False
    return True
