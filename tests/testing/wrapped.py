"""A vector's model inside a branch of IF."""

from __future__ import annotations

import msgspec

from nnburst.testing.conformance.vectors import Vector, VectorGraph, VectorOperand, VectorOperation

_FLAG = {"type": "TENSOR_BOOL8", "dimensions": (1,), "scale": 0.0, "zero_point": 0}
_SUBGRAPH = {"type": "SUBGRAPH", "dimensions": (), "scale": 0.0, "zero_point": 0}


def inside_if(vector: Vector) -> Vector:
    """The model as both branches of an IF whose condition is a model input."""
    buffers = (*vector.buffers, b"\1", len(vector.referenced).to_bytes(4, "little"))
    flag, number = len(vector.buffers), len(vector.buffers) + 1
    head = (
        VectorOperand(**_FLAG, lifetime="SUBGRAPH_INPUT", number_of_consumers=1, data=flag),
        VectorOperand(**_SUBGRAPH, lifetime="SUBGRAPH", number_of_consumers=2, data=number),
    )
    inputs = [msgspec.structs.replace(o, number_of_consumers=1) for o in vector.inputs]
    outputs = [msgspec.structs.replace(o, number_of_consumers=0) for o in vector.outputs]
    first_output = 2 + len(inputs)
    given = tuple(range(2, first_output))
    made = tuple(range(first_output, first_output + len(outputs)))
    operation = VectorOperation("IF", (0, 1, 1, *given), made)
    graph = VectorGraph((*head, *inputs, *outputs), (operation,), (0, *given), made)
    return msgspec.structs.replace(
        vector, main=graph, referenced=(*vector.referenced, _as_branch(vector)), buffers=buffers
    )


def _as_branch(vector: Vector) -> VectorGraph:
    """The main graph; what the request fed and expected is not its operands' data any more."""
    outer = {*vector.main.inputs, *vector.main.outputs}
    return msgspec.structs.replace(
        vector.main,
        operands=tuple(
            msgspec.structs.replace(o, data=None) if i in outer else o
            for i, o in enumerate(vector.main.operands)
        ),
    )
