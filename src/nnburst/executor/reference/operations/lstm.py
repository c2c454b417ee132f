"""Kernels of the LSTM operations, float and quantised.

The three float operations compute the same cell, which comes first. Each quantised operation has
arithmetic of its own.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt

from nnburst.executor.graph.declarations import quantize_multiplier, scale_exponent
from nnburst.executor.graph.operation import Node, Run, kernel
from nnburst.executor.graph.tensor import Array, Tensor
from nnburst.executor.operations.lstm import (
    AUX_WEIGHTS,
    BIASES,
    INPUT_WEIGHTS,
    RECURRENT_WEIGHTS,
    STATE_BITS,
    ZERO,
    LstmOperands,
    directions_of,
    linking_of,
)
from nnburst.executor.operations.recurrence import Linking
from nnburst.executor.reference.fixed_point import (
    inv_sqrt_quantized_multiplier,
    logistic,
    multiply_by_quantized_multiplier,
    quantize_multipliers,
    rounding_divide_by_pot,
    srdhm16,
    tanh,
)
from nnburst.executor.reference.operations.recurrence import (
    activation,
    by_time,
    pack,
    sigmoid,
    time_steps,
)
from nnburst.hal.enums import OperationType

# -- The float LSTM cell ---------------------------------------------------------------------------
# NNAPI: LSTM.cpp. Float16 models compute in float32 and round the results once.

#: NNAPI: added to the variance before layer normalisation takes its root.
LAYER_NORM_EPSILON: Final = 1e-8


@dataclass(frozen=True, slots=True)
class GateSource:
    """A sequence that gates read: an array [time, batch, …] or [batch, time, …], and its weights.

    Attributes:
        array: the sequence, contiguous.
        weights: pattern of the weights' names, `{}` for the gate.
    """

    array: Array
    weights: str


@dataclass(frozen=True, slots=True)
class Results:
    """Memory for the results of a direction.

    Attributes:
        sequence: outputs [time, batch, outputs] (a view if the batch comes first in memory).
        output_state: last output [batch, outputs]; None if not wanted.
        cell_state: last cell state [batch, cells]; None if not wanted.
    """

    sequence: Array
    output_state: Array | None = None
    cell_state: Array | None = None


def bind_direction(
    operands: LstmOperands,
    sources: Sequence[GateSource],
    results: Results,
    *,
    time_major: bool,
    backward: bool = False,
) -> Run:
    """Bind one direction of an LSTM.

    Args:
        operands: its operands, checked.
        sources: the sequences that the gates read: the input, and the auxiliary input if it is linked.
        results: where outputs and states go.
        time_major: whether sources are [time, batch, …].
        backward: whether the last time step comes first.
    """
    cell = _Cell(operands)
    inputs = _Inputs(operands, sources)
    gates = by_time(inputs.gates, time_major=time_major)
    steps = time_steps(len(gates), backward=backward)

    def run() -> None:
        inputs.compute()
        cell.start()
        for t in steps:
            cell.step(gates[t])
            np.copyto(results.sequence[t], cell.output)
        if results.output_state is not None:
            np.copyto(results.output_state, cell.output)
        if results.cell_state is not None:
            np.copyto(results.cell_state, cell.state)

    return run


class _Inputs:
    """The products of inputs and weights that the gates receive, for all time steps at once.

    Attributes:
        gates: array like the sources, with the gates' cells side by side in the last dimension.
    """

    def __init__(self, operands: LstmOperands, sources: Sequence[GateSource]) -> None:
        node = operands.node
        width = len(operands.gates) * operands.sizes.cells
        self.gates = node.scratch((*sources[0].array.shape[:2], width), np.float32)
        self._product = node.scratch((self.gates.size // width, width), np.float32)
        self._terms = []
        for source in sources:
            weights, refresh = pack(node, operands.names(source.weights), np.float32)
            flat = source.array.reshape(-1, source.array.shape[2])
            self._terms.append((flat, weights.T, refresh))

    def compute(self) -> None:
        """Fill `gates`."""
        total = self.gates.reshape(self._product.shape)
        total.fill(0)
        for source, weights, refresh in self._terms:
            refresh()
            np.matmul(source, weights, out=self._product)
            np.add(total, self._product, out=total)


class _Cell:
    """Weights, states and scratch memory of one direction.

    Attributes:
        state: cell state [batch, cells].
        output: output of the last step [batch, outputs].
    """

    def __init__(self, operands: LstmOperands) -> None:
        node, sizes = operands.node, operands.sizes
        self._node, self._prefix = node, operands.prefix
        self._refreshes: list[Run] = []
        self._positions = {gate: at for at, gate in enumerate(operands.gates)}
        self._recurrent = self._pack(operands.names("recurrent_to_{}_weights")).T
        self._bias = self._pack(operands.names("{}_gate_bias"))
        self._norm = (
            self._pack(operands.names("{}_layer_norm_weights")) if operands.has_layer_norm else None
        )
        self._peepholes = {g: self._given(f"cell_to_{g}_weights") for g in operands.gates}
        self._projection = self._given("projection_weights")
        self._projection_bias = self._given("projection_bias")
        self._activation = activation(node)
        self._cell_clip = node.value("cell_clip")
        self._projection_clip = node.value("projection_clip")
        self._before = [
            node.tensor(operands.prefix + name).array for name in ("output_state", "cell_state")
        ]
        self.state = node.scratch((sizes.batch, sizes.cells), np.float32)
        self.output = node.scratch((sizes.batch, sizes.outputs), np.float32)
        self._recurrence = node.scratch((sizes.batch, len(self._bias)), np.float32)
        self._cells = node.scratch((sizes.batch, sizes.cells), np.float32)

    def _pack(self, names: Sequence[str]) -> Array:
        packed, refresh = pack(self._node, names, np.float32)
        self._refreshes.append(refresh)
        return packed

    def _given(self, name: str) -> Array | None:
        tensor = self._node.find(self._prefix + name)
        return None if tensor is None else tensor.array

    def start(self) -> None:
        """Read weights that are not constants, and the states before the first step."""
        for refresh in self._refreshes:
            refresh()
        for memory, before in zip((self.output, self.state), self._before, strict=True):
            np.copyto(memory, before)

    def step(self, gates: Array) -> None:
        """Compute one time step from the gates' products with the inputs, which it overwrites."""
        np.matmul(self.output, self._recurrent, out=self._recurrence)
        np.add(gates, self._recurrence, out=gates)
        if self._norm is None:
            np.add(gates, self._bias, out=gates)
        views = {gate: self._part(gates, gate) for gate in self._positions}
        forget, candidate, out = views["forget"], views["cell"], views["output"]
        for gate in self._positions:
            if gate != "output":
                self._finish(gate, views[gate])
        self._update_state(forget, candidate, views.get("input"))
        self._finish("output", out)  # its peephole sees the new cell state
        np.copyto(self._cells, self.state)
        self._activation(self._cells)
        np.multiply(self._cells, out, out=self._cells)
        self._project()

    def _part(self, packed: Array, gate: str) -> Array:
        cells = self.state.shape[1]
        at = self._positions[gate] * cells
        return packed[..., at : at + cells]

    def _finish(self, gate: str, z: Array) -> None:
        """Turn the sum of products into the value of a gate, in place."""
        peephole = self._peepholes[gate]
        if peephole is not None:
            np.multiply(peephole, self.state, out=self._cells)
            np.add(z, self._cells, out=z)
        if self._norm is not None:
            self._normalise(z, self._part(self._norm, gate), self._part(self._bias, gate))
        if gate == "cell":
            self._activation(z)
        else:
            sigmoid(z, z)

    def _normalise(self, z: Array, weights: Array, bias: Array) -> None:
        np.subtract(z, z.mean(axis=1, keepdims=True), out=z)
        np.multiply(z, z, out=self._cells)
        variance = self._cells.mean(axis=1, keepdims=True)
        np.divide(z, np.sqrt(variance + np.float32(LAYER_NORM_EPSILON)), out=z)
        np.multiply(z, weights, out=z)
        np.add(z, bias, out=z)

    def _update_state(self, forget: Array, candidate: Array, gate: Array | None) -> None:
        np.multiply(self.state, forget, out=self.state)
        if gate is None:  # coupled gates: the input gate is 1 minus the forget gate
            gate = np.subtract(1, forget, out=self._cells)
        np.multiply(candidate, gate, out=candidate)
        np.add(self.state, candidate, out=self.state)
        if self._cell_clip > 0:
            np.clip(self.state, -self._cell_clip, self._cell_clip, out=self.state)

    def _project(self) -> None:
        if self._projection is None:
            np.copyto(self.output, self._cells)
            return
        np.matmul(self._cells, self._projection.T, out=self.output)
        if self._projection_bias is not None:
            np.add(self.output, self._projection_bias, out=self.output)
        if self._projection_clip > 0:
            np.clip(self.output, -self._projection_clip, self._projection_clip, out=self.output)


# -- LSTM, UNIDIRECTIONAL_SEQUENCE_LSTM, BIDIRECTIONAL_SEQUENCE_LSTM -------------------------------
# NNAPI: LSTM.cpp, UnidirectionalSequenceLSTM.cpp, BidirectionalSequenceLSTM.cpp.


_INPUT_WEIGHTS: Final = "input_to_{}_weights"


@kernel(OperationType.LSTM)
def lstm(node: Node) -> Run:
    """Compute a sequence of one step; the scratch buffer, which must not be relied on, is zeroed."""
    scratch, output_state, cell_state, output = (tensor.array for tensor in node.outputs)
    step = bind_direction(
        LstmOperands(node),
        [GateSource(node.tensor("input").array[None], _INPUT_WEIGHTS)],
        Results(output[None], output_state, cell_state),
        time_major=True,
    )

    def run() -> None:
        step()
        scratch.fill(0)

    return run


@kernel(OperationType.UNIDIRECTIONAL_SEQUENCE_LSTM)
def unidirectional_sequence_lstm(node: Node) -> Run:
    """Compute one direction, forward."""
    time_major = node.value("time_major")
    sequence, *states = (tensor.array for tensor in node.outputs)
    return bind_direction(
        LstmOperands(node),
        [GateSource(node.tensor("input").array, _INPUT_WEIGHTS)],
        Results(by_time(sequence, time_major=time_major), *states),
        time_major=time_major,
    )


@kernel(OperationType.BIDIRECTIONAL_SEQUENCE_LSTM)
def bidirectional_sequence_lstm(node: Node) -> Run:
    """Compute both directions; merged outputs lie side by side, the forward one first."""
    time_major = node.value("time_major")
    forward, backward = directions_of(node)
    into = _bidirectional_results(node, forward.sizes.outputs)
    sources = _bidirectional_sources(node)
    runs = [
        bind_direction(operands, source, result, time_major=time_major, backward=reverse)
        for operands, source, result, reverse in zip(
            (forward, backward), sources, into, (False, True), strict=True
        )
    ]

    def run() -> None:
        for direction in runs:
            direction()

    return run


def _bidirectional_sources(node: Node) -> tuple[Sequence[GateSource], Sequence[GateSource]]:
    """The sequences that the forward and the backward direction read."""
    link = linking_of(node)
    own = GateSource(node.tensor("input").array, _INPUT_WEIGHTS)
    if link is Linking.NONE:
        return [own], [own]
    aux = node.tensor("aux_input").array
    if link is Linking.PARALLEL:
        return [own], [GateSource(aux, _INPUT_WEIGHTS)]
    both = [own, GateSource(aux, AUX_WEIGHTS)]
    return both, both


def _bidirectional_results(node: Node, forward_outputs: int) -> tuple[Results, Results]:
    arrays = [tensor.array for tensor in node.outputs]
    if node.value("merge_outputs"):
        merged, *states = arrays
        sequences = [merged[..., :forward_outputs], merged[..., forward_outputs:]]
    else:
        sequences, states = arrays[:2], arrays[2:]
    fw, bw = (by_time(s, time_major=node.value("time_major")) for s in sequences)
    return Results(fw, *states[:2]), Results(bw, *states[2:])


# -- Arithmetic that both quantised LSTM operations share ------------------------------------------
# NNAPI: QuantUtils.h.


Int64 = npt.NDArray[np.int64]


def saturate(x: npt.ArrayLike, bits: int) -> Int64:
    """The nearest number that `bits` bits hold."""
    limit = 1 << (bits - 1)
    return np.clip(np.asarray(x, np.int64), -limit, limit - 1)


# -- QUANTIZED_LSTM: 8-bit inputs and weights, 16-bit gates and states -----------------------------
# NNAPI: QLSTM.cpp, QuantUtils.cpp. Real multipliers are formed in float32, as there.


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
        # NNAPI: products with the input are rounded and saturated before the others are added.
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
    """The products of one tensor with the weights of all gates, rescaled to the step of each gate."""

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
    """A run that stores the product of output gate and activated state (F0 times F0) as the hidden state."""
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


# -- QUANTIZED_16BIT_LSTM: 8-bit inputs and outputs, 16-bit states ---------------------------------
# NNAPI: QuantizedLSTM.cpp.


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
    """A run that computes the gates' sums of products [batch, 4 · outputs], gate by gate."""
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
