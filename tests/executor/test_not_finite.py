"""Infinities and NaN as docs/operations.md says: the reference executor does as NNAPI's CPU does."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

import numpy as np
import pytest

import nnburst
from nnburst import Device, Model, ModelBuilder, OperandType, OperationType

F32, F16 = OperandType.TENSOR_FLOAT32, OperandType.TENSOR_FLOAT16
LARGEST: Final = float(np.finfo(np.float32).max)
INF, NAN = np.inf, np.nan
GIVEN: Final = (INF, -INF, NAN, 0.25)
#: What each fused activation makes of `GIVEN` where infinities are limited to the largest number.
LIMITED: Final = {
    0: (LARGEST, -LARGEST, NAN, 0.25),
    1: (LARGEST, 0, NAN, 0.25),
    2: (1, -1, NAN, 0.25),
    3: (6, 0, NAN, 0.25),
}
#: Operations that can give back what they are given, as pixels of an image.
BINARY: Final = {"ADD": 0.0, "SUB": 0.0, "MUL": 1.0, "DIV": 1.0}
CONVOLUTIONS: Final = ("CONV_2D", "DEPTHWISE_CONV_2D", "GROUPED_CONV_2D", "TRANSPOSE_CONV_2D")
POOLS: Final = ("AVERAGE_POOL_2D", "MAX_POOL_2D")
FUSED: Final = (*BINARY, *CONVOLUTIONS, *POOLS, "FULLY_CONNECTED")
ALONE: Final = {"RELU": 1, "RELU1": 2, "RELU6": 3}
IMAGE: Final = (1, 1, 4, 1)


def unchanged(operation: str, activation: int, kind: OperandType = F32) -> Model:
    """One operation that computes x + 0, x * 1 and the like, then the activation."""
    b = ModelBuilder()
    shape = (4, 1) if operation == "FULLY_CONNECTED" else IMAGE
    x, code = b.input(kind, shape), b.scalar(activation)
    weights = b.constant(kind, np.ones((1,) * len(shape)))
    bias, one = b.constant(kind, np.zeros(1)), b.scalar(1)
    valid = b.scalar(2)  # implicit padding
    more = {
        "FULLY_CONNECTED": [weights, bias, code],
        "CONV_2D": [weights, bias, valid, one, one, code],
        "DEPTHWISE_CONV_2D": [weights, bias, valid, one, one, one, code],
        "GROUPED_CONV_2D": [weights, bias, valid, one, one, one, code, b.scalar(False)],
    }
    if operation in BINARY:
        inputs = [b.constant(kind, np.full(1, BINARY[operation])), code]
    elif operation in POOLS:
        inputs = [valid, one, one, one, one, code]
    elif operation == "TRANSPOSE_CONV_2D":
        wanted = b.constant(OperandType.TENSOR_INT32, np.array(IMAGE))
        inputs = [weights, bias, wanted, valid, one, one, code, b.scalar(False)]
    else:
        inputs = more.get(operation, [])
    b.operation(OperationType[operation], [x, *inputs], [b.output(kind, shape)])
    return b.build()


def result(device: Device, model: Model, dtype: type[Any] = np.float32) -> Any:
    with device.prepare(model) as prepared:
        shape = prepared.inputs[0].dimensions
        return prepared.execute([np.array(GIVEN, dtype).reshape(shape)]).outputs[0].ravel()


@pytest.fixture(scope="module")
def reference() -> Iterator[Device]:
    with nnburst.launch("reference") as launched:
        yield launched


@pytest.fixture(scope="module", params=["litert", "onnxruntime"])
def engine(request: pytest.FixtureRequest) -> Iterator[Device]:
    module = {"litert": "ai_edge_litert", "onnxruntime": "onnxruntime"}[request.param]
    pytest.importorskip(module, reason=f"{module} is not installed (extra {request.param!r})")
    with nnburst.launch(request.param) as launched:
        yield launched


@pytest.mark.parametrize("activation", LIMITED)
@pytest.mark.parametrize("operation", FUSED)
def test_a_fused_activation_limits_infinities_and_keeps_nan(
    operation: str, activation: int, reference: Device
) -> None:
    """NNAPI: the range of NONE is that of finite float32, and min(max(x, low), high) of NaN is NaN."""
    found = result(reference, unchanged(operation, activation))
    np.testing.assert_array_equal(found, np.array(LIMITED[activation], np.float32))


@pytest.mark.parametrize("operation", FUSED)
def test_float16_is_rounded_once_after_that(operation: str, reference: Device) -> None:
    """The largest float32 is infinite there."""
    found = result(reference, unchanged(operation, 0, F16), np.float16)
    np.testing.assert_array_equal(found, np.array(GIVEN, np.float16))


@pytest.mark.parametrize("operation", ALONE)
def test_a_rectifier_takes_nan_for_its_lower_bound(operation: str, reference: Device) -> None:
    limited = LIMITED[ALONE[operation]]
    found = result(reference, unchanged(operation, 0))
    expected = [limited[1] if np.isnan(each) else each for each in limited]
    np.testing.assert_array_equal(found, np.array(expected, np.float32))


@pytest.mark.parametrize("operation", ["ABS", "EXP", "FLOOR", "LOGISTIC", "NEG", "TANH"])
def test_operations_without_activation_keep_ieee_754(operation: str, reference: Device) -> None:
    expected = {
        "ABS": (INF, INF, NAN, 0.25),
        "EXP": (INF, 0, NAN, np.exp(0.25)),
        "FLOOR": (INF, -INF, NAN, 0),
        "LOGISTIC": (1, 0, NAN, 1 / (1 + np.exp(-0.25))),
        "NEG": (-INF, INF, NAN, -0.25),
        "TANH": (1, -1, NAN, np.tanh(0.25)),
    }[operation]
    found = result(reference, unchanged(operation, 0))
    np.testing.assert_allclose(found, np.array(expected, np.float32), rtol=1e-6)


@pytest.mark.parametrize("activation", LIMITED)
@pytest.mark.parametrize("operation", FUSED)
def test_engines_keep_infinities_that_no_bound_limits(
    operation: str, activation: int, engine: Device
) -> None:
    """But LiteRT's convolutions: they multiply more numbers by 0 than the image has."""
    model = unchanged(operation, activation)
    if not all(engine.supported_operations(model)):
        pytest.skip(f"{operation} is not supported by {engine.name}")
    found = result(engine, model)
    expected = [INF if e == LARGEST else -INF if e == -LARGEST else e for e in LIMITED[activation]]
    if operation in CONVOLUTIONS and np.isnan(found[:2]).all():
        assert engine.name == "litert"
        expected[:2] = [NAN, NAN]
    np.testing.assert_array_equal(found, np.array(expected, np.float32))


@pytest.mark.parametrize("operation", ALONE)
def test_rectifiers_of_engines_keep_both(operation: str, engine: Device) -> None:
    found = result(engine, unchanged(operation, 0))
    limited = [INF if each == LARGEST else each for each in LIMITED[ALONE[operation]]]
    np.testing.assert_array_equal(found, np.array(limited, np.float32))


@pytest.mark.parametrize("operation", ["MAXIMUM", "MINIMUM"])
def test_one_operand_of_nan_is_nan_or_the_other_one(
    operation: str, reference: Device, engine: Device
) -> None:
    b = ModelBuilder()
    x, y, z = b.input(F32, (3,)), b.input(F32, (3,)), b.output(F32, (3,))
    b.operation(OperationType[operation], [x, y], [z])
    given = [np.array(values, np.float32) for values in ([NAN, 2, NAN], [2, NAN, NAN])]
    model = b.build()
    found = []
    for device in (reference, engine):
        with device.prepare(model) as prepared:
            found.append(prepared.execute(given).outputs[0])
    np.testing.assert_array_equal(found[0], np.array([NAN, 2, NAN], np.float32))
    assert all(each == 2 or np.isnan(each) for each in found[1])


def test_the_exponential_of_nan_is_nan_or_0_on_engines(engine: Device) -> None:
    found = result(engine, unchanged("EXP", 0))
    assert np.isnan(found[2]) or found[2] == 0
    np.testing.assert_allclose(found[[0, 1, 3]], [INF, 0, np.exp(0.25)], rtol=1e-5)
