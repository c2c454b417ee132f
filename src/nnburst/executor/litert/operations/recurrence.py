"""Lowers LSTMs to LiteRT: time steps, each from a product and elementwise operators."""

from __future__ import annotations

from typing import Final

from msgspec.structs import replace

from nnburst.executor.graph.tensor import Array
from nnburst.executor.graph.translation import require
from nnburst.executor.litert.graph import Value
from nnburst.executor.litert.lowering import Lowering, lowers
from nnburst.executor.operations.lstm import GATES, LstmOperands
from nnburst.hal import late_numpy as np
from nnburst.hal.enums import OperandType, OperationType

#: Operators by NNAPI's codes of an LSTM's activation.
_ACTIVATIONS: Final = {1: "RELU", 3: "RELU6", 4: "TANH", 6: "LOGISTIC"}
#: The most steps that a sequence is unrolled into; each has a dozen operators.
_MOST_STEPS: Final = 16


class _PlainCell:
    """A plain LSTM cell: the weights, the bias and the activation that all steps share.

    A plain cell has no coupled gates, peepholes, projection or normalisation.
    """

    def __init__(self, op: Lowering) -> None:
        """Read the cell of an operation with an LSTM's operands."""
        self._op = op
        weights, bias = _gates(op)
        activation = int(op.number("activation"))
        require(activation in _ACTIVATIONS, f"activation {activation} of an LSTM")
        self._activation = _ACTIVATIONS[activation]
        require(not op.number("cell_clip") and not op.number("projection_clip"), "a clip")
        meta = op.value("input").meta
        self._constants = [op.constant(weights, meta), op.constant(bias, meta)]
        self._width = bias.size

    def step(self, x: Value, state: Value, cells: Value) -> tuple[Value, Value, Value, Value]:
        """One time step: the product of all gates, the output gate, the new cells, and these activated."""
        op, like = self._op, cells.meta
        joined = replace(x.meta, dimensions=(x.shape[0], x.shape[1] + state.shape[1]))
        both = op.emit("CONCATENATION", [x, state], joined, "Concatenation", axis=1)
        gates = replace(x.meta, dimensions=(x.shape[0], self._width))
        product = op.emit("FULLY_CONNECTED", [both, *self._constants], gates, "FullyConnected")
        axis = op.integers(np.array(1, np.int32))
        parts = op.graph.operator("SPLIT", [axis, product], [like] * 4, "Split", numSplits=4)
        gate_in, forget, candidate, gate_out = (
            op.emit(self._activation if gate == "cell" else "LOGISTIC", [part], like)
            for gate, part in zip(GATES, parts, strict=True)
        )
        kept, added = op.binary("MUL", forget, cells), op.binary("MUL", gate_in, candidate)
        next_cells = op.binary("ADD", kept, added)
        return product, gate_out, next_cells, op.emit(self._activation, [next_cells], like)


@lowers(OperationType.LSTM)
def lstm(op: Lowering) -> list[Value]:
    """LSTM: one step. The product serves as the scratch buffer, whose content NNAPI leaves open."""
    cell = _PlainCell(op)
    x, state, cells = (op.value(name) for name in ("input", "output_state", "cell_state"))
    product, gate_out, next_cells, activated = cell.step(x, state, cells)
    # Made twice: an operation that alone reads the output may be fused into it, but the state must stay.
    next_state, output = (op.binary("MUL", gate_out, activated) for _ in range(2))
    return [product, next_state, next_cells, output]


@lowers(OperationType.UNIDIRECTIONAL_SEQUENCE_LSTM)
def unidirectional_sequence_lstm(op: Lowering) -> list[Value]:
    """UNIDIRECTIONAL_SEQUENCE_LSTM: a few steps, one after the other."""
    cell = _PlainCell(op)
    x, state, cells = (op.value(name) for name in ("input", "output_state", "cell_state"))
    time = 0 if op.number("time_major") else 1
    steps, batch = x.shape[time], x.shape[1 - time]
    require(steps <= _MOST_STEPS, f"an LSTM of {steps} steps")
    one = tuple(1 if axis == time else extent for axis, extent in enumerate(x.shape))
    parts = [x]
    if steps > 1:
        axis, like = op.integers(np.array(time, np.int32)), replace(x.meta, dimensions=one)
        parts = op.graph.operator("SPLIT", [axis, x], [like] * steps, "Split", numSplits=steps)
    outputs = []
    for part in parts:
        _, gate_out, cells, activated = cell.step(
            op.reshape(part, (batch, x.shape[2])), state, cells
        )
        state = op.binary("MUL", gate_out, activated)
        each = (1, batch) if time == 0 else (batch, 1)
        outputs.append(op.reshape(state, (*each, state.shape[1])))
    whole = outputs[0]
    if steps > 1:
        whole = op.emit("CONCATENATION", outputs, op.result(), "Concatenation", axis=time)
    return [whole, state, cells][: op.result_count]


def _gates(op: Lowering) -> tuple[Array, Array]:
    """Weights [4 · cells, inputs + outputs] and bias of all gates, in the order of the scratch buffer."""
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
