"""QUANTIZED_16BIT_LSTM: against its definition in Python integers, and against the float LSTM."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from executor.exact_integers import c_mbqm, c_multiplier, c_srdhm
from executor.lstm_case import GATES, step
from executor.qlstm_case import saturate, shifted
from executor.refusal import refuses, rejects
from executor.run_operation import Given, omitted, output, run, tensor
from nnburst.executor.graph.declarations import I32, Q8, Q16S
from nnburst.executor.reference.fixed_point import logistic, tanh
from nnburst.hal.enums import ErrorStatus, OperationType

KIND = OperationType.QUANTIZED_16BIT_LSTM
STEP, ZERO = 1 / 128, 128
STATE = 2.0**-11
OUTPUTS = [output(Q16S, (), STATE, 0), output(Q8, (), STEP, ZERO)]
WEIGHTS = tuple(f"{s}_{g}" for s in ("input", "recurrent") for g in GATES)


def random_lstm(rng: np.random.Generator, batch: int, inputs: int, outputs: int) -> dict[str, Any]:
    values: dict[str, Any] = {"x": rng.integers(0, 256, (batch, inputs))}
    for name in WEIGHTS:
        width = inputs if name.startswith("input") else outputs
        values[name] = rng.integers(0, 256, (outputs, width))
    for gate in GATES:
        values[f"bias_{gate}"] = rng.integers(-8000, 8000, outputs)
    values["c"] = rng.integers(-(2**15), 2**15, (batch, outputs))
    values["h"] = rng.integers(0, 256, (batch, outputs))
    return values


def inputs_of(
    values: dict[str, Any], scale: float = 0.0625, zero: int = 120, *, constant: bool = False
) -> list[Given]:
    biases = [f"bias_{gate}" for gate in GATES]
    return [
        tensor(Q8, values["x"], STEP, ZERO),
        *(tensor(Q8, values[n], scale, zero, constant=constant) for n in WEIGHTS),
        *(tensor(I32, values[n], scale / 128, 0, constant=constant) for n in biases),
        tensor(Q16S, values["c"], STATE, 0),
        tensor(Q8, values["h"], STEP, ZERO),
    ]


def by_definition(values: dict[str, Any], scale: float, zero: int) -> tuple[Any, Any]:
    multiplier = c_multiplier(4096 * scale / 128)
    states, results = np.zeros_like(values["c"]), np.zeros_like(values["h"])
    for b, o in np.ndindex(states.shape):
        data = [int(v) - 128 for v in (*values["x"][b], *values["h"][b])]
        a = {}
        for gate in GATES:
            weights = (*values[f"recurrent_{gate}"][o], *values[f"input_{gate}"][o])
            total = sum(d * (int(w) - zero) for d, w in zip(data, weights, strict=True))
            total += int(values[f"bias_{gate}"][o])
            a[gate] = saturate(c_mbqm(total, *multiplier), 16)
        i, f, out = (int(logistic(a[g], 3, 16)) for g in ("input", "forget", "output"))
        candidate = c_srdhm(i, int(tanh(a["cell"], 3, 16)), 16)
        new = saturate(shifted(candidate, 4) + c_srdhm(f, int(values["c"][b, o]), 16), 16)
        y = c_srdhm(out, int(tanh(saturate(new << 1, 16), 3, 16)), 16)
        states[b, o], results[b, o] = new, saturate(shifted(y, 8), 8) + 128
    return states, results


@given(
    seed=st.integers(0, 2**32 - 1),
    extents=st.tuples(st.integers(1, 2), st.integers(1, 4), st.integers(1, 4)),
    scale=st.sampled_from([0.0625, 0.00408021, 0.25]),
    zero=st.sampled_from([0, 100, 255]),
    constant=st.booleans(),
)
def test_every_bit_follows_the_definition(
    seed: int, extents: tuple[int, int, int], scale: float, zero: int, constant: bool
) -> None:
    scale = float(np.float32(scale))
    values = random_lstm(np.random.default_rng(seed), *extents)
    found = run(KIND, inputs_of(values, scale, zero, constant=constant), OUTPUTS)
    for a, b in zip(found, by_definition(values, scale, zero), strict=True):
        np.testing.assert_array_equal(a, b)


def test_gates_of_one_half_halve_the_state() -> None:
    values = {n: v * 0 for n, v in random_lstm(np.random.default_rng(0), 1, 1, 1).items()}
    values |= {"c": np.array([[4096]]), "x": np.array([[128]]), "h": np.array([[128]])}
    state, y = run(KIND, inputs_of(values, zero=0), OUTPUTS)
    assert state == 2048  # 1.0
    assert y == 128 + round(0.5 * np.tanh(1.0) * 128)


def test_recurrent_weights_meet_the_start_of_input_and_state() -> None:
    """With 2 inputs and 1 output the recurrent weight multiplies the first input."""
    values = {n: v * 0 + 100 for n, v in random_lstm(np.random.default_rng(0), 1, 2, 1).items()}
    values |= {f"bias_{g}": np.zeros(1) for g in GATES}
    values |= {"c": np.array([[2048]]), "h": np.array([[128]]), "recurrent_forget": [[255]]}
    for first, expected in ((255, 2048), (128, 1024), (0, 0)):
        state, _ = run(KIND, inputs_of(values | {"x": np.array([[first, 128]])}, 1.0, 100), OUTPUTS)
        assert abs(int(state[0, 0]) - expected) <= 1


@given(seed=st.integers(0, 2**32 - 1))
def test_as_many_inputs_as_outputs_give_the_float_lstm_but_for_the_weights_order(seed: int) -> None:
    rng = np.random.default_rng(seed)
    values, scale, zero = random_lstm(rng, 2, 3, 3), 1 / 128, 128
    real = {"output_state": (values["h"] - 128) / 128, "cell_state": values["c"] * STATE}
    for gate in GATES:
        real[f"input_to_{gate}_weights"] = (values[f"recurrent_{gate}"] - zero) * scale
        real[f"recurrent_to_{gate}_weights"] = (values[f"input_{gate}"] - zero) * scale
        real[f"{gate}_gate_bias"] = values[f"bias_{gate}"] * scale / 128
    h, c = step(real, (values["x"] - 128) / 128, (real["output_state"], real["cell_state"]))
    state, y = run(KIND, inputs_of(values, scale, zero), OUTPUTS)
    np.testing.assert_allclose(state * STATE, c, atol=16 * 2.0**-11)  # 2**-11 of a gate
    np.testing.assert_allclose((y.astype(int) - 128) / 128, h, atol=1.5 * STEP)


@pytest.mark.parametrize(
    ("at", "scale", "zero", "message"),
    [
        (0, 1 / 64, 128, "'input' has scale"),
        (0, 1 / 128, 127, "'input' has scale"),
        (14, 1 / 64, 128, "'output_state' has scale"),
        (3, 0.125, 120, "'input_to_cell_weights' has scale 0.125"),
        (8, 0.0625, 121, "'recurrent_to_output_weights' has scale 0.0625 and zero point 121"),
        (10, 0.0625, 0, "'forget_gate_bias' has scale 0.0625"),
        (13, 2.0**-12, 0, "'cell_state' has scale 2**-12, expected 2**-11"),
        (13, 0.0003, 0, "'cell_state' has scale 0.0003, expected a power of two"),
    ],
)
def test_quantisation_is_prescribed(at: int, scale: float, zero: int, message: str) -> None:
    inputs = inputs_of(random_lstm(np.random.default_rng(0), 1, 2, 3))
    inputs[at] = tensor(inputs[at].type, inputs[at].array, scale, zero)
    refuses(KIND, inputs, OUTPUTS, message)


@pytest.mark.parametrize(
    ("at", "dimensions", "message"),
    [
        (0, (1, 2, 1), "'input' has rank 3, expected 2"),
        (14, (3,), "'output_state' has rank 1, expected 2"),
        (14, (2, 3), "'output_state' has dimensions [2, 3], expected [1, 3]"),
        (13, (1, 4), "'cell_state' has dimensions [1, 4], expected [1, 3]"),
        (2, (3, 3), "'input_to_forget_weights' has dimensions [3, 3], expected [3, 2]"),
        (7, (3, 2), "'recurrent_to_cell_weights' has dimensions [3, 2], expected [3, 3]"),
        (12, (2,), "'output_gate_bias' has dimensions [2], expected [3]"),
    ],
)
def test_dimensions_must_agree(at: int, dimensions: tuple[int, ...], message: str) -> None:
    inputs = inputs_of(random_lstm(np.random.default_rng(0), 1, 2, 3))
    old = inputs[at]
    inputs[at] = tensor(old.type, np.zeros(dimensions), old.scale, old.zero_point)
    refuses(KIND, inputs, OUTPUTS, message)


def test_outputs_are_quantised_as_the_states_that_go_in() -> None:
    inputs = inputs_of(random_lstm(np.random.default_rng(0), 1, 2, 3))
    refuses(KIND, inputs, [output(Q16S, (), 2.0**-10, 0), OUTPUTS[1]], "computes scale")
    refuses(KIND, inputs, [OUTPUTS[0], output(Q8, (), STEP, 0)], "computes scale")


def test_no_operand_may_be_omitted() -> None:
    inputs = inputs_of(random_lstm(np.random.default_rng(0), 1, 2, 3))
    inputs[1] = omitted(Q8)
    status = ErrorStatus.INVALID_ARGUMENT
    refuses(KIND, inputs, OUTPUTS, "'input_to_input_weights' is omitted", status)
    rejects(KIND, inputs[:-1], OUTPUTS, "QUANTIZED_16BIT_LSTM")
