"""SVDF."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given
from hypothesis import strategies as st

from executor.refusal import refuses, rejects
from executor.run_operation import Given, omitted, output, run, scalar, tensor
from nnburst.executor.graph.declarations import F16, F32
from nnburst.executor.graph.tensor import Array
from nnburst.hal.enums import OperandType, OperationType

SVDF = OperationType.SVDF


def operands(
    x: npt.ArrayLike,
    feature: npt.ArrayLike,
    time: npt.ArrayLike,
    state: npt.ArrayLike,
    bias: npt.ArrayLike | None = None,
    rank: int = 1,
    activation: int = 0,
    kind: OperandType = F32,
) -> list[Given]:
    given_bias = omitted(kind) if bias is None else tensor(kind, bias)
    tensors = [tensor(kind, v) for v in (x, feature, time)]
    return [*tensors, given_bias, tensor(kind, state), scalar(rank), scalar(activation)]


def step(inputs: list[Given], kind: OperandType = F32) -> tuple[Array, Array]:
    state, y = run(SVDF, inputs, [output(kind), output(kind)])
    return state, y


@pytest.mark.parametrize("kind", [F32, F16])
def test_a_step_filters_over_time_then_shifts_and_clears(kind: OperandType) -> None:
    state, y = step(operands([[2]], [[3]], [[1, 10, 100]], [[4, 5, 99]], kind=kind), kind)
    np.testing.assert_array_equal(y, [[4 + 50 + 600]])
    np.testing.assert_array_equal(state, [[5, 6, 0]])


def test_ranks_of_one_unit_are_neighbours_and_are_added_with_the_bias() -> None:
    feature, time = [[1], [2], [3], [4]], [[1], [1], [1], [1]]
    state, y = step(operands([[1]], feature, time, [[0] * 4], [100, 200], rank=2))
    np.testing.assert_array_equal(y, [[103, 207]])
    np.testing.assert_array_equal(state, [[0, 0, 0, 0]])


@given(
    st.integers(1, 3), st.integers(1, 4), st.integers(1, 3), st.integers(1, 3), st.integers(1, 4)
)
def test_a_sequence_is_a_convolution_over_time(
    batches: int, width: int, units: int, rank: int, memory: int
) -> None:
    rng = np.random.default_rng(batches + 10 * width + 100 * memory)
    features = units * rank
    wf, wt = rng.normal(size=(features, width)), rng.normal(size=(features, memory))
    xs = rng.normal(size=(6, batches, width)).astype(np.float32)
    state = np.zeros((batches, memory * features), np.float32)
    for t, x in enumerate(xs):
        state, y = step(operands(x, wf, wt, state, rank=rank))
        past = [xs[t - age] @ wf.T * wt[:, memory - 1 - age] for age in range(min(memory, t + 1))]
        wanted = np.sum(past, axis=0).reshape(batches, units, rank).sum(axis=2)
        np.testing.assert_allclose(y, wanted, rtol=1e-3, atol=1e-3)


@pytest.mark.parametrize(
    ("activation", "wanted"),
    [
        (0, [-3.0, 0.5, 9.0]),
        (1, [0.0, 0.5, 9.0]),
        (2, [-1.0, 0.5, 1.0]),
        (3, [0.0, 0.5, 6.0]),
        (4, np.tanh([-3.0, 0.5, 9.0])),
        (6, 1 / (1 + np.exp([3.0, -0.5, -9.0]))),
    ],
)
def test_activations_apply_to_the_output_only(activation: int, wanted: npt.ArrayLike) -> None:
    inputs = operands([[1]], [[-3], [0.5], [9]], np.ones((3, 2)), [[0] * 6], activation=activation)
    state, y = step(inputs)
    np.testing.assert_allclose(y, [wanted], rtol=1e-6)
    np.testing.assert_array_equal(state, [[-3, 0, 0.5, 0, 9, 0]])


@pytest.mark.parametrize(
    ("inputs", "message"),
    [
        (operands([[1, 2]], [[1]], [[1]], [[0]]), "'weights_feature' has shape (1, 1)"),
        (operands([[1]], [[1]], [[1], [1]], [[0, 0]]), "'weights_feature' has shape (1, 1)"),
        (operands([[1]], [[1]], [[1]], [[0, 0]]), "'state_in' has shape (1, 2)"),
        (operands([[1], [1]], [[1]], [[1]], [[0]]), "'state_in' has shape (1, 1)"),
        (operands([1], [[1]], [[1]], [[0]]), "'input' has rank 1"),
        (operands([[1]], [[1]], [[1]], [[0]], [1, 2]), "'bias' has shape (2,)"),
        (operands([[1]], [[1]], [[1]], [[0]], rank=0), "'rank' is 0"),
        (operands([[1]], [[1]], [[1]], [[0]], rank=-1), "'rank' is -1"),
        (operands([[1]], [[1]], [[1]], [[0]], rank=2), "'rank' is 2"),
        (operands([[1]], [[1]], [[1]], [[0]], activation=5), "'activation' is 5"),
    ],
)
def test_operands_that_do_not_fit_are_refused(inputs: list[Given], message: str) -> None:
    refuses(SVDF, inputs, [output(F32), output(F32)], message)


def test_only_the_bias_may_be_omitted() -> None:
    for position in (0, 1, 2, 4):
        inputs = operands([[1]], [[1]], [[1]], [[0]])
        inputs[position] = omitted(F32)
        refuses(SVDF, inputs, [output(F32), output(F32)], "is omitted")


def test_mixed_types_are_rejected() -> None:
    inputs = operands([[1]], [[1]], [[1]], [[0]])
    inputs[1] = tensor(F16, [[1]])
    rejects(SVDF, inputs, [output(F32), output(F32)], "'weights_feature' is TENSOR_FLOAT16")
