"""QUANTIZED_LSTM: one LSTM step in 8-bit inputs and weights and 16-bit gates and states.

NNAPI: QLSTM.cpp, QuantUtils.cpp. Real multipliers are formed in float32, as there.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import numpy as np

from nnburst.executor.graph.operation import Node, Run, kernel
from nnburst.executor.graph.tensor import Array, Tensor
from nnburst.executor.operations.families.lstm_operands import (
    LstmOperands,
)
from nnburst.executor.operations.families.scales import quantize_multiplier, scale_exponent
from nnburst.executor.reference.arithmetic.fixed_point import (
    inv_sqrt_quantized_multiplier,
    logistic,
    multiply_by_quantized_multiplier,
    quantize_multipliers,
    rounding_divide_by_pot,
    tanh,
)
from nnburst.executor.reference.families.quantized_recurrence import Int64, saturate
from nnburst.executor.reference.families.recurrence import pack
from nnburst.hal.enums import OperationType

#: Integer bits of the gates before their activation.
_GATE_BITS: Final = 3

#: The value 1 of an activated gate.
_ONE: Final = 32767


@kernel(OperationType.QUANTIZED_LSTM)
def quantized_lstm(node: Node) -> Run:
    """Compute the gates with exact float64 products of integers (their sums stay below 2**53)."""
    output_state, new_state, output = (tensor.array for tensor in node.outputs)
    old_state = node.tensor("cell_state").array
    gates = _Gates(LstmOperands(node))
    exponent = scale_exponent(node, "cell_state")
    cell_clip = _stored_clip(node, "cell_clip", node.tensor("cell_state").scale, 16)
    hide, project = _bind_hidden(node), _bind_projection(node)

    def run() -> None:
        old = old_state.astype(np.int64)
        gates.compute(old)
        forget = logistic(gates.part("forget"), _GATE_BITS, 16)
        candidate = tanh(gates.part("cell"), _GATE_BITS, 16)
        gate = _ONE - forget
        if not gates.coupled:
            gate = logistic(gates.part("input"), _GATE_BITS, 16)
        kept = rounding_divide_by_pot(forget * old, 15)
        new = saturate(kept + rounding_divide_by_pot(gate * candidate, 30 + exponent), 16)
        if cell_clip > 0:
            new = np.clip(new, -cell_clip, cell_clip)
        out = logistic(gates.finish("output", new), _GATE_BITS, 16)
        result = project(hide(out * tanh(new, exponent + 15, 16)))
        new_state[...] = new
        output_state[...] = result
        output[...] = result

    return run


class _Gates:
    """The gates before their activations, as 16-bit numbers in F3."""

    def __init__(self, operands: LstmOperands) -> None:
        self._operands = operands
        self._node = operands.node
        self.coupled = operands.coupled
        self._cells = operands.sizes.cells
        self._products = [
            _Product(operands, "input_to_{}_weights", self._node.tensor("input")),
            _Product(operands, "recurrent_to_{}_weights", self._node.tensor("output_state")),
        ]
        names = (gate for gate in operands.gates if operands.has(f"cell_to_{gate}_weights"))
        self._peepholes = {gate: _bind_peephole(self._node, gate) for gate in names}
        self._norms = {
            gate: _bind_layer_norm(self._node, gate)
            for gate in (operands.gates if operands.has_layer_norm else ())
        }
        self._sums: Array = np.empty(0)
        self._finished: dict[str, Int64] = {}

    def compute(self, state: Int64) -> None:
        """Compute all gates but the output gate, which waits for the new cell state."""
        # NNAPI: what comes from the input is rounded and saturated before the rest is added.
        first, second = self._products
        self._sums = saturate(saturate(first.compute(), 16) + second.compute(), 16)
        self._finished = {
            gate: self.finish(gate, state) for gate in self._operands.gates if gate != "output"
        }

    def part(self, gate: str) -> Int64:
        """A gate that `compute` has finished."""
        return self._finished[gate]

    def finish(self, gate: str, state: Int64) -> Int64:
        """Add the peephole to a gate and normalise it."""
        at = self._operands.gates.index(gate) * self._cells
        z: Int64 = self._sums[:, at : at + self._cells]
        if gate in self._peepholes:
            z = self._peepholes[gate](z, state)
        # NNAPI: biases belong to layer normalisation; without it they are not added.
        return self._norms[gate](z) if gate in self._norms else z


class _Product:
    """What all gates receive from one tensor, rescaled to the step of each gate."""

    def __init__(self, operands: LstmOperands, pattern: str, source: Tensor) -> None:
        node, names = operands.node, operands.names(pattern)
        self._source = source
        self._weights, self._refresh = pack(node, names, np.float64)
        scales = [
            _ratio(node.tensor(name).scale, source.scale, node.value(f"{gate}_intermediate_scale"))
            for gate, name in zip(operands.gates, names, strict=True)
        ]
        multipliers, shifts = quantize_multipliers(scales)
        cells = operands.sizes.cells
        self._rescale = np.repeat(multipliers, cells), np.repeat(shifts, cells)
        self._centred = node.scratch(source.shape, np.float64)

    def compute(self) -> Int64:
        """Rescaled sums [batch, gates · cells]."""
        self._refresh()
        np.copyto(self._centred, self._source.array)
        np.subtract(self._centred, self._source.zero_point, out=self._centred)
        total = (self._centred @ self._weights.T).astype(np.int64)
        return multiply_by_quantized_multiplier(total, *self._rescale)


def _ratio(a: float, b: float, c: float) -> float:
    """Quotient a * b / c with every step rounded to float32."""
    with np.errstate(all="ignore"):
        return float(np.float32(a) * np.float32(b) / np.float32(c))


def _bind_peephole(node: Node, gate: str) -> Callable[[Int64, Int64], Int64]:
    # DEVIATES: NNAPI's CPU implementation reads the cell state's output, not yet written, for the
    # input and forget gates; as documented, they see the old state and the output gate the new one.
    weights = node.tensor(f"cell_to_{gate}_weights")
    step = 2.0 ** scale_exponent(node, "cell_state") * weights.scale
    real = float(np.float32(step / node.value(f"{gate}_intermediate_scale")))
    multiplier = quantize_multiplier(real)

    def add(z: Int64, state: Int64) -> Int64:
        product = weights.array.astype(np.int64) * state
        return saturate(z + multiply_by_quantized_multiplier(product, *multiplier), 16)

    return add


def _bind_layer_norm(node: Node, gate: str) -> Callable[[Int64], Int64]:
    weights = node.tensor(f"{gate}_layer_norm_weights")
    bias = node.tensor(f"{gate}_gate_bias").array
    multiplier, shift = quantize_multiplier(weights.scale)
    cells = weights.shape[0]

    def normalise(z: Int64) -> Int64:
        total, squares = z.sum(axis=1, keepdims=True), (z * z).sum(axis=1, keepdims=True)
        mean = _divide(total * 1024, cells)  # in F21: ten bits below the gate's own
        variance = _divide(squares * ((1 << 20) // cells) - mean * mean, 1 << 20)
        # NNAPI: if the variance is below 1 a limit of 0 or 1 takes its place; the root of either
        # is 1 in `inv_sqrt_quantized_multiplier`.
        root = inv_sqrt_quantized_multiplier(np.maximum(variance, 0))
        unit = multiply_by_quantized_multiplier(z * 1024 - mean, *root)
        scaled = unit * weights.array + bias
        rounded = _divide(scaled + np.where(scaled > 0, 512, -512), 1024)
        return saturate(multiply_by_quantized_multiplier(rounded, multiplier, shift + 12), 16)

    return normalise


def _divide(x: Int64, divisor: int) -> Int64:
    """Quotient of integers, truncated towards zero."""
    return np.asarray(np.sign(x) * (np.abs(x) // divisor))


def _bind_hidden(node: Node) -> Callable[[Int64], Int64]:
    """What stores the product of output gate and activated state (F0 times F0) as the hidden state."""
    zero_point = node.value("hidden_state_zero_point")
    real = float(np.float32(2.0**-30 / node.value("hidden_state_scale")))
    multiplier = quantize_multiplier(real)

    def hide(product: Int64) -> Int64:
        # NNAPI: the zero point is subtracted here and added again by the projection.
        return saturate(multiply_by_quantized_multiplier(product, *multiplier) - zero_point, 8)

    return hide


def _bind_projection(node: Node) -> Callable[[Int64], Int64]:
    weights, bias = node.find("projection_weights"), node.find("projection_bias")
    if weights is None:
        return lambda hidden: hidden
    matrix, refresh = pack(node, ["projection_weights"], np.float64)
    output = node.tensor("output_state")
    real = _ratio(weights.scale, node.value("hidden_state_scale"), output.scale)
    multiplier = quantize_multiplier(real)
    clip = _stored_clip(node, "projection_clip", weights.scale, 8)
    zero_point = node.value("hidden_state_zero_point")

    def project(hidden: Int64) -> Int64:
        refresh()
        total = ((hidden + zero_point) @ matrix.T).astype(np.int64)
        if bias is not None:
            total = total + bias.array
        stored = multiply_by_quantized_multiplier(total, *multiplier) + output.zero_point
        stored = saturate(stored, 8)
        return np.clip(stored, -clip, clip) if clip > 0 else stored

    return project


def _stored_clip(node: Node, name: str, scale: float, bits: int) -> int:
    """A clip as a stored number; 0 if it is off.

    DEVIATES: NNAPI's CPU implementation needs both clips; its documentation calls them optional.
    """
    if node.find(name) is None:
        return 0
    clip = np.float32(node.value(name))
    if not clip > 0:
        return 0
    with np.errstate(all="ignore"):
        return int(min(clip / np.float32(scale), np.float32((1 << (bits - 1)) - 1)))
