"""Rule M5: subgraphs that refer to each other form no cycle, and nest only so deep.

NNAPI: Validation.cpp checkNoReferenceCycles.
"""

from __future__ import annotations

from typing import Final

from nnburst.hal.enums import OperandLifeTime
from nnburst.hal.model import Model, Subgraph
from nnburst.hal.validation.broken import Broken

#: Subgraphs within subgraphs. DEVIATES: the original has no limit and overflows its stack; an
#: executor that evaluates subgraphs by calling itself needs one.
MAX_SUBGRAPH_DEPTH: Final = 64


def validate_nesting(model: Model) -> None:
    """Check the references of all subgraphs; their SUBGRAPH operands are valid (O19).

    Raises:
        Broken: M5.
    """
    uses = [_references(graph) for graph in (*model.referenced, model.main)]
    users: list[list[int]] = [[] for _ in uses]
    for user, used in enumerate(uses):
        for index in used:
            users[index].append(user)
    missing = [len(used) for used in uses]
    depths = [0] * len(uses)
    # A subgraph's depth is known once those of all that it uses are; a cycle never gets there.
    order = [index for index, count in enumerate(missing) if not count]
    for index in order:
        for user in users[index]:
            depths[user] = max(depths[user], depths[index] + 1)
            missing[user] -= 1
            if not missing[user]:
                order.append(user)
    if len(order) < len(uses):
        raise Broken("M5", "subgraphs refer to each other in a cycle")
    if max(depths) > MAX_SUBGRAPH_DEPTH:
        raise Broken("M5", f"subgraphs nest {max(depths)} deep, at most {MAX_SUBGRAPH_DEPTH}")


def _references(graph: Subgraph) -> set[int]:
    return {o.location.offset for o in graph.operands if o.lifetime == OperandLifeTime.SUBGRAPH}
