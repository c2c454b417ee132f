"""The float LSTM cell that LSTM and both sequence operations compute.

NNAPI: LSTM.cpp. Float16 models compute in float32 and round the results once.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from nnburst.executor.graph.operation import Run
from nnburst.executor.graph.tensor import Array
from nnburst.executor.operations.families.lstm_operands import LstmOperands
from nnburst.executor.reference.families.recurrence import (
    activation,
    by_time,
    pack,
    sigmoid,
    time_steps,
)

#: NNAPI: added to the variance before layer normalisation takes its root.
LAYER_NORM_EPSILON: Final = 1e-8


@dataclass(frozen=True, slots=True)
class Source:
    """A sequence that gates read: an array [time, batch, …] or [batch, time, …], and its weights.

    Attributes:
        array: the sequence, contiguous.
        weights: pattern of the weights' names, `{}` for the gate.
    """

    array: Array
    weights: str


@dataclass(frozen=True, slots=True)
class Results:
    """Memory for what a direction computes.

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
    sources: Sequence[Source],
    results: Results,
    *,
    time_major: bool,
    backward: bool = False,
) -> Run:
    """Bind one direction of an LSTM.

    Args:
        operands: its operands, checked.
        sources: what the gates read: the input, and the auxiliary input if it is linked.
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
    """What the gates receive from the inputs, for all time steps at once.

    Attributes:
        gates: array like the sources, with the gates' cells side by side in the last dimension.
    """

    def __init__(self, operands: LstmOperands, sources: Sequence[Source]) -> None:
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
        """Compute one time step from what the inputs give to the gates; overwrites it."""
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
        """From the sum of products to the value of a gate, in place."""
        peephole = self._peepholes[gate]
        if peephole is not None:
            np.multiply(peephole, self.state, out=self._cells)
            np.add(z, self._cells, out=z)
        if self._norm is not None:
            self._normalise(z, self._part(self._norm, gate), self._part(self._bias, gate))
        if gate == "cell":
            self._activation(z)
        else:
            sigmoid(z)

    def _normalise(self, z: Array, weights: Array, bias: Array) -> None:
        np.subtract(z, z.mean(axis=1, keepdims=True), out=z)
        np.multiply(z, z, out=self._cells)
        variance = self._cells.mean(axis=1, keepdims=True)
        np.divide(z, np.sqrt(variance + np.float32(LAYER_NORM_EPSILON)), out=z)
        np.multiply(z, weights, out=z)
        np.add(z, bias, out=z)

    def _update_state(self, forget: Array, candidate: Array, gate: Array | None) -> None:
        np.multiply(self.state, forget, out=self.state)
        if gate is None:  # coupled: as much is let in as is forgotten
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
