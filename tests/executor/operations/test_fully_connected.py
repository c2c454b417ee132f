from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from executor.plain_windows import requantise
from executor.refusal import refuses, rejects
from executor.run_operation import Given, output, run, scalar, tensor
from nnburst.hal.enums import OperandType, OperationType

FULLY_CONNECTED = OperationType.FULLY_CONNECTED
F32, F16, I32 = (
    OperandType.TENSOR_FLOAT32,
    OperandType.TENSOR_FLOAT16,
    OperandType.TENSOR_INT32,
)
Q8, Q8S = OperandType.TENSOR_QUANT8_ASYMM, OperandType.TENSOR_QUANT8_ASYMM_SIGNED

extents = st.integers(1, 6)


@pytest.mark.parametrize("kind", [F32, F16])
@pytest.mark.parametrize("constant", [True, False])
def test_rows_times_weights_plus_bias(kind: OperandType, constant: bool) -> None:
    operands = [
        tensor(kind, [[1, 2], [3, 4]]),
        tensor(kind, [[1, 0], [0, 1], [1, 1]], constant=constant),
        tensor(kind, [0, 10, -4], constant=constant),
    ]
    [found] = run(FULLY_CONNECTED, [*operands, scalar(0)], [output(kind)])
    assert found.tolist() == [[1, 12, -1], [3, 14, 3]]
    [rectified] = run(FULLY_CONNECTED, [*operands, scalar(1)], [output(kind)])
    assert rectified.tolist() == [[1, 12, 0], [3, 14, 3]]


@pytest.mark.parametrize(("inputs", "batches"), [(12, 2), (4, 6), (24, 1)])
def test_the_input_is_flattened_before_it_is_cut_into_rows(inputs: int, batches: int) -> None:
    image = np.arange(24).reshape(2, 3, 4)
    operands = [tensor(F32, image), tensor(F32, np.eye(inputs)), tensor(F32, np.zeros(inputs))]
    [found] = run(FULLY_CONNECTED, [*operands, scalar(0)], [output(F32)])
    assert (found == image.reshape(batches, inputs)).all()


@given(
    st.tuples(extents, extents, extents),
    st.sampled_from([Q8, Q8S]),
    st.integers(0, 255),
    st.floats(0.01, 300),
    st.booleans(),
    st.integers(0, 2**32),
)
def test_quantised_results_are_those_of_integers_to_the_last_bit(
    shape: tuple[int, int, int],
    kind: OperandType,
    zero_point: int,
    scale: float,
    constant: bool,
    seed: int,
) -> None:
    batch, inputs, units = shape
    shift, (low, high) = (128, (0, 255)) if kind is Q8 else (0, (-128, 127))
    zero_point, scale = zero_point - 128 + shift, float(np.float32(scale))
    random = np.random.default_rng(seed)
    source = random.integers(-128, 128, (batch, inputs))
    weights = random.integers(-128, 128, (units, inputs))
    bias = random.integers(-20000, 20000, units)
    [found] = run(
        FULLY_CONNECTED,
        [
            tensor(kind, source + shift, 0.5, shift + 3),
            tensor(kind, weights + shift, 0.25, shift - 2, constant=constant),
            tensor(I32, bias, 0.125, constant=constant),
            scalar(0),
        ],
        [output(kind, (), scale, zero_point)],
    )
    sums = (source - 3) @ (weights + 2).T + bias
    wanted = requantise(sums, np.float32(0.125), scale, zero_point, low, high)
    assert (found == wanted).all()


def test_no_rows_give_no_rows() -> None:
    operands = [tensor(F32, np.zeros((0, 3))), tensor(F32, np.ones((2, 3))), tensor(F32, [0, 0])]
    [found] = run(FULLY_CONNECTED, [*operands, scalar(0)], [output(F32)])
    assert found.shape == (0, 2)


def operands(source: Any, weights: Any, bias: Any, activation: int = 0) -> list[Given]:
    tensors = [tensor(F32, np.ones(shape)) for shape in (source, weights, bias)]
    return [*tensors, scalar(activation)]


@pytest.mark.parametrize(
    ("shapes", "message"),
    [
        (((3,), (2, 3), (2,)), "'input' has rank 1"),
        (((1, 3), (2, 3, 1), (2,)), "'weights' has rank 3"),
        (((1, 3), (2, 3), (2, 1)), "'bias' has rank 2"),
        (((1, 4), (2, 3), (2,)), "not a multiple of 3"),
        (((1, 3), (2, 3), (3,)), "'bias' has 3 elements"),
    ],
)
def test_shapes_that_do_not_fit_are_rejected(shapes: Any, message: str) -> None:
    rejects(FULLY_CONNECTED, operands(*shapes), [output(F32)], message)


def test_unknown_activations_and_other_bias_scales_fail() -> None:
    refuses(FULLY_CONNECTED, operands((1, 3), (2, 3), (2,), 4), [output(F32)], "'activation' is 4")
    stored = [tensor(Q8, [[1]], 0.5, 0), tensor(Q8, [[1]], 0.5, 0), tensor(I32, [0], 0.3)]
    refuses(FULLY_CONNECTED, [*stored, scalar(0)], [output(Q8, (), 1, 0)], "'bias' has scale")
