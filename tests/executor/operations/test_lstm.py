"""LSTM: the cell, by hand and against its definition."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from executor.lstm_case import (
    DIRECTION,
    GATES,
    LAYER_NORM,
    STATES,
    coupled,
    one_cell,
    operands,
    random_lstm,
    step,
)
from executor.refusal import refuses, rejects
from executor.run_operation import Given, output, run, scalar, tensor
from nnburst.executor.graph.declarations import F16, F32, FLOAT16, FLOAT32
from nnburst.hal.enums import OperandType, OperationType

LSTM = OperationType.LSTM
LN3 = math.log(3)  # its logistic is 3/4


def inputs_of(
    values: dict[str, Any],
    x: Any,
    activation: int = 4,
    clips: tuple[float, float] = (0.0, 0.0),
    kind: OperandType = F32,
    *,
    constant: bool = False,
    layer_norm: bool = True,
) -> list[Given]:
    number = FLOAT16 if kind == F16 else FLOAT32
    return [
        tensor(kind, x),
        *operands(values, DIRECTION, kind, constant=constant),
        *operands(values, STATES, kind),
        scalar(activation),
        *(scalar(clip, number) for clip in clips),
        *(operands(values, LAYER_NORM, kind, constant=constant) if layer_norm else ()),
    ]


def lstm(values: dict[str, Any], x: Any = ((0.0,),), **more: Any) -> list[Any]:
    """Scratch, output state, cell state, output."""
    kind = more.get("kind", F32)
    return run(LSTM, inputs_of(values, x, **more), [output(kind)] * 4)


def test_gates_of_one_half_average_old_state_and_candidate() -> None:
    values = one_cell(cell_gate_bias=[1], cell_state=[[2]])
    scratch, h, c, y = lstm(values, activation=0)
    assert (c, h, y) == (1.5, 0.75, 0.75)
    assert scratch.shape == (1, 4)


def test_without_input_gate_as_much_is_let_in_as_is_forgotten() -> None:
    values = coupled(one_cell(forget_gate_bias=[LN3], cell_gate_bias=[1], cell_state=[[2]]))
    scratch, _, c, y = lstm(values, activation=0)
    np.testing.assert_allclose([c, y], [[[1.75]], [[0.875]]], rtol=1e-6)
    assert scratch.shape == (1, 3)


@pytest.mark.parametrize(
    ("code", "candidate", "expected"),
    [(0, -3, -1.5), (1, -3, 0), (1, 3, 1.5), (2, -3, -0.5), (3, 8, 3), (4, 1, 0.3807971)],
)
def test_activation_shapes_candidate_and_output(
    code: int, candidate: float, expected: float
) -> None:
    """The new state is half the activated candidate; the output half the activated state."""
    _, _, c, y = lstm(one_cell(cell_gate_bias=[candidate]), activation=code)
    np.testing.assert_allclose(c, [[expected]], rtol=1e-6)
    activated = math.tanh(expected) if code == 4 else max(-1, expected) if code == 2 else expected
    np.testing.assert_allclose(y, [[activated / 2]], rtol=1e-6)


def test_sigmoid_is_an_activation() -> None:
    _, _, c, y = lstm(one_cell(cell_gate_bias=[LN3]), activation=6)
    np.testing.assert_allclose(c, [[0.375]], rtol=1e-6)
    np.testing.assert_allclose(y, [[0.5 / (1 + math.exp(-0.375))]], rtol=1e-6)


@pytest.mark.parametrize("batch", [2, 3, 9])
def test_batches_of_one_cell_are_computed_each_by_itself(batch: int) -> None:
    """A gate of one cell is a column of the gates: one number every 16 bytes, or every 12."""
    rng = np.random.default_rng(batch)
    for cifg in (False, True):
        values = random_lstm(rng, (batch, 2, 1, 1), cifg=cifg)
        x = rng.uniform(-3, 3, (batch, 2))
        h, c = step(values, x, (values["output_state"], values["cell_state"]))
        _, found_h, found_c, y = lstm(values, x)
        for found, expected in ((found_h, h), (found_c, c), (y, h)):
            np.testing.assert_allclose(found, expected, rtol=1e-5)


def test_cell_clip_limits_the_state_before_the_output_sees_it() -> None:
    values = one_cell(cell_state=[[-8]], cell_to_output_weights=[-LN3])
    values |= {f"cell_to_{g}_weights": np.zeros(1) for g in ("input", "forget")}
    _, _, c, y = lstm(values, activation=0, clips=(1.0, 0.0))
    assert c == -1
    np.testing.assert_allclose(y, [[-0.75]], rtol=1e-6)  # the peephole saw -1, not -4


def test_projection_is_clipped_after_its_bias() -> None:
    values = one_cell(cell_gate_bias=[1], cell_state=[[2]])
    values |= {"projection_weights": np.array([[2.0]]), "projection_bias": np.array([0.5])}
    assert lstm(values, activation=0)[3] == 2
    assert lstm(values, activation=0, clips=(0.0, 1.25))[3] == 1.25


def test_projection_clip_without_projection_does_nothing() -> None:
    values = one_cell(cell_gate_bias=[1], cell_state=[[2]])
    assert lstm(values, activation=0, clips=(0.0, 0.25))[3] == 0.75


def test_peepholes_of_input_and_forget_gate_see_the_old_state() -> None:
    values = one_cell(cell_gate_bias=[1], cell_state=[[2]])
    values |= {
        "cell_to_input_weights": np.array([LN3 / 2]),
        "cell_to_forget_weights": np.array([-LN3 / 2]),
        "cell_to_output_weights": np.array([LN3 / 1.25]),
    }
    _, _, c, y = lstm(values, activation=0)
    np.testing.assert_allclose(c, [[0.25 * 2 + 0.75 * 1]], rtol=1e-6)
    np.testing.assert_allclose(y, [[0.75 * 1.25]], rtol=1e-6)


def test_layer_norm_scales_deviations_and_adds_the_bias_last() -> None:
    rng = np.random.default_rng(1)
    values = {n: v * 0 for n, v in random_lstm(rng, (1, 1, 2, 2), layer_norm=True).items()}
    values["input_to_cell_weights"] = np.array([[1.0], [3.0]])
    values["cell_layer_norm_weights"] = np.array([2.0, 10.0])
    values["cell_gate_bias"] = np.array([5.0, 6.0])
    _, _, c, _ = lstm(values, [[7.0]], activation=0)
    np.testing.assert_allclose(c, [[(-2 + 5) / 2, (10 + 6) / 2]], rtol=1e-6)


configurations = st.fixed_dictionaries(
    {
        name: st.booleans()
        for name in ("cifg", "peephole", "layer_norm", "projection", "projection_bias")
    }
)


@given(
    configuration=configurations,
    seed=st.integers(0, 2**32 - 1),
    extents=st.tuples(st.integers(1, 3), st.integers(1, 4), st.integers(2, 4)),
    activation=st.sampled_from([0, 1, 2, 3, 4, 6]),
    clips=st.tuples(st.sampled_from([0.0, 0.25]), st.sampled_from([0.0, 0.125])),
    constant=st.booleans(),
)
def test_every_configuration_follows_the_definition(
    configuration: dict[str, bool],
    seed: int,
    extents: tuple[int, int, int],
    activation: int,
    clips: tuple[float, float],
    constant: bool,
) -> None:
    rng = np.random.default_rng(seed)
    batch, inputs, cells = extents
    outputs = cells + 1 if configuration["projection"] else cells
    values = random_lstm(rng, (batch, inputs, cells, outputs), **configuration)
    x = rng.uniform(0.5, 1, (batch, inputs))
    if configuration["layer_norm"]:  # a variance near 0 would magnify rounding
        for name in values.keys() & {f"input_to_{gate}_weights" for gate in GATES}:
            values[name] = values[name] + np.linspace(-9, 9, cells)[:, None]
    h, c = step(
        values,
        x,
        (values["output_state"], values["cell_state"]),
        activation=activation,
        cell_clip=clips[0],
        projection_clip=clips[1],
    )
    _, found_h, found_c, y = lstm(values, x, activation=activation, clips=clips, constant=constant)
    tolerance = {"rtol": 1e-3, "atol": 1e-3} if configuration["layer_norm"] else {"rtol": 1e-5}
    np.testing.assert_allclose(found_c, c, **{"atol": 1e-5, **tolerance})
    np.testing.assert_allclose(found_h, h, **{"atol": 1e-5, **tolerance})
    np.testing.assert_array_equal(y, found_h)


def test_float16_rounds_the_results_once() -> None:
    rng = np.random.default_rng(4)
    values = random_lstm(rng, (2, 3, 4, 4), peephole=True)
    values = {n: v.astype(np.float16).astype(float) for n, v in values.items()}
    x = rng.uniform(-1, 1, (2, 3)).astype(np.float16)
    narrow = lstm(values, x, kind=F16)
    wide = lstm(values, x)
    for a, b in zip(narrow[1:], wide[1:], strict=True):
        np.testing.assert_array_equal(a, b.astype(np.float16))


def test_layer_norm_operands_may_be_left_out_altogether() -> None:
    values = one_cell(cell_gate_bias=[1], cell_state=[[2]])
    assert lstm(values, activation=0, layer_norm=False)[3] == 0.75


def test_saturated_gates_do_not_overflow() -> None:
    values = one_cell(forget_gate_bias=[-1e4], input_gate_bias=[1e4], cell_gate_bias=[1])
    _, _, c, _ = lstm(values, activation=0)
    assert c == 1


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"input_to_input_weights": None}, "'recurrent_to_input_weights' is given"),
        ({"recurrent_to_input_weights": None}, "'recurrent_to_input_weights' is omitted"),
        ({"input_gate_bias": None}, "'input_gate_bias' is omitted"),
        ({"cell_to_input_weights": [0]}, "'cell_to_input_weights' is given"),
        ({"cell_to_output_weights": [0]}, "'cell_to_forget_weights' is omitted"),
        (
            {"cell_to_output_weights": [0], "cell_to_forget_weights": [0]},
            "'cell_to_input_weights' is omitted",
        ),
        ({"projection_bias": [0]}, "'projection_bias' is given without 'projection_weights'"),
        ({"output_layer_norm_weights": [1]}, "'forget_layer_norm_weights' is omitted"),
        ({"input_layer_norm_weights": [1]}, "'input_layer_norm_weights' is given"),
        ({"forget_gate_bias": [0, 0]}, "'forget_gate_bias' has dimensions [2], expected [1]"),
        ({"cell_state": [[0, 0]]}, "'cell_state' has dimensions [1, 2], expected [1, 1]"),
        ({"output_state": [[0], [0]]}, "'output_state' has dimensions [2, 1], expected [1, 1]"),
        ({"input_to_cell_weights": [[0, 0]]}, "'input_to_cell_weights' has dimensions [1, 2]"),
        ({"recurrent_to_cell_weights": [[0, 0]]}, "'recurrent_to_cell_weights' has dimensions"),
        ({"projection_weights": [[0, 0]]}, "'projection_weights' has dimensions [1, 2]"),
        ({"input_to_output_weights": [0]}, "'input_to_output_weights' has rank 1, expected 2"),
        ({"forget_gate_bias": None}, "'forget_gate_bias' is omitted"),
        ({"cell_state": None}, "'cell_state' is omitted"),
    ],
)
def test_operands_that_do_not_belong_together_fail(change: dict[str, Any], message: str) -> None:
    values = one_cell(**change)
    refuses(LSTM, inputs_of(values, [[0.0]]), [output(F32)] * 4, message)


@pytest.mark.parametrize("name", ["input_gate_bias", "input_layer_norm_weights"])
def test_input_gate_operands_without_input_gate_fail(name: str) -> None:
    values = coupled(
        one_cell(**{f"{g}_layer_norm_weights": [1] for g in ("forget", "cell", "output")})
    )
    values[name] = np.array([1.0])
    refuses(LSTM, inputs_of(values, [[0.0]]), [output(F32)] * 4, f"'{name}' is given")


def test_peephole_of_a_coupled_input_gate_needs_the_others_and_is_ignored() -> None:
    values = coupled(one_cell(cell_gate_bias=[1], cell_state=[[2]]))
    values["cell_to_input_weights"] = np.array([9.0])
    message = "'cell_to_input_weights' is given"
    refuses(LSTM, inputs_of(values, [[0.0]]), [output(F32)] * 4, message)
    values |= {f"cell_to_{g}_weights": np.zeros(1) for g in ("forget", "output")}
    assert lstm(values, activation=0)[3] == 0.75


def test_without_projection_outputs_are_cells() -> None:
    values = one_cell(output_state=[[0, 0]])
    for gate in ("input", "forget", "cell", "output"):
        values[f"recurrent_to_{gate}_weights"] = np.zeros((1, 2))
    message = "without 'projection_weights' there must be as many as cells (1)"
    refuses(LSTM, inputs_of(values, [[0.0]]), [output(F32)] * 4, message)


@pytest.mark.parametrize("code", [5, 7, -1])
def test_unknown_activation_fails(code: int) -> None:
    inputs = inputs_of(one_cell(), [[0.0]], activation=code)
    refuses(LSTM, inputs, [output(F32)] * 4, f"'activation' is {code}")


@pytest.mark.parametrize("value", [-0.5, math.nan])
def test_negative_clip_fails(value: float) -> None:
    for at, name in enumerate(("cell_clip", "projection_clip")):
        clips = (value, 0.0) if at == 0 else (0.0, value)
        inputs = inputs_of(one_cell(), [[0.0]], clips=clips)
        refuses(LSTM, inputs, [output(F32)] * 4, f"operand '{name}' is")


def test_input_has_two_dimensions() -> None:
    inputs = inputs_of(one_cell(), [[[0.0]]])
    refuses(LSTM, inputs, [output(F32)] * 4, "'input' has rank 3, expected 2")


def test_model_needs_23_or_27_inputs_of_one_type_and_4_outputs() -> None:
    inputs = inputs_of(one_cell(), [[0.0]])
    rejects(LSTM, inputs[:-1], [output(F32)] * 4, "LSTM")
    rejects(LSTM, inputs, [output(F32)] * 3, "LSTM")
    rejects(LSTM, [tensor(F16, [[0]]), *inputs[1:]], [output(F32)] * 4, "LSTM")
