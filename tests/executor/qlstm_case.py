"""QUANTIZED_LSTM by definition: one Python integer at a time, no sums shared between gates."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np

from executor.exact_integers import c_divide, c_mbqm, c_multiplier
from executor.lstm_case import DIRECTION, GATES, LAYER_NORM, coupled
from executor.run_operation import Given, scalar, tensor
from nnburst.executor.graph.declarations import FLOAT32, I32, INT32, Q8S, Q16S, QSYM8
from nnburst.executor.reference.fixed_point import inv_sqrt_quantized_multiplier, logistic, tanh
from nnburst.hal.enums import OperandType


def float32(x: float) -> float:
    return float(np.float32(x))


@dataclass
class QLstm:
    """One step: stored operands by name (absent ones are omitted), scales and settings."""

    values: dict[str, Any]
    x: Any
    scales: dict[str, float] = field(default_factory=dict)
    x_quantisation: tuple[float, int] = (1 / 128, 3)
    h_quantisation: tuple[float, int] = (1 / 64, -5)
    cell_exponent: int = -12
    cell_clip: float | None = 0.0
    projection_clip: float | None = 0.0
    intermediate: tuple[float, ...] = (2.0**-12, 2.0**-12, 2.0**-12, 2.0**-12)
    hidden: tuple[float, int] = (1 / 128, 0)

    def scale(self, name: str) -> float:
        """Scale of a weight, peephole or layer norm operand."""
        return self.scales.get(name, 2.0**-7)

    def inputs(self, *, constant: bool = False) -> list[Given]:
        """The operands in order."""
        return [
            tensor(Q8S, self.x, *self.x_quantisation),
            *(self._given(name, constant) for name in DIRECTION),
            tensor(Q8S, self.values["output_state"], *self.h_quantisation),
            tensor(Q16S, self.values["cell_state"], 2.0**self.cell_exponent, 0),
            *(self._given(name, constant) for name in LAYER_NORM),
            *(
                Given(FLOAT32, None) if clip is None else scalar(clip, FLOAT32)
                for clip in (self.cell_clip, self.projection_clip)
            ),
            *(scalar(s, FLOAT32) for s in self.intermediate),
            scalar(self.hidden[1], INT32),
            scalar(self.hidden[0], FLOAT32),
        ]

    def _given(self, name: str, constant: bool) -> Given:
        kind, scale = _kind(name), 0.0 if name.endswith("bias") else self.scale(name)
        value = self.values.get(name)
        if value is None:
            return Given(kind, None, scale)
        return tensor(kind, value, scale, constant=constant)


def _kind(name: str) -> OperandType:
    if name.endswith("bias"):
        return I32
    return Q16S if name.startswith("cell_to") or "layer_norm" in name else QSYM8


def random_qlstm(
    rng: np.random.Generator,
    sizes: tuple[int, int, int, int],
    *,
    cifg: bool = False,
    peephole: bool = False,
    layer_norm: bool = False,
    projection: bool = False,
    projection_bias: bool = False,
) -> QLstm:
    """One of sizes (batch, inputs, cells, outputs) with random operands and scales."""
    batch, inputs, cells, outputs = sizes

    def octets(*shape: int) -> Any:
        return rng.integers(-128, 128, shape)

    values = {"output_state": octets(batch, outputs)}
    values["cell_state"] = rng.integers(-(2**14), 2**14, (batch, cells))
    for gate in GATES:
        values[f"input_to_{gate}_weights"] = octets(cells, inputs)
        values[f"recurrent_to_{gate}_weights"] = octets(cells, outputs)
        values[f"{gate}_gate_bias"] = rng.integers(-(2**20), 2**20, cells)
        if peephole and gate != "cell":
            values[f"cell_to_{gate}_weights"] = rng.integers(-(2**15), 2**15, cells)
        if layer_norm:
            values[f"{gate}_layer_norm_weights"] = rng.integers(-(2**15), 2**15, cells)
    if projection:
        values["projection_weights"] = octets(outputs, cells)
        if projection_bias:
            values["projection_bias"] = rng.integers(-(2**13), 2**13, outputs)
    names = (*DIRECTION, *LAYER_NORM)
    scales = {n: float32(rng.uniform(0.5, 1) * _magnitude(n)) for n in names}
    intermediate = tuple(float32(s) for s in rng.uniform(1e-4, 5e-4, 4))
    chosen = coupled(values) if cifg else values
    return QLstm(chosen, octets(batch, inputs), scales, intermediate=intermediate)


def _magnitude(name: str) -> float:
    return 2.0**-15 if _kind(name) == Q16S else 2.0**-7


def saturate(x: int, bits: int) -> int:
    return max(-(1 << (bits - 1)), min(x, (1 << (bits - 1)) - 1))


def shifted(x: int, places: int) -> int:
    """Division by a power of two, ties away from zero."""
    return (1 if x >= 0 else -1) * ((abs(x) + (1 << places >> 1)) >> places)


def ratio(a: float, b: float, c: float) -> float:
    return float(np.float32(a) * np.float32(b) / np.float32(c))


def by_definition(q: QLstm) -> tuple[Any, Any]:
    """Output and cell state."""
    states = np.zeros_like(q.values["cell_state"])
    outputs = np.zeros_like(q.values["output_state"])
    for b in range(len(states)):
        states[b], outputs[b] = _row(q, b)
    return outputs, states


def _row(q: QLstm, b: int) -> tuple[list[int], list[int]]:
    old = [int(c) for c in q.values["cell_state"][b]]
    f = [int(logistic(z, 3, 16)) for z in _gate(q, b, "forget", old)]
    g = [int(tanh(z, 3, 16)) for z in _gate(q, b, "cell", old)]
    i = [32767 - v for v in f]
    if q.values.get("input_to_input_weights") is not None:
        i = [int(logistic(z, 3, 16)) for z in _gate(q, b, "input", old)]
    new = [
        saturate(shifted(f[k] * old[k], 15) + shifted(i[k] * g[k], 30 + q.cell_exponent), 16)
        for k in range(len(old))
    ]
    if q.cell_clip:
        limit = min(int(np.float32(q.cell_clip) / np.float32(2.0**q.cell_exponent)), 32767)
        new = [max(-limit, min(c, limit)) for c in new] if limit else new
    o = [int(logistic(z, 3, 16)) for z in _gate(q, b, "output", new)]
    multiplier = c_multiplier(float32(2.0**-30 / q.hidden[0]))
    hidden = [
        saturate(
            c_mbqm(o[k] * int(tanh(c, q.cell_exponent + 15, 16)), *multiplier) - q.hidden[1], 8
        )
        for k, c in enumerate(new)
    ]
    return new, _project(q, hidden)


def _gate(q: QLstm, b: int, gate: str, cell: list[int]) -> list[int]:
    at = GATES.index(gate)
    result = []
    for k in range(len(cell)):
        a = 0
        for name, data, (scale, zero) in (
            (f"input_to_{gate}_weights", q.x[b], q.x_quantisation),
            (f"recurrent_to_{gate}_weights", q.values["output_state"][b], q.h_quantisation),
        ):
            total = sum(
                int(w) * (int(d) - zero) for w, d in zip(q.values[name][k], data, strict=True)
            )
            multiplier = c_multiplier(ratio(q.scale(name), scale, q.intermediate[at]))
            a = saturate(a + c_mbqm(total, *multiplier), 16)
        name = f"cell_to_{gate}_weights"
        if q.values.get(name) is not None:
            real = float32(2.0**q.cell_exponent * q.scale(name) / q.intermediate[at])
            a = saturate(a + c_mbqm(int(q.values[name][k]) * cell[k], *c_multiplier(real)), 16)
        result.append(a)
    name = f"{gate}_layer_norm_weights"
    if q.values.get(name) is None:
        return result
    bias = q.values[f"{gate}_gate_bias"]
    return _normalised(result, q.values[name], bias, q.scale(name))


def _normalised(z: list[int], weights: Any, bias: Any, scale: float) -> list[int]:
    n = len(z)
    mean = c_divide(sum(z) * 1024, n)
    variance = c_divide(sum(v * v for v in z) * (2**20 // n) - mean * mean, 2**20)
    if variance < 1:
        variance = min(1, int(10000 * np.float32(scale)))
    root = tuple(int(v) for v in inv_sqrt_quantized_multiplier(variance))
    multiplier, shift = c_multiplier(scale)
    result = []
    for v, w, b in zip(z, weights, bias, strict=True):
        u = c_mbqm(1024 * v - mean, *root) * int(w) + int(b)
        u = c_divide(u + 512 if u > 0 else u - 512, 1024)
        result.append(saturate(c_mbqm(u, multiplier, shift + 12), 16))
    return result


def _project(q: QLstm, hidden: list[int]) -> list[int]:
    weights = q.values.get("projection_weights")
    if weights is None:
        return hidden
    scale, zero = q.h_quantisation
    multiplier = c_multiplier(ratio(q.scale("projection_weights"), q.hidden[0], scale))
    bias = q.values.get("projection_bias")
    result = []
    for p, row in enumerate(weights):
        total = sum(int(w) * h for w, h in zip(row, hidden, strict=True))
        total += q.hidden[1] * sum(int(w) for w in row) + (0 if bias is None else int(bias[p]))
        result.append(saturate(c_mbqm(total, *multiplier) + zero, 8))
    if q.projection_clip:
        clip = np.float32(q.projection_clip) / np.float32(q.scale("projection_weights"))
        limit = min(int(clip), 127)
        result = [max(-limit, min(v, limit)) for v in result] if limit else result
    return result
