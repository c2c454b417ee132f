"""UNIDIRECTIONAL_SEQUENCE_LSTM and BIDIRECTIONAL_SEQUENCE_LSTM: steps in a row, both ways."""

from __future__ import annotations

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
    operands,
    random_lstm,
    step,
    swapped,
)
from executor.refusal import refuses, rejects
from executor.run_operation import Given, omitted, output, run, scalar, tensor
from nnburst.executor.graph.declarations import F32
from nnburst.hal.enums import OperationType

ONE = OperationType.UNIDIRECTIONAL_SEQUENCE_LSTM
BOTH = OperationType.BIDIRECTIONAL_SEQUENCE_LSTM
AUX = tuple(f"aux_input_to_{g}_weights" for g in GATES)
SETTINGS = (scalar(4), scalar(0.0), scalar(0.0))
SIZES = (2, 3, 4, 4)  # batch, inputs, cells, outputs

seeds = st.integers(0, 2**32 - 1)
flags = st.booleans()


def rolled(values: dict[str, Any], x: Any, extra: Any = None) -> tuple[Any, Any, Any]:
    """Outputs [time, …] and last states of a sequence [time, batch, …], by definition."""
    h, c = values["output_state"], values["cell_state"]
    outputs = []
    for t in range(len(x)):
        h, c = step(values, x[t], (h, c), extra=None if extra is None else extra(t))
        outputs.append(h)
    return np.stack(outputs), h, c


def one_inputs(values: dict[str, Any], x: Any, *, time_major: bool = True) -> list[Given]:
    return [
        tensor(F32, swapped(x, time_major)),
        *operands(values, DIRECTION, F32),
        *operands(values, STATES, F32),
        *SETTINGS,
        scalar(time_major),
        *operands(values, LAYER_NORM, F32),
    ]


def both_inputs(
    forward: dict[str, Any],
    backward: dict[str, Any],
    x: Any,
    aux: Any = None,
    *,
    merged: bool = False,
    time_major: bool = True,
) -> list[Given]:
    return [
        tensor(F32, swapped(x, time_major)),
        *operands(forward, DIRECTION, F32),
        *operands(backward, DIRECTION, F32),
        *operands(forward, STATES, F32),
        *operands(backward, STATES, F32),
        omitted(F32) if aux is None else tensor(F32, swapped(aux, time_major)),
        *operands(forward, AUX, F32),
        *operands(backward, AUX, F32),
        *SETTINGS,
        scalar(merged),
        scalar(time_major),
        *operands(forward, LAYER_NORM, F32),
        *operands(backward, LAYER_NORM, F32),
    ]


def close(found: Any, expected: Any) -> None:
    np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-5)


@given(seed=seeds, time_major=flags, cifg=flags, projection=flags, steps=st.integers(1, 4))
def test_sequence_is_one_step_after_the_other(
    seed: int, time_major: bool, cifg: bool, projection: bool, steps: int
) -> None:
    rng = np.random.default_rng(seed)
    values = random_lstm(rng, (2, 3, 4, 5 if projection else 4), cifg=cifg, projection=projection)
    x = rng.uniform(-1, 1, (steps, 2, 3))
    y, h, c = run(ONE, one_inputs(values, x, time_major=time_major), [output(F32)] * 3)
    expected = rolled(values, x)
    for found, wanted in zip((swapped(y, time_major), h, c), expected, strict=True):
        close(found, wanted)


def test_states_are_an_optional_output() -> None:
    rng = np.random.default_rng(3)
    inputs = one_inputs(random_lstm(rng, SIZES), rng.uniform(-1, 1, (3, 2, 3)))
    [alone] = run(ONE, inputs, [output(F32)])
    with_states = run(ONE, inputs, [output(F32)] * 3)
    np.testing.assert_array_equal(alone, with_states[0])
    rejects(ONE, inputs, [output(F32)] * 2, "UNIDIRECTIONAL_SEQUENCE_LSTM")


def test_layer_norm_applies_to_every_step() -> None:
    rng = np.random.default_rng(5)
    values = random_lstm(rng, SIZES, layer_norm=True, peephole=True)
    x = rng.uniform(-1, 1, (3, 2, 3))
    y, h, c = run(ONE, one_inputs(values, x), [output(F32)] * 3)
    for found, wanted in zip((y, h, c), rolled(values, x), strict=True):
        np.testing.assert_allclose(found, wanted, rtol=1e-3, atol=1e-3)


@given(seed=seeds, time_major=flags, merged=flags, cifg=st.tuples(flags, flags))
def test_backward_direction_reads_and_writes_from_the_end(
    seed: int, time_major: bool, merged: bool, cifg: tuple[bool, bool]
) -> None:
    """The directions may differ in cells and configuration."""
    rng = np.random.default_rng(seed)
    forward = random_lstm(rng, (2, 3, 4, 4), cifg=cifg[0])
    backward = random_lstm(rng, (2, 3, 3, 2), cifg=cifg[1], projection=True)
    x = rng.uniform(-1, 1, (3, 2, 3))
    fw, fw_h, fw_c = rolled(forward, x)
    bw, bw_h, bw_c = rolled(backward, x[::-1])
    inputs = both_inputs(forward, backward, x, merged=merged, time_major=time_major)
    sequences = [np.concatenate([fw, bw[::-1]], axis=2)] if merged else [fw, bw[::-1]]
    expected = [swapped(s, time_major) for s in sequences] + [fw_h, fw_c, bw_h, bw_c]
    found = run(BOTH, inputs, [output(F32)] * len(expected))
    for a, b in zip(found, expected, strict=True):
        close(a, b)
    without_states = run(BOTH, inputs, [output(F32)] * len(sequences))
    for a, b in zip(without_states, found[: len(sequences)], strict=True):
        np.testing.assert_array_equal(a, b)


@pytest.mark.parametrize("time_major", [True, False])
def test_aux_input_without_weights_is_what_the_backward_direction_reads(time_major: bool) -> None:
    rng = np.random.default_rng(6)
    forward, backward = random_lstm(rng, (2, 3, 4, 4)), random_lstm(rng, (2, 5, 4, 4))
    x, aux = rng.uniform(-1, 1, (3, 2, 3)), rng.uniform(-1, 1, (3, 2, 5))
    inputs = both_inputs(forward, backward, x, aux, time_major=time_major)
    fw, bw = run(BOTH, inputs, [output(F32)] * 2)
    close(swapped(fw, time_major), rolled(forward, x)[0])
    close(swapped(bw, time_major), rolled(backward, aux[::-1])[0][::-1])


@pytest.mark.parametrize("cifg", [False, True])
def test_aux_input_with_weights_is_added_in_both_directions(cifg: bool) -> None:
    rng = np.random.default_rng(7)
    forward, backward = (random_lstm(rng, SIZES, cifg=cifg) for _ in range(2))
    x, aux = rng.uniform(-1, 1, (3, 2, 3)), rng.uniform(-1, 1, (3, 2, 5))
    for values in (forward, backward):
        for gate in GATES[1:] if cifg else GATES:
            values[f"aux_input_to_{gate}_weights"] = rng.uniform(-1, 1, (4, 5))

    def added(values: dict[str, Any], sequence: Any) -> Any:
        names = [g for g in GATES if f"aux_input_to_{g}_weights" in values]
        return lambda t: {g: sequence[t] @ values[f"aux_input_to_{g}_weights"].T for g in names}

    fw, bw = run(BOTH, both_inputs(forward, backward, x, aux), [output(F32)] * 2)
    close(fw, rolled(forward, x, added(forward, aux))[0])
    close(bw, rolled(backward, x[::-1], added(backward, aux[::-1]))[0][::-1])


def refuses_both(forward: Any, backward: Any, aux: Any, message: str, **more: Any) -> None:
    count = more.pop("count", 2)
    inputs = both_inputs(forward, backward, np.zeros((3, 2, 3)), aux, **more)
    refuses(BOTH, inputs, [output(F32)] * count, message)


def test_aux_weights_go_together_and_need_the_aux_input() -> None:
    rng = np.random.default_rng(8)
    forward, backward = random_lstm(rng, SIZES), random_lstm(rng, SIZES)
    aux, weights = np.zeros((3, 2, 5)), np.zeros((4, 5))
    one = forward | {"aux_input_to_cell_weights": weights}
    refuses_both(one, backward, aux, "'fw_aux_input_to_input_weights' is omitted")
    all_of_them = dict.fromkeys(AUX, weights)
    refuses_both(forward | all_of_them, backward, aux, "'bw_aux_input_to_input_weights' is omitted")
    both = forward | all_of_them, backward | all_of_them
    refuses_both(*both, None, "weights of 'aux_input' are given although it is omitted")
    refuses_both(*both, np.zeros((3, 2, 4)), "'fw_aux_input_to_input_weights' has dimensions")
    refuses_both(*both, np.zeros((2, 2, 5)), "'aux_input' has dimensions [2, 2, 5]")
    refuses_both(forward, backward, np.zeros((3, 2, 4)), "'bw_input_to_input_weights' has")


def test_aux_weights_of_a_missing_input_gate_fail() -> None:
    rng = np.random.default_rng(9)
    aux = dict.fromkeys(AUX, np.zeros((4, 5)))
    values = [random_lstm(rng, SIZES, cifg=True) | aux for _ in range(2)]
    refuses_both(*values, np.zeros((3, 2, 5)), "'fw_aux_input_to_input_weights' is given")


def test_number_of_outputs_follows_merge_outputs() -> None:
    rng = np.random.default_rng(10)
    values = random_lstm(rng, SIZES), random_lstm(rng, SIZES)
    for merged, counts in ((True, (2, 6)), (False, (1, 5))):
        for count in counts:
            message = f"'merge_outputs' is {merged}"
            refuses_both(*values, None, message, merged=merged, count=count)
    inputs = both_inputs(*values, np.zeros((3, 2, 3)))
    rejects(BOTH, inputs, [output(F32)] * 3, "BIDIRECTIONAL_SEQUENCE_LSTM")


def test_input_has_three_dimensions() -> None:
    rng = np.random.default_rng(11)
    values = random_lstm(rng, SIZES)
    inputs = one_inputs(values, np.zeros((2, 3)))
    refuses(ONE, inputs, [output(F32)], "'input' has rank 2, expected 3")
    inputs = both_inputs(values, values, np.zeros((2, 3)))
    refuses(BOTH, inputs, [output(F32)] * 2, "'input' has rank 2, expected 3")


def test_batch_is_the_other_one_of_the_first_two_dimensions() -> None:
    rng = np.random.default_rng(12)
    values = random_lstm(rng, SIZES)
    inputs = one_inputs(values, rng.uniform(-1, 1, (3, 2, 3)))
    inputs[23] = scalar(False)
    message = "'output_state' has dimensions [2, 4], expected [3, 4]"
    refuses(ONE, inputs, [output(F32)], message)


def test_errors_name_the_direction() -> None:
    rng = np.random.default_rng(13)
    forward, backward = random_lstm(rng, SIZES), random_lstm(rng, SIZES)
    backward["forget_gate_bias"] = np.zeros(5)
    refuses_both(forward, backward, None, "'bw_forget_gate_bias' has dimensions [5], expected [4]")
