"""QUANTIZED_16BIT_LSTM: one LSTM step in 8-bit inputs and outputs and 16-bit states.

NNAPI: QuantizedLSTM.cpp.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import numpy as np

from nnburst.executor.graph.operation import Node, Run, kernel
from nnburst.executor.operations.families.scales import quantize_multiplier
from nnburst.executor.operations.quantized_16bit_lstm import (
    BIASES,
    INPUT_WEIGHTS,
    RECURRENT_WEIGHTS,
    STATE_BITS,
    ZERO,
)
from nnburst.executor.reference.arithmetic.fixed_point import (
    logistic,
    multiply_by_quantized_multiplier,
    rounding_divide_by_pot,
    srdhm16,
    tanh,
)
from nnburst.executor.reference.families.quantized_recurrence import Int64, saturate
from nnburst.executor.reference.families.recurrence import pack
from nnburst.hal.enums import OperationType

#: Integer bits of the gates before their activation.
_GATE_BITS: Final = 3


@kernel(OperationType.QUANTIZED_16BIT_LSTM)
def quantized_16bit_lstm(node: Node) -> Run:
    """Compute the gates with exact float64 products of integers (their sums stay below 2**53)."""
    state, new_state = node.tensor("cell_state").array, node.output(0).array
    output = node.output(1).array
    sums = _bind_sums(node)
    multiplier = quantize_multiplier(4096 * node.tensor(BIASES[0]).scale)

    def run() -> None:
        gates = saturate(multiply_by_quantized_multiplier(sums(), *multiplier), 16)
        i, f, c, o = np.split(gates, 4, axis=1)
        i, f, o = (logistic(gate, _GATE_BITS, 16) for gate in (i, f, o))
        candidate = srdhm16(i, tanh(c, _GATE_BITS, 16))
        kept = srdhm16(f, state)
        new = saturate(rounding_divide_by_pot(candidate, STATE_BITS) + kept, 16)
        activated = tanh(saturate(new << (STATE_BITS - _GATE_BITS), 16), _GATE_BITS, 16)
        stored = rounding_divide_by_pot(srdhm16(o, activated), 8)
        new_state[...] = new
        output[...] = saturate(stored, 8) + ZERO

    return run


def _bind_sums(node: Node) -> Callable[[], Int64]:
    """What computes the gates' sums of products [batch, 4 · outputs], gate by gate."""
    recurrent, refresh_recurrent = pack(node, RECURRENT_WEIGHTS, np.float64)
    weights, refresh_weights = pack(node, INPUT_WEIGHTS, np.float64)
    bias, refresh_bias = pack(node, BIASES, np.int64)
    zero = node.tensor(INPUT_WEIGHTS[0]).zero_point
    x, h = node.tensor("input").array, node.tensor("output_state").array
    inputs, outputs = x.shape[1], h.shape[1]
    both = node.scratch((len(x), inputs + outputs), np.float64)

    def sums() -> Int64:
        for refresh in (refresh_recurrent, refresh_weights, refresh_bias):
            refresh()
        both[:, :inputs] = x
        both[:, inputs:] = h
        np.subtract(both, ZERO, out=both)
        # NNAPI: the data is [input, state] but the weights are [recurrent, input]: if the two
        # differ in width, weights meet elements of the other one. Results depend on it.
        total = both[:, :outputs] @ recurrent.T + both[:, outputs:] @ weights.T
        total -= zero * both.sum(axis=1, keepdims=True)
        return np.asarray(total.astype(np.int64) + bias)

    return sums
