"""Lowers LSTM and UNIDIRECTIONAL_SEQUENCE_LSTM to ONNX: plain cells become the engine's own."""

from __future__ import annotations

from typing import Final

import numpy as np

from nnburst.executor.graph.tensor import TensorType
from nnburst.executor.graph.translation import require
from nnburst.executor.onnxruntime.graph import StoredValue
from nnburst.executor.onnxruntime.lowering import OnnxLowering, lowers
from nnburst.executor.operations.lstm import LstmOperands
from nnburst.hal.enums import OperandType, OperationType

#: The engine's order of the gates.
_GATES: Final = ("input", "output", "forget", "cell")
_TANH: Final = 4


def _joined(op: OnnxLowering, pattern: str) -> str:
    """The operands of all gates, joined in the engine's order, with a leading axis for its one direction."""
    values = [op.value(pattern.format(gate)) for gate in _GATES]
    names = [op.plain(op.graph.reshaped(x, (1, *x.shape))) for x in values]
    return op.graph.node("Concat", names, axis=1)[0]


def _run(op: OnnxLowering, x: StoredValue) -> list[StoredValue]:
    """Run a sequence `x` (steps first): all outputs (steps, batches, cells), the last one, and the cells."""
    op.require_real()
    cell = LstmOperands(op.node)
    require(int(op.number("activation")) == _TANH, "an LSTM of another activation than TANH")
    require(not op.number("cell_clip") and not op.number("projection_clip"), "a clip")
    require(not cell.coupled, "coupled gates")
    require(not (cell.has_peephole or cell.has_projection), "peepholes or a projection")
    require(not cell.has_layer_norm, "layer normalisation")
    batch, count, _ = cell.sizes
    states = [op.value(name) for name in ("output_state", "cell_state")]
    names = [
        op.plain(x),
        _joined(op, "input_to_{}_weights"),
        _joined(op, "recurrent_to_{}_weights"),
        op.plain(_bias(op, count)),
        "",
        *(op.plain(op.graph.reshaped(state, (1, batch, count))) for state in states),
    ]
    made = op.graph.node("LSTM", names, 3, hidden_size=count)
    kind, steps = OperandType.TENSOR_FLOAT32, x.shape[0]
    every = StoredValue(made[0], TensorType(kind, (steps, 1, batch, count)), (0, 1, 2, 3))
    last = [StoredValue(name, TensorType(kind, (1, batch, count)), (0, 1, 2)) for name in made[1:]]
    return [
        op.graph.reshaped(every, (steps, batch, count)),
        *(op.graph.reshaped(state, (batch, count)) for state in last),
    ]


def _bias(op: OnnxLowering, count: int) -> StoredValue:
    """The biases of the gates, followed by zeros for those that the engine adds to recurrent weights."""
    given = _joined(op, "{}_gate_bias")
    none = op.plain(op.constant(np.zeros((1, 4 * count), np.float32)))
    meta = TensorType(OperandType.TENSOR_FLOAT32, (1, 8 * count))
    return op.emit("Concat", [given, none], meta, axis=1)


@lowers(OperationType.LSTM)
def lstm(op: OnnxLowering) -> list[StoredValue]:
    """LSTM: one step. The scratch buffer, whose content NNAPI leaves open, is 0."""
    x = op.value("input")
    every, state, cells = _run(op, op.graph.reshaped(x, (1, *x.shape)))
    scratch = op.constant(np.zeros(op.result().dimensions, np.float32))
    return [scratch, state, cells, op.graph.reshaped(every, state.shape)]


@lowers(OperationType.UNIDIRECTIONAL_SEQUENCE_LSTM)
def unidirectional_sequence_lstm(op: OnnxLowering) -> list[StoredValue]:
    """UNIDIRECTIONAL_SEQUENCE_LSTM: a sequence, in which batches may come first."""
    x, time_major = op.value("input"), bool(op.number("time_major"))
    every, state, cells = _run(op, x if time_major else op.transposed(x, (1, 0, 2)))
    whole = every if time_major else op.transposed(every, (1, 0, 2))
    return [whole, state, cells][: op.result_count]
