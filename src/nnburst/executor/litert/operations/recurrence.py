"""LSTM: one step, from a product and elementwise operators."""

from __future__ import annotations

from typing import Final

import numpy as np
from msgspec.structs import replace

from nnburst.executor.graph.tensor import Array
from nnburst.executor.litert.graph import Value
from nnburst.executor.litert.lowering import Lowering, lowers, require
from nnburst.executor.operations.families.lstm_operands import GATES, LstmOperands
from nnburst.hal.enums import OperandType, OperationType

#: Operators by NNAPI's codes of an LSTM's activation.
_ACTIVATIONS: Final = {1: "RELU", 3: "RELU6", 4: "TANH", 6: "LOGISTIC"}


@lowers(OperationType.LSTM)
def lstm(op: Lowering) -> list[Value]:
    """A step without coupled gates, peepholes, projection and normalisation.

    All gates come of one product with input and state side by side. It is the scratch buffer, too, whose
    content NNAPI leaves open.
    """
    x, state, cells = (op.value(name) for name in ("input", "output_state", "cell_state"))
    weights, bias = _gates(op)
    activation = int(op.number("activation"))
    require(activation in _ACTIVATIONS, f"activation {activation} of an LSTM")
    name = _ACTIVATIONS[activation]
    require(not op.number("cell_clip") and not op.number("projection_clip"), "a clip")
    scratch, like = op.result(0), cells.meta
    width = x.shape[1] + state.shape[1]
    joined = replace(x.meta, dimensions=(x.shape[0], width))
    both = op.emit("CONCATENATION", [x, state], joined, "Concatenation", axis=1)
    operands = [both, op.constant(weights, x.meta), op.constant(bias, x.meta)]
    product = op.emit("FULLY_CONNECTED", operands, scratch, "FullyConnected")
    axis = op.integers(np.array(1, np.int32))
    parts = op.graph.operator("SPLIT", [axis, product], [like] * 4, "Split", numSplits=4)
    gate_in, forget, candidate, gate_out = (
        op.emit(name if gate == "cell" else "LOGISTIC", [part], like)
        for gate, part in zip(GATES, parts, strict=True)
    )
    kept, added = op.binary("MUL", forget, cells), op.binary("MUL", gate_in, candidate)
    next_cells = op.binary("ADD", kept, added)
    activated = op.emit(name, [next_cells], like)
    # Twice: what reads the one alone may become part of its operator, and the other is a state.
    next_state, output = (op.binary("MUL", gate_out, activated) for _ in range(2))
    return [product, next_state, next_cells, output]


def _gates(op: Lowering) -> tuple[Array, Array]:
    """Weights [4 cells, inputs and outputs] and bias of all gates, in the order of the scratch buffer."""
    cell = LstmOperands(op.node)
    require(op.result().type is OperandType.TENSOR_FLOAT32, f"an LSTM of {op.result().type.name}")
    require(not cell.coupled, "coupled gates")
    require(not (cell.has_peephole or cell.has_projection), "peepholes or a projection")
    require(not cell.has_layer_norm, "layer normalisation")
    patterns = ("input_to_{}_weights", "recurrent_to_{}_weights", "{}_gate_bias")
    names = [cell.names(pattern) for pattern in patterns]
    for each in (name for of_gates in names for name in of_gates):
        require(op.is_constant(each), f"'{each}' that is not a constant")
    of_input, of_state, bias = (
        np.concatenate([op.node.tensor(name).array for name in of_gates]) for of_gates in names
    )
    return np.concatenate([of_input, of_state], axis=1), bias
