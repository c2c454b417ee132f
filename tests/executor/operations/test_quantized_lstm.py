"""QUANTIZED_LSTM: by hand, and bit by bit against its definition in Python integers."""

from __future__ import annotations

import dataclasses
import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from executor.lstm_case import GATES, step
from executor.qlstm_case import QLstm, by_definition, random_qlstm
from executor.refusal import refuses, rejects
from executor.run_operation import output, run, scalar, tensor
from nnburst.executor.graph.declarations import FLOAT32, Q8S, Q16S
from nnburst.hal.enums import OperationType

KIND = OperationType.QUANTIZED_LSTM


def qlstm(q: QLstm, *, constant: bool = False) -> tuple[Any, Any]:
    """Output and cell state."""
    outputs = [
        output(Q8S, (), *q.h_quantisation),
        output(Q16S, (), 2.0**q.cell_exponent, 0),
        output(Q8S, (), *q.h_quantisation),
    ]
    state, cell, y = run(KIND, q.inputs(constant=constant), outputs)
    np.testing.assert_array_equal(state, y)
    return y, cell


def still(**more: Any) -> QLstm:
    """One cell with state 2.0 whose gates are all one half and whose candidate is 0."""
    q = random_qlstm(np.random.default_rng(0), (1, 1, 1, 1))
    values = {name: value * 0 for name, value in q.values.items()} | more.pop("values", {})
    values = {"cell_state": np.array([[8192]])} | values
    values["cell_state"] = np.array([[8192]])
    return QLstm(values, np.array([[3]]), **more)


def test_gates_of_one_half_halve_the_state() -> None:
    """State 1.0; output half its tanh, 0.3808 · 128 = 48.7, in steps of 1/128."""
    y, cell = qlstm(still())
    assert (y, cell) == (49, 4096)


def test_hidden_zero_point_is_subtracted() -> None:
    assert qlstm(still(hidden=(1 / 128, 3)))[0] == 46
    assert qlstm(still(hidden=(1 / 128, -100)))[0] == 127


def test_cell_clip_is_truncated_to_steps() -> None:
    """A clip of 0.5 leaves half of tanh(0.5), 0.231 · 128 = 29.6."""
    for clip, state in ((0.5, 2048), (0.50024, 2048), (1.0, 4096), (0.0001, 4096), (1e30, 4096)):
        assert qlstm(still(cell_clip=clip))[1] == state
    assert qlstm(still(cell_clip=0.5))[0] == 30


def test_projection_adds_the_zero_point_back_and_its_bias() -> None:
    """Weight 2, hidden 46 with zero point 3: 2 · (46 + 3) + 2 = 100, a quarter of it, minus 5."""
    projection = {"projection_weights": np.array([[2]]), "projection_bias": np.array([2])}
    more: dict[str, Any] = {"hidden": (1 / 128, 3), "scales": {"projection_weights": 0.5}}
    assert qlstm(still(values=projection, **more))[0] == 20
    del projection["projection_bias"]
    assert qlstm(still(values=projection, **more))[0] == 20  # 98 / 4 = 24.5, away from zero


def test_projection_clip_is_truncated_to_steps_of_its_weights() -> None:
    projection = {"projection_weights": np.array([[2]])}
    more: dict[str, Any] = {"hidden": (1 / 128, 3), "scales": {"projection_weights": 0.5}}
    for clip, expected in ((5.2, 10), (9.9, 19), (10.0, 20), (0.4, 20), (1e30, 20)):
        assert qlstm(still(values=projection, projection_clip=clip, **more))[0] == expected


def test_omitted_clips_are_off() -> None:
    y, cell = qlstm(still(cell_clip=None, projection_clip=None))
    assert (y, cell) == (49, 4096)


def test_biases_are_not_used_without_layer_norm() -> None:
    biases = {f"{g}_gate_bias": np.array([2**20]) for g in GATES}
    y, cell = qlstm(still(values=biases))
    assert (y, cell) == (49, 4096)


def test_what_comes_from_the_input_saturates_before_the_state_is_added() -> None:
    """Forget gate in F3: the input alone gives 7.5 · 8 and is cut to 8, the state takes 8 away."""
    values = {
        "input_to_forget_weights": np.array([[120]]),
        "recurrent_to_forget_weights": np.array([[-64]]),
        "output_state": np.array([[59]]),
    }
    scales = {"input_to_forget_weights": 0.5, "recurrent_to_forget_weights": 0.125}
    q = still(values=values, scales=scales, x_quantisation=(1 / 128, -125))
    _, cell = qlstm(q)
    np.testing.assert_array_equal(cell, by_definition(q)[1])
    assert abs(int(cell[0, 0]) - 4096) <= 2


def test_peepholes_see_the_old_state_and_for_the_output_the_new_one() -> None:
    """Logistic of ln 3 is 3/4: 2.0 becomes 1.5, and the output 3/4 of its tanh."""
    ln3 = math.log(3)
    weights = {"cell_to_input_weights": 0, "cell_to_forget_weights": ln3 / 2}
    weights["cell_to_output_weights"] = ln3 / 1.5
    values = {name: np.array([round(w * 2**14)]) for name, w in weights.items()}
    scales = dict.fromkeys(weights, 2.0**-14)
    y, cell = qlstm(still(values=values, scales=scales))
    assert abs(int(cell[0, 0]) - 6144) <= 2
    assert y == round(0.75 * math.tanh(1.5) * 128)


def test_layer_norm_divides_2_to_the_20_by_the_cells_first() -> None:
    """Of 3 cells with 12000, 12100, 12200 the variance comes out as 6527 instead of 6667."""
    q = random_qlstm(np.random.default_rng(0), (1, 1, 3, 3), layer_norm=True)
    values = {name: value * 0 for name, value in q.values.items()}
    for gate in GATES:
        values[f"input_to_{gate}_weights"] = np.array([[120], [121], [122]])
        values[f"{gate}_layer_norm_weights"] = np.array([20000, 20000, 20000])
    values["cell_state"] = np.array([[20000, 20000, 20000]])
    scales = {f"input_to_{gate}_weights": 1.0 for gate in GATES}
    scales |= {f"{gate}_layer_norm_weights": 2.0**-14 for gate in GATES}
    exact = QLstm(values, np.array([[103]]), scales, intermediate=(1 / 128,) * 4)
    for found, expected in zip(qlstm(exact), by_definition(exact), strict=True):
        np.testing.assert_array_equal(found, expected)


@given(
    seed=st.integers(0, 2**32 - 1),
    configuration=st.fixed_dictionaries(
        {
            name: st.booleans()
            for name in ("cifg", "peephole", "layer_norm", "projection", "projection_bias")
        }
    ),
    clips=st.tuples(st.sampled_from([0.0, 0.6]), st.sampled_from([0.0, 0.3])),
    exponent=st.integers(-15, -9),
    hidden_zero=st.integers(-128, 127),
    constant=st.booleans(),
)
def test_every_bit_follows_the_definition(
    seed: int,
    configuration: dict[str, bool],
    clips: tuple[float, float],
    exponent: int,
    hidden_zero: int,
    constant: bool,
) -> None:
    rng = np.random.default_rng(seed)
    outputs = 4 if configuration["projection"] else 3
    q = random_qlstm(rng, (2, 5, 3, outputs), **configuration)
    q = dataclasses.replace(
        q,
        cell_clip=clips[0],
        projection_clip=clips[1],
        cell_exponent=exponent,
        hidden=(float(np.float32(rng.uniform(0.004, 0.02))), hidden_zero),
    )
    for found, expected in zip(qlstm(q, constant=constant), by_definition(q), strict=True):
        np.testing.assert_array_equal(found, expected)


@given(seed=st.integers(0, 2**32 - 1), cifg=st.booleans(), peephole=st.booleans())
def test_layer_normalised_step_is_near_the_float_lstm(
    seed: int, cifg: bool, peephole: bool
) -> None:
    q = random_qlstm(
        np.random.default_rng(seed), (2, 4, 8, 8), cifg=cifg, peephole=peephole, layer_norm=True
    )
    wide = (2.0**-9,) * 4  # no gate saturates
    q = dataclasses.replace(q, h_quantisation=(1 / 128, 0), intermediate=wide)
    real = {}
    for name, value in q.values.items():
        real[name] = value * q.scale(name)
        if name.endswith("bias"):  # stored in steps of the layer norm weights' scale / 1024
            real[name] = value * q.scale(name.replace("gate_bias", "layer_norm_weights")) / 1024
    real["output_state"] = q.values["output_state"] / 128
    real["cell_state"] = q.values["cell_state"] * 2.0**q.cell_exponent
    x = (q.x - q.x_quantisation[1]) * q.x_quantisation[0]
    h, c = step(real, x, (real["output_state"], real["cell_state"]))
    y, cell = qlstm(q)
    np.testing.assert_allclose(cell * 2.0**q.cell_exponent, c, atol=0.05)
    np.testing.assert_allclose(y / 128, h, atol=0.05)


@pytest.mark.parametrize(
    ("more", "message"),
    [
        ({"cell_exponent": -8}, "'cell_state' has scale 2**-8, expected 2**-15 to 2**-9"),
        ({"cell_exponent": -16}, "'cell_state' has scale 2**-16, expected 2**-15 to 2**-9"),
        ({"hidden": (0.0, 0)}, "'hidden_state_scale' is 0.0"),
        ({"hidden": (1 / 128, 128)}, "'hidden_state_zero_point' is 128, expected -128 to 127"),
        ({"intermediate": (1.0, 1.0, 0.0, 1.0)}, "'cell_intermediate_scale' is 0.0"),
        ({"intermediate": (1.0, math.nan, 1.0, 1.0)}, "'forget_intermediate_scale' is nan"),
    ],
)
def test_scales_and_zero_points_are_checked(more: dict[str, Any], message: str) -> None:
    outputs = [output(Q8S, (), 1 / 64, -5), output(Q16S, (), 2.0**-12, 0)]
    refuses(KIND, still(**more).inputs(), [*outputs, outputs[0]], message)


def test_cell_scale_is_a_power_of_two() -> None:
    inputs = still().inputs()
    inputs[19] = tensor(Q16S, [[8192]], 0.0003, 0)
    outputs = [output(Q8S, (), 1 / 64, -5), output(Q16S, (), 0.0003, 0)]
    refuses(KIND, inputs, [*outputs, outputs[0]], "expected a power of two")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"input_gate_bias": None}, "'input_gate_bias' is omitted"),
        ({"recurrent_to_input_weights": None}, "'recurrent_to_input_weights' is omitted"),
        ({"cell_to_output_weights": [0]}, "'cell_to_forget_weights' is omitted"),
        ({"cell_layer_norm_weights": [0]}, "'cell_layer_norm_weights' is given"),
        ({"projection_bias": [0]}, "'projection_bias' is given without 'projection_weights'"),
        ({"forget_gate_bias": [0, 0]}, "'forget_gate_bias' has dimensions [2], expected [1]"),
        ({"output_state": [[0, 0]]}, "'output_state' has dimensions [1, 2], expected [1, 1]"),
        ({"cell_gate_bias": None}, "'cell_gate_bias' is omitted"),
    ],
)
def test_operands_that_do_not_belong_together_fail(change: dict[str, Any], message: str) -> None:
    q = still()
    q.values.update(change)
    outputs = [output(Q8S, (), 1 / 64, -5), output(Q16S, (), 2.0**-12, 0)]
    refuses(KIND, q.inputs(), [*outputs, outputs[0]], message)


def test_all_32_operands_are_part_of_the_model() -> None:
    outputs = [output(Q8S, (), 1 / 64, -5), output(Q16S, (), 2.0**-12, 0)]
    inputs = still().inputs()
    rejects(KIND, inputs[:-1], [*outputs, outputs[0]], "QUANTIZED_LSTM")
    inputs[30] = scalar(0.0, FLOAT32)
    rejects(KIND, inputs, [*outputs, outputs[0]], "'hidden_state_zero_point' is FLOAT32")
