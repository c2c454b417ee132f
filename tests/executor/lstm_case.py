"""Makes LSTMs for tests: operands by name, and results by the definition of the cell."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np

from executor.run_operation import Given, omitted, tensor
from nnburst.hal.enums import OperandType

GATES = ("input", "forget", "cell", "output")
#: Operands 1 to 17 of every LSTM.
DIRECTION = (
    *(f"input_to_{g}_weights" for g in GATES),
    *(f"recurrent_to_{g}_weights" for g in GATES),
    *(f"cell_to_{g}_weights" for g in ("input", "forget", "output")),
    *(f"{g}_gate_bias" for g in GATES),
    "projection_weights",
    "projection_bias",
)
STATES = ("output_state", "cell_state")
LAYER_NORM = tuple(f"{g}_layer_norm_weights" for g in GATES)

Values = Mapping[str, Any]

ACTIVATIONS = {
    0: lambda x: x,
    1: lambda x: np.maximum(x, 0),
    2: lambda x: np.clip(x, -1, 1),
    3: lambda x: np.clip(x, 0, 6),
    4: np.tanh,
    6: lambda x: sigmoid(x),
}


def sigmoid(x: Any) -> Any:
    return 1 / (1 + np.exp(-x))


def one_cell(**values: Any) -> dict[str, Any]:
    """An LSTM of one input and one cell whose weights, biases and states are 0 but for `values`."""
    shapes = {f"input_to_{g}_weights": (1, 1) for g in GATES}
    shapes |= {f"recurrent_to_{g}_weights": (1, 1) for g in GATES}
    shapes |= {f"{g}_gate_bias": (1,) for g in GATES}
    shapes |= {"output_state": (1, 1), "cell_state": (1, 1)}
    zeros: dict[str, Any] = {name: np.zeros(shape) for name, shape in shapes.items()}
    given = {k: None if v is None else np.asarray(v, float) for k, v in values.items()}
    return zeros | given


def coupled(values: Values) -> dict[str, Any]:
    """The operands of an LSTM without input gate."""
    gone = (
        "input_to_input_weights",
        "recurrent_to_input_weights",
        "cell_to_input_weights",
        "input_gate_bias",
        "input_layer_norm_weights",
    )
    return {name: value for name, value in values.items() if name not in gone}


def random_lstm(
    rng: np.random.Generator,
    sizes: tuple[int, int, int, int],
    *,
    cifg: bool = False,
    peephole: bool = False,
    layer_norm: bool = False,
    projection: bool = False,
    projection_bias: bool = False,
) -> dict[str, Any]:
    """An LSTM of sizes (batch, inputs, cells, outputs) with operands between -1 and 1."""
    batch, inputs, cells, outputs = sizes
    shapes: dict[str, tuple[int, ...]] = {"output_state": (batch, outputs)}
    shapes["cell_state"] = (batch, cells)
    for gate in GATES:
        shapes[f"input_to_{gate}_weights"] = (cells, inputs)
        shapes[f"recurrent_to_{gate}_weights"] = (cells, outputs)
        shapes[f"{gate}_gate_bias"] = (cells,)
        if peephole and gate != "cell":
            shapes[f"cell_to_{gate}_weights"] = (cells,)
        if layer_norm:
            shapes[f"{gate}_layer_norm_weights"] = (cells,)
    if projection:
        shapes["projection_weights"] = (outputs, cells)
    if projection and projection_bias:
        shapes["projection_bias"] = (outputs,)
    values = {name: rng.uniform(-1, 1, shape) for name, shape in shapes.items()}
    return coupled(values) if cifg else values


def operands(
    values: Values, names: Iterable[str], kind: OperandType, *, constant: bool = False
) -> list[Given]:
    """Operands in order; those without value are omitted."""
    return [
        omitted(kind) if values.get(name) is None else tensor(kind, values[name], constant=constant)
        for name in names
    ]


def swapped(x: Any, time_major: bool) -> Any:
    """A sequence [time, …] as the operation takes it."""
    return x if time_major else np.swapaxes(x, 0, 1)


def step(
    values: Values,
    x: Any,
    states: tuple[Any, Any],
    *,
    activation: int = 4,
    cell_clip: float = 0.0,
    projection_clip: float = 0.0,
    extra: Mapping[str, Any] | None = None,
) -> tuple[Any, Any]:
    """Output state and cell state after one step; `extra` is added to each gate's sum."""
    act = ACTIVATIONS[activation]
    h, c = states

    def gate(name: str, cell: Any) -> Any:
        z = x @ values[f"input_to_{name}_weights"].T + h @ values[f"recurrent_to_{name}_weights"].T
        z = z + (0 if extra is None else extra[name])
        norm, bias = values.get(f"{name}_layer_norm_weights"), values[f"{name}_gate_bias"]
        if values.get(f"cell_to_{name}_weights") is not None:
            z = z + values[f"cell_to_{name}_weights"] * cell
        if norm is None:
            return z + bias
        deviation = z - z.mean(axis=1, keepdims=True)
        variance = (deviation**2).mean(axis=1, keepdims=True)
        return deviation / np.sqrt(variance + 1e-8) * norm + bias

    f = sigmoid(gate("forget", c))
    cifg = values.get("input_to_input_weights") is None
    i = 1 - f if cifg else sigmoid(gate("input", c))
    new = f * c + i * act(gate("cell", c))
    if cell_clip > 0:
        new = np.clip(new, -cell_clip, cell_clip)
    m = sigmoid(gate("output", new)) * act(new)
    if values.get("projection_weights") is not None:
        m = m @ values["projection_weights"].T
        if values.get("projection_bias") is not None:
            m = m + values["projection_bias"]
        if projection_clip > 0:
            m = np.clip(m, -projection_clip, projection_clip)
    return m, new
