"""RNN, UNIDIRECTIONAL_SEQUENCE_RNN, BIDIRECTIONAL_SEQUENCE_RNN."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from executor.lstm_case import ACTIVATIONS, swapped
from executor.refusal import refuses, rejects
from executor.run_operation import Given, omitted, output, run, scalar, tensor
from nnburst.executor.graph.declarations import F16, F32
from nnburst.hal.enums import ErrorStatus, OperationType

RNN = OperationType.RNN
ONE = OperationType.UNIDIRECTIONAL_SEQUENCE_RNN
BOTH = OperationType.BIDIRECTIONAL_SEQUENCE_RNN
NAMES = ("weights", "recurrent", "bias", "state")

seeds = st.integers(0, 2**32 - 1)
flags = st.booleans()


def random_rnn(rng: np.random.Generator, batch: int, inputs: int, units: int) -> dict[str, Any]:
    shapes = ((units, inputs), (units, units), (units,), (batch, units))
    return {n: rng.uniform(-1, 1, shape) for n, shape in zip(NAMES, shapes, strict=True)}


def operands(values: Mapping[str, Any]) -> list[Given]:
    return [tensor(F32, values[name]) for name in NAMES]


def rolled(values: Mapping[str, Any], x: Any, code: int, extra: Any = None) -> Any:
    """Outputs of a sequence [time, batch, …] by definition."""
    state, outputs = values["state"], []
    for t in range(len(x)):
        total = values["bias"] + x[t] @ values["weights"].T + state @ values["recurrent"].T
        state = ACTIVATIONS[code](total if extra is None else total + extra[t])
        outputs.append(state)
    return np.stack(outputs)


def close(found: Any, expected: Any) -> None:
    np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(
    ("code", "expected"),
    [(0, -2.5), (1, 0.0), (3, 0.0), (4, math.tanh(-2.5)), (6, 1 / (1 + math.exp(2.5)))],
)
@pytest.mark.parametrize("kind", [F32, F16])
def test_output_is_the_activated_sum(code: int, expected: float, kind: Any) -> None:
    """0.5 + 2 · 3 + 3 · (-3) = -2.5"""
    values = ([[2]], [[3]], [[-3]], [0.5], [[3]])
    inputs = [tensor(kind, v) for v in values]
    hidden, y = run(RNN, [*inputs, scalar(code)], [output(kind)] * 2)
    np.testing.assert_allclose(y, [[expected]], rtol=1e-6 if kind == F32 else 1e-3)
    np.testing.assert_array_equal(hidden, y)


@pytest.mark.parametrize("time", [3, 4, 5, 8])
def test_one_unit_of_batches_that_come_before_time_is_computed(time: int) -> None:
    """A step is one number of each sequence: `time` numbers lie between them in memory."""
    rng = np.random.default_rng(time)
    values, x = random_rnn(rng, 6, 2, 1), rng.uniform(-3, 3, (time, 6, 2))
    inputs = [tensor(F32, swapped(x, False)), *operands(values), scalar(6), scalar(0)]
    [y] = run(ONE, inputs, [output(F32)])
    close(swapped(y, False), rolled(values, x, 6))


def test_relu6_stops_at_6() -> None:
    inputs = [tensor(F32, v) for v in ([[1]], [[9]], [[0]], [0], [[0]])]
    assert run(RNN, [*inputs, scalar(3)], [output(F32)] * 2)[1] == 6


@pytest.mark.parametrize("code", [2, 5, 7, -1])
def test_other_activations_fail(code: int) -> None:
    values = random_rnn(np.random.default_rng(0), 1, 1, 1)
    x = [tensor(F32, [[1]]), *operands(values), scalar(code)]
    refuses(RNN, x, [output(F32)] * 2, f"'activation' is {code}")


@pytest.mark.parametrize(
    ("name", "dimensions"),
    [("weights", (3, 3)), ("recurrent", (3, 4)), ("bias", (4,)), ("state", (3, 3))],
)
def test_dimensions_must_agree(name: str, dimensions: tuple[int, ...]) -> None:
    values = random_rnn(np.random.default_rng(0), 2, 4, 3) | {name: np.zeros(dimensions)}
    inputs = [tensor(F32, np.zeros((2, 4))), *operands(values), scalar(0)]
    refuses(RNN, inputs, [output(F32)] * 2, f"has dimensions {list(dimensions)}")


def test_omitted_operand_of_rnn_is_an_invalid_argument() -> None:
    values = random_rnn(np.random.default_rng(0), 2, 4, 3)
    inputs = [tensor(F32, np.zeros((2, 4))), *operands(values), scalar(0)]
    without_bias = [*inputs[:3], omitted(F32), *inputs[4:]]
    status = ErrorStatus.INVALID_ARGUMENT
    refuses(RNN, without_bias, [output(F32)] * 2, "'bias' is omitted", status)


@given(seed=seeds, time_major=flags, code=st.sampled_from([0, 1, 3, 4, 6]))
def test_sequence_is_one_step_after_the_other(seed: int, time_major: bool, code: int) -> None:
    rng = np.random.default_rng(seed)
    values, x = random_rnn(rng, 2, 3, 4), rng.uniform(-1, 1, (3, 2, 3))
    inputs = [tensor(F32, swapped(x, time_major)), *operands(values)]
    inputs += [scalar(code), scalar(int(time_major))]
    y, state = run(ONE, inputs, [output(F32)] * 2)
    expected = rolled(values, x, code)
    close(swapped(y, time_major), expected)
    close(state, expected[-1])
    np.testing.assert_array_equal(run(ONE, inputs, [output(F32)])[0], y)


@pytest.mark.parametrize("value", [2, -1])
def test_time_major_of_a_sequence_is_0_or_1(value: int) -> None:
    values = random_rnn(np.random.default_rng(0), 2, 3, 4)
    inputs = [tensor(F32, np.zeros((3, 2, 3))), *operands(values), scalar(4), scalar(value)]
    refuses(ONE, inputs, [output(F32)], f"'time_major' is {value}, expected 0 or 1")


def both_inputs(
    forward: Mapping[str, Any],
    backward: Mapping[str, Any],
    x: Any,
    aux: tuple[Any, Any, Any] = (None, None, None),
    *,
    time_major: bool = True,
    merged: bool = False,
) -> list[Given]:
    """`aux` is the auxiliary input [time, …] with its forward and backward weights."""
    moved = (None if aux[0] is None else swapped(aux[0], time_major), *aux[1:])
    return [
        tensor(F32, swapped(x, time_major)),
        *operands(forward),
        *operands(backward),
        *(omitted(F32) if a is None else tensor(F32, a) for a in moved),
        scalar(4),
        scalar(time_major),
        scalar(merged),
    ]


@given(seed=seeds, time_major=flags, merged=flags)
def test_backward_direction_reads_and_writes_from_the_end(
    seed: int, time_major: bool, merged: bool
) -> None:
    rng = np.random.default_rng(seed)
    forward, backward = random_rnn(rng, 2, 3, 4), random_rnn(rng, 2, 3, 2)
    x = rng.uniform(-1, 1, (3, 2, 3))
    fw, bw = rolled(forward, x, 4), rolled(backward, x[::-1], 4)
    sequences = [np.concatenate([fw, bw[::-1]], axis=2)] if merged else [fw, bw[::-1]]
    expected = [swapped(s, time_major) for s in sequences] + [fw[-1], bw[-1]]
    inputs = both_inputs(forward, backward, x, time_major=time_major, merged=merged)
    for found, wanted in zip(
        run(BOTH, inputs, [output(F32)] * len(expected)), expected, strict=True
    ):
        close(found, wanted)
    for found, wanted in zip(
        run(BOTH, inputs, [output(F32)] * len(sequences)), expected, strict=False
    ):
        close(found, wanted)


@pytest.mark.parametrize("time_major", [True, False])
def test_aux_input_without_weights_is_what_the_backward_direction_reads(time_major: bool) -> None:
    rng = np.random.default_rng(1)
    forward, backward = random_rnn(rng, 2, 3, 4), random_rnn(rng, 2, 5, 4)
    x, aux = rng.uniform(-1, 1, (3, 2, 3)), rng.uniform(-1, 1, (3, 2, 5))
    inputs = both_inputs(forward, backward, x, (aux, None, None), time_major=time_major)
    fw, bw = run(BOTH, inputs, [output(F32)] * 2)
    close(swapped(fw, time_major), rolled(forward, x, 4))
    close(swapped(bw, time_major), rolled(backward, aux[::-1], 4)[::-1])


def test_aux_input_with_weights_is_added_in_both_directions() -> None:
    rng = np.random.default_rng(2)
    forward, backward = random_rnn(rng, 2, 3, 4), random_rnn(rng, 2, 3, 2)
    x, aux = rng.uniform(-1, 1, (3, 2, 3)), rng.uniform(-1, 1, (3, 2, 5))
    fw_weights, bw_weights = rng.uniform(-1, 1, (4, 5)), rng.uniform(-1, 1, (2, 5))
    inputs = both_inputs(forward, backward, x, (aux, fw_weights, bw_weights))
    fw, bw = run(BOTH, inputs, [output(F32)] * 2)
    close(fw, rolled(forward, x, 4, aux @ fw_weights.T))
    close(bw, rolled(backward, x[::-1], 4, (aux @ bw_weights.T)[::-1])[::-1])


@pytest.mark.parametrize(
    ("aux", "message"),
    [
        ((None, (4, 5), (4, 5)), "weights of 'aux_input' are given although it is omitted"),
        (((3, 2, 5), (4, 5), None), "'bw_aux_weights' is omitted"),
        (((3, 2, 5), None, (4, 5)), "'fw_aux_weights' is omitted"),
        (((3, 2, 5), (4, 4), (4, 5)), "'fw_aux_weights' has dimensions [4, 4], expected [4, 5]"),
        (((3, 2, 4), None, None), "'bw_weights' has dimensions [4, 3], expected [4, 4]"),
        (((2, 2, 3), None, None), "'aux_input' has dimensions [2, 2, 3], expected [3, 2, 3]"),
    ],
)
def test_aux_operands_go_together(aux: tuple[Any, Any, Any], message: str) -> None:
    rng = np.random.default_rng(3)
    forward, backward = random_rnn(rng, 2, 3, 4), random_rnn(rng, 2, 3, 4)
    arrays = tuple(None if shape is None else np.zeros(shape) for shape in aux)
    inputs = both_inputs(forward, backward, np.zeros((3, 2, 3)), arrays)  # type: ignore[arg-type]
    refuses(BOTH, inputs, [output(F32)] * 2, message)


def test_number_of_outputs_follows_merge_outputs() -> None:
    rng = np.random.default_rng(4)
    values = random_rnn(rng, 2, 3, 4)
    for merged, counts in ((True, (2, 4)), (False, (1, 3))):
        inputs = both_inputs(values, values, np.zeros((3, 2, 3)), merged=merged)
        for count in counts:
            refuses(BOTH, inputs, [output(F32)] * count, f"'merge_outputs' is {merged}")
        rejects(BOTH, inputs, [output(F32)] * 5, "BIDIRECTIONAL_SEQUENCE_RNN")


def test_sequences_have_three_dimensions() -> None:
    values = random_rnn(np.random.default_rng(5), 2, 3, 4)
    one = [tensor(F32, np.zeros((2, 3))), *operands(values), scalar(4), scalar(0)]
    refuses(ONE, one, [output(F32)], "'input' has rank 2, expected 3")
    both = both_inputs(values, values, np.zeros((2, 3)))
    refuses(BOTH, both, [output(F32)] * 2, "'input' has rank 2, expected 3")
