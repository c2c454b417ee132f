"""Rules O23 and P5 to P9: how the operations and operands of one subgraph hang together.

NNAPI: Validation.cpp validateModelSubgraph, ValidateHal.cpp validateModel.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from nnburst.hal.enums import OperandLifeTime
from nnburst.hal.model import Subgraph
from nnburst.hal.validation.broken import Broken

_L = OperandLifeTime
_WRITABLE: Final = frozenset({_L.TEMPORARY_VARIABLE, _L.SUBGRAPH_OUTPUT})


def validate_graph(subgraph: Subgraph) -> None:
    """Check data flow, interface and consumer counts; operands and operations are valid themselves.

    Raises:
        Broken: O23, P5 to P9.
    """
    _check_flow(subgraph)
    _check_consumers(subgraph)
    _check_interface(subgraph, subgraph.input_indexes, _L.SUBGRAPH_INPUT, "input")
    _check_interface(subgraph, subgraph.output_indexes, _L.SUBGRAPH_OUTPUT, "output")


def _check_flow(subgraph: Subgraph) -> None:
    """Operations come in an order in which every value is written once, before it is read."""
    known = [operand.lifetime not in _WRITABLE for operand in subgraph.operands]
    for number, operation in enumerate(subgraph.operations):
        for index in operation.inputs:
            if not known[index]:
                raise Broken("P6", f"operation {number} reads operand {index} before it is written")
        for index in operation.outputs:
            lifetime = subgraph.operands[index].lifetime
            if lifetime not in _WRITABLE:
                raise Broken("P5", f"operation {number} writes operand {index}, a {lifetime.name}")
            if known[index]:
                raise Broken("P7", f"operation {number} writes operand {index} a second time")
            known[index] = True
    if not all(known):
        raise Broken("P8", f"operand {known.index(False)} is never written")


def _check_consumers(subgraph: Subgraph) -> None:
    uses = [0] * len(subgraph.operands)
    for operation in subgraph.operations:
        for index in operation.inputs:
            uses[index] += 1
    for index, (operand, count) in enumerate(zip(subgraph.operands, uses, strict=True)):
        if operand.number_of_consumers != count:
            raise Broken(
                "O23",
                f"operand {index}: number_of_consumers is {operand.number_of_consumers},"
                f" {count} inputs read it",
            )


def _check_interface(
    subgraph: Subgraph, indexes: Sequence[int], lifetime: OperandLifeTime, name: str
) -> None:
    """The list names exactly the operands of its lifetime, each once."""
    count = len(subgraph.operands)
    for position, index in enumerate(indexes):
        if not 0 <= index < count:
            raise Broken("P9", f"{name} {position} is operand {index} of {count}")
        found = subgraph.operands[index].lifetime
        if found != lifetime:
            raise Broken("P9", f"{name} {position} is operand {index}, a {found.name}")
    listed = set(indexes)
    if len(listed) != len(indexes):
        raise Broken("P9", f"an operand is listed twice among the {name}s")
    for index, operand in enumerate(subgraph.operands):
        if operand.lifetime == lifetime and index not in listed:
            raise Broken("P9", f"operand {index} is a {lifetime.name} but not among the {name}s")
