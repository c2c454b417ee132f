"""QUANTIZED_16BIT_LSTM: one LSTM step in 8-bit inputs and outputs and 16-bit states.

NNAPI: QuantizedLSTM.cpp.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import numpy as np

from nnburst.executor.graph.operand_dimensions import require_dimensions, require_rank
from nnburst.executor.graph.operation import Node, Run, operation
from nnburst.executor.graph.signatures import I32, Q8, Q16S, V1_2, data, row, signature
from nnburst.executor.graph.tensor import TensorType
from nnburst.executor.reference.arithmetic.fixed_point import (
    logistic,
    multiply_by_quantized_multiplier,
    quantize_multiplier,
    rounding_divide_by_pot,
    srdhm16,
    tanh,
)
from nnburst.executor.reference.families.quantized_recurrence import Int64, saturate, scale_exponent
from nnburst.executor.reference.families.recurrence import pack
from nnburst.hal.enums import ErrorStatus, OperationType

_GATES: Final = ("input", "forget", "cell", "output")
_INPUT_WEIGHTS: Final = tuple(f"input_to_{gate}_weights" for gate in _GATES)
_RECURRENT_WEIGHTS: Final = tuple(f"recurrent_to_{gate}_weights" for gate in _GATES)
_BIASES: Final = tuple(f"{gate}_gate_bias" for gate in _GATES)
#: Scale and zero point of the input and of the outputs.
_STEP: Final = 1 / 128
_ZERO: Final = 128
#: NNAPI: integer bits of the cell state; no other number is supported.
_STATE_BITS: Final = 4
#: Integer bits of the gates before their activation.
_GATE_BITS: Final = 3


def _shape(node: Node) -> list[TensorType]:
    batch, inputs = require_rank(node, "input", 2)
    outputs = require_rank(node, "output_state", 2)[1]
    for names, dimensions in (
        (_INPUT_WEIGHTS, (outputs, inputs)),
        (_RECURRENT_WEIGHTS, (outputs, outputs)),
        (_BIASES, (outputs,)),
        (("cell_state", "output_state"), (batch, outputs)),
    ):
        for name in names:
            require_dimensions(node, name, dimensions)
    _check_quantisation(node)
    return [node.tensor("cell_state").meta, node.tensor("output_state").meta]


def _check_quantisation(node: Node) -> None:
    weights = node.tensor(_INPUT_WEIGHTS[0])
    for name in ("input", "output_state"):
        _require_quantisation(node, name, _STEP, _ZERO)
    for name in (*_INPUT_WEIGHTS, *_RECURRENT_WEIGHTS):
        _require_quantisation(node, name, weights.scale, weights.zero_point)
    for name in _BIASES:
        _require_quantisation(node, name, weights.scale / 128, 0)
    exponent = scale_exponent(node, "cell_state")
    node.require(
        exponent == _STATE_BITS - 15,
        f"operand 'cell_state' has scale 2**{exponent}, expected 2**-11",
    )


def _require_quantisation(node: Node, name: str, scale: float, zero_point: int) -> None:
    tensor = node.tensor(name)
    node.require(
        (tensor.scale, tensor.zero_point) == (scale, zero_point),
        f"operand '{name}' has scale {tensor.scale} and zero point {tensor.zero_point},"
        f" expected {scale} and {zero_point}",
    )


@operation(
    signature(
        OperationType.QUANTIZED_16BIT_LSTM,
        V1_2,
        "Computes one time step of a long short-term memory in 8-bit and 16-bit integers.",
        inputs=[
            data("input", Q8),
            *(data(name, Q8) for name in (*_INPUT_WEIGHTS, *_RECURRENT_WEIGHTS)),
            *(data(name, I32) for name in _BIASES),
            data("cell_state", Q16S),
            data("output_state", Q8),
        ],
        outputs=[data("cell_state_out", Q16S), data("output", Q8)],
        rows=[row(V1_2)],
    ),
    shape=_shape,
    omitted_status=ErrorStatus.INVALID_ARGUMENT,
)
def quantized_16bit_lstm(node: Node) -> Run:
    """Compute the gates with exact float64 products of integers (their sums stay below 2**53)."""
    state, new_state = node.tensor("cell_state").array, node.output(0).array
    output = node.output(1).array
    sums = _bind_sums(node)
    multiplier = quantize_multiplier(4096 * node.tensor(_BIASES[0]).scale)

    def run() -> None:
        gates = saturate(multiply_by_quantized_multiplier(sums(), *multiplier), 16)
        i, f, c, o = np.split(gates, 4, axis=1)
        i, f, o = (logistic(gate, _GATE_BITS, 16) for gate in (i, f, o))
        candidate = srdhm16(i, tanh(c, _GATE_BITS, 16))
        kept = srdhm16(f, state)
        new = saturate(rounding_divide_by_pot(candidate, _STATE_BITS) + kept, 16)
        activated = tanh(saturate(new << (_STATE_BITS - _GATE_BITS), 16), _GATE_BITS, 16)
        stored = rounding_divide_by_pot(srdhm16(o, activated), 8)
        new_state[...] = new
        output[...] = saturate(stored, 8) + _ZERO

    return run


def _bind_sums(node: Node) -> Callable[[], Int64]:
    """What computes the gates' sums of products [batch, 4 · outputs], gate by gate."""
    recurrent, refresh_recurrent = pack(node, _RECURRENT_WEIGHTS, np.float64)
    weights, refresh_weights = pack(node, _INPUT_WEIGHTS, np.float64)
    bias, refresh_bias = pack(node, _BIASES, np.int64)
    zero = node.tensor(_INPUT_WEIGHTS[0]).zero_point
    x, h = node.tensor("input").array, node.tensor("output_state").array
    inputs, outputs = x.shape[1], h.shape[1]
    both = node.scratch((len(x), inputs + outputs), np.float64)

    def sums() -> Int64:
        for refresh in (refresh_recurrent, refresh_weights, refresh_bias):
            refresh()
        both[:, :inputs] = x
        both[:, inputs:] = h
        np.subtract(both, _ZERO, out=both)
        # NNAPI: the data is [input, state] but the weights are [recurrent, input]: if the two
        # differ in width, weights meet elements of the other one. Results depend on it.
        total = both[:, :outputs] @ recurrent.T + both[:, outputs:] @ weights.T
        total -= zero * both.sum(axis=1, keepdims=True)
        return np.asarray(total.astype(np.int64) + bias)

    return sums
