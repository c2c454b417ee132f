"""Models of float16 and 8-bit integers over the real numbers that these stand for, as OpenVINO gets them."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

pytest.importorskip("openvino", reason="the executor's engine is not installed")

from executor.onnxruntime.networks import computed
from nnburst.executor.built_in import openvino, reference
from nnburst.executor.onnxruntime.executor import SessionPrepared
from nnburst.executor.onnxruntime.network import survey
from nnburst.hal.enums import OperandType, OperationType
from nnburst.hal.model import Model, SymmPerChannelQuantParams
from nnburst.hal.model_builder import ModelBuilder

Array = npt.NDArray[Any]
_T, _O = OperandType, OperationType
IMAGE = (1, 6, 6, 3)


def integers(kind: OperandType, shape: tuple[int, ...], seed: int) -> Array:
    low, high = (0, 256) if kind is _T.TENSOR_QUANT8_ASYMM else (-128, 128)
    return (
        np.random.default_rng(seed)
        .integers(low, high, shape)
        .astype(np.uint8 if kind is _T.TENSOR_QUANT8_ASYMM else np.int8)
    )


def convolution(kind: OperandType, *, per_channel: bool = False) -> Model:
    """A convolution of 8-bit integers, followed by a maximum."""
    builder = ModelBuilder()
    zero_point = 120 if kind is _T.TENSOR_QUANT8_ASYMM else -8
    x = builder.input(kind, IMAGE, scale=0.05, zero_point=zero_point)
    scales = (0.01, 0.02, 0.03, 0.04)
    if per_channel:
        weights = builder.constant(
            _T.TENSOR_QUANT8_SYMM_PER_CHANNEL,
            integers(_T.TENSOR_QUANT8_SYMM_PER_CHANNEL, (4, 3, 3, 3), 1),
            extra_params=SymmPerChannelQuantParams(scales, 0),
        )
        bias = builder.constant(_T.TENSOR_INT32, np.arange(4, dtype=np.int32) * 100)
    else:
        values = integers(kind, (4, 3, 3, 3), 1)
        weights = builder.constant(kind, values, scale=0.01, zero_point=zero_point)
        bias = builder.constant(
            _T.TENSOR_INT32, np.arange(4, dtype=np.int32) * 100, scale=0.05 * 0.01
        )
    between = builder.temporary(kind, (1, 6, 6, 4), scale=0.4, zero_point=zero_point)
    made = builder.output(kind, (1, 3, 3, 4), scale=0.4, zero_point=zero_point)
    one, two, relu = builder.scalar(1), builder.scalar(2), builder.scalar(1)
    builder.operation(_O.CONV_2D, [x, weights, bias, one, one, one, relu], [between])
    pool = [between, one, two, two, two, two, builder.scalar(0)]
    builder.operation(_O.MAX_POOL_2D, pool, [made])
    return builder.build()


@pytest.mark.parametrize("per_channel", [False, True])
@pytest.mark.parametrize("kind", [_T.TENSOR_QUANT8_ASYMM, _T.TENSOR_QUANT8_ASYMM_SIGNED])
def test_networks_of_8_bit_integers_are_a_step_off_at_most(
    kind: OperandType, per_channel: bool
) -> None:
    model = convolution(kind, per_channel=per_channel)
    executor = openvino()
    assert executor.supported(model) == [True, True]
    assert isinstance(executor.prepare(model, []), SessionPrepared)
    for seed in range(3):
        given = [integers(kind, IMAGE, seed)]
        found, expected = (computed(e, model, given)[0] for e in (executor, reference()))
        assert found.dtype == expected.dtype
        assert np.ptp(expected.astype(int)) > 20
        assert np.abs(found.astype(int) - expected.astype(int)).max() <= 1


def test_what_only_moves_8_bit_integers_keeps_every_one() -> None:
    kind = _T.TENSOR_QUANT8_ASYMM
    builder = ModelBuilder()
    x = builder.input(kind, (16, 16), scale=0.7, zero_point=3)
    y = builder.output(kind, (16, 16), scale=0.7, zero_point=3)
    order = builder.constant(_T.TENSOR_INT32, np.array([1, 0], np.int32))
    builder.operation(_O.TRANSPOSE, [x, order], [y])
    values = np.arange(256, dtype=np.uint8).reshape(16, 16)
    assert computed(openvino(), builder.build(), [values])[0].tolist() == values.T.tolist()


def test_float16_is_read_and_written_and_computed_as_float32() -> None:
    builder = ModelBuilder()
    x = builder.input(_T.TENSOR_FLOAT16, (3,))
    factor = builder.constant(_T.TENSOR_FLOAT16, np.array([2.0, 0.5, -1.0], np.float16))
    between = builder.temporary(_T.TENSOR_FLOAT16, (3,))
    y = builder.output(_T.TENSOR_FLOAT16, (3,))
    builder.operation(_O.MUL, [x, factor, builder.scalar(0)], [between])
    builder.operation(_O.ADD, [between, x, builder.scalar(1)], [y])
    model = builder.build()
    assert openvino().supported(model) == [True, True]
    given = np.array([1.5, -3.25, 4.0], np.float16)
    assert computed(openvino(), model, [given])[0].tolist() == [4.5, 0.0, 0.0]


@pytest.mark.parametrize(
    ("of", "kind"),
    [
        (_O.FLOOR, _T.TENSOR_FLOAT16),
        (_O.CAST, _T.TENSOR_INT32),
        (_O.LESS, _T.TENSOR_BOOL8),
    ],
)
def test_what_jumps_where_float16_is_rounded_is_left_to_another_executor(
    of: OperationType, kind: OperandType
) -> None:
    builder = ModelBuilder()
    x, product = builder.input(_T.TENSOR_FLOAT16, (1,)), builder.temporary(_T.TENSOR_FLOAT16, (1,))
    factor = builder.constant(_T.TENSOR_FLOAT16, np.array([1 + 2**-10], np.float16))
    builder.operation(_O.MUL, [x, factor, builder.scalar(0)], [product])
    bound = [builder.constant(_T.TENSOR_FLOAT16, np.array([-4], np.float16))] * (of is _O.LESS)
    builder.operation(of, [product, *bound], [builder.output(kind, (1,))])
    model = builder.build()
    assert openvino().supported(model) == [True, False]
    given = np.array([-4 + 2**-9], np.float16)  # the product is less than -4, and -4 as float16
    assert computed(openvino(), model, [given])[0].tolist() == [0 if of is _O.LESS else -4]


def test_float16_that_a_client_sends_is_rounded_already() -> None:
    builder = ModelBuilder()
    x = builder.input(_T.TENSOR_FLOAT16, (2,))
    builder.operation(_O.FLOOR, [x], [builder.output(_T.TENSOR_FLOAT16, (2,))])
    model = builder.build()
    assert openvino().supported(model) == [True]
    given = np.array([-1.5, 2.5], np.float16)
    assert computed(openvino(), model, [given])[0].tolist() == [-2, 2]


def test_padding_of_8_bit_integers_has_the_value_that_is_stored() -> None:
    kind = _T.TENSOR_QUANT8_ASYMM
    builder = ModelBuilder()
    x = builder.input(kind, (2,), scale=0.5, zero_point=10)
    y = builder.output(kind, (4,), scale=0.5, zero_point=10)
    paddings = builder.constant(_T.TENSOR_INT32, np.array([[1, 1]], np.int32))
    builder.operation(_O.PAD_V2, [x, paddings, builder.scalar(77)], [y])
    model = builder.build()
    assert openvino().supported(model) == [True]
    given = np.array([1, 255], np.uint8)
    assert computed(openvino(), model, [given])[0].tolist() == [77, 1, 255, 77]


def test_integers_of_other_steps_are_joined_and_the_process_lives() -> None:
    kind = _T.TENSOR_QUANT8_ASYMM
    builder = ModelBuilder()
    x = builder.input(kind, (2, 3), scale=0.5, zero_point=10)
    y = builder.input(kind, (2, 3), scale=0.25, zero_point=100)
    made = builder.output(kind, (2, 6), scale=0.5, zero_point=10)
    builder.operation(_O.CONCATENATION, [x, y, builder.scalar(1)], [made])
    model, given = builder.build(), [integers(kind, (2, 3), seed) for seed in (1, 2)]
    found, expected = (computed(e, model, given)[0] for e in (openvino(), reference()))
    assert np.abs(found.astype(int) - expected.astype(int)).max() <= 1


@pytest.mark.parametrize("of", [_O.LESS, _O.CAST])
def test_operations_of_the_integers_themselves_are_left_to_another_executor(
    of: OperationType,
) -> None:
    kind = _T.TENSOR_QUANT8_ASYMM
    builder = ModelBuilder()
    x = builder.input(kind, (4,), scale=0.5)
    if of is _O.LESS:
        other = builder.input(kind, (4,), scale=0.7)
        builder.operation(of, [x, other], [builder.output(_T.TENSOR_BOOL8, (4,))])
    else:
        builder.operation(of, [x], [builder.output(_T.TENSOR_FLOAT32, (4,))])
    assert openvino().supported(builder.build()) == [False]


def test_a_bias_that_a_client_sends_is_left_to_another_executor() -> None:
    builder = ModelBuilder()
    kind = _T.TENSOR_QUANT8_ASYMM
    x = builder.input(kind, (1, 4), scale=0.5)
    weights = builder.constant(kind, np.ones((2, 4), np.uint8), scale=0.5)
    bias = builder.input(_T.TENSOR_INT32, (2,), scale=0.25)
    y = builder.output(kind, (1, 2), scale=1.0)
    builder.operation(_O.FULLY_CONNECTED, [x, weights, bias, builder.scalar(0)], [y])
    assert openvino().supported(builder.build()) == [False]


def test_onnxruntime_claims_no_such_model() -> None:
    model = convolution(_T.TENSOR_QUANT8_ASYMM)
    assert survey(model).lowered == (False, False)
