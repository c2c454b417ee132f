"""Convolutions whose paddings NNAPI's operations do not take."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import nnburst
from importer.onnx.graphs import Array, model, node, normal, value
from importer.tflite.running import Runner
from nnburst.hal.enums import OperationType


def result(made: Any, x: Array) -> Array:
    return Runner(nnburst.load(made.SerializeToString())).run([x])[0]


def expected(made: Any, x: Array, **more: Array) -> Array:
    from onnx.reference import ReferenceEvaluator

    return np.asarray(ReferenceEvaluator(made).run(None, {"x": x, **more})[0])


def convolution(group: int, shape: tuple[int, ...], kernel: tuple[int, ...], **how: Any) -> Any:
    return model(
        [node("Conv", "x w b", "y", group=group, **how)],
        [value("x", "f4", shape)],
        [value("y", "f4", None)],
        {"w": normal(4, 4 // group, *kernel), "b": normal(4, seed=1)},
    )


@pytest.mark.parametrize("group", [1, 2, 4])
@pytest.mark.parametrize(
    ("kernel", "how"),
    [
        ((1, 1), {"pads": [1, 0, 0, 2]}),
        ((3, 2), {"pads": [3, 1, 0, 2], "strides": [2, 1]}),
        ((2, 2), {"pads": [4, 4, 4, 4], "dilations": [2, 1]}),
        ((2, 2), {"pads": [0, 3, 0, 0], "strides": [1, 3]}),
    ],
)
def test_paddings_as_wide_as_the_filter_are_put_around_the_image(
    group: int, kernel: tuple[int, ...], how: dict[str, Any]
) -> None:
    made = convolution(group, (2, 4, 5, 5), kernel, **how)
    x = normal(2, 4, 5, 5, seed=2)
    np.testing.assert_allclose(result(made, x), expected(made, x), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("group", [1, 4])
def test_so_are_those_of_a_signal(group: int) -> None:
    made = convolution(group, (1, 4, 7), (2,), pads=[5, 2])
    x = normal(1, 4, 7, seed=2)
    np.testing.assert_allclose(result(made, x), expected(made, x), rtol=1e-4, atol=1e-5)


def test_smaller_paddings_are_the_operation_s_own() -> None:
    made = convolution(1, (2, 4, 5, 5), (3, 3), pads=[2, 2, 2, 2])
    imported = nnburst.load(made.SerializeToString())
    kinds = [operation.type for operation in imported.model.main.operations]
    assert OperationType.PAD_V2 not in kinds


@pytest.mark.parametrize("last", ["Relu", "QuantizeLinear"])
def test_filters_whose_integers_are_computed_are_real_numbers(last: str) -> None:
    more = {} if last == "Relu" else {"s": np.array(0.02, np.float32), "z": np.array(128, np.uint8)}
    made = model(
        [
            node("DequantizeLinear", "x ws wz", "real"),
            node("DequantizeLinear", "w ws wz", "filters"),
            node("Conv", "real filters", "r"),
            node(last, "r s z" if more else "r", "y"),
        ],
        [value("x", "u1", (1, 2, 4, 4)), value("w", "u1", (3, 2, 2, 2))],
        [value("y", "u1" if more else "f4", None)],
        {"ws": np.array(0.01, np.float32), "wz": np.array(120, np.uint8), **more},
    )
    random = np.random.default_rng(0)
    x, w = (random.integers(0, 256, s).astype(np.uint8) for s in ((1, 2, 4, 4), (3, 2, 2, 2)))
    (found,) = Runner(nnburst.load(made.SerializeToString(), as_graph=False)).run([x, w])
    np.testing.assert_allclose(found, expected(made, x, w=w), rtol=1e-5, atol=1 if more else 1e-5)


@pytest.mark.parametrize("zero", [0, 7, 255])
def test_integers_are_padded_with_those_that_stand_for_0(zero: int) -> None:
    steps = {"xs": np.float32(0.02), "ys": np.float32(0.05), "ws": np.float32(0.01)}
    made = model(
        [node("QLinearConv", "x xs xz w ws wz ys yz", "y", pads=[2, 0, 0, 3])],
        [value("x", "u1", (1, 2, 4, 4))],
        [value("y", "u1", None)],
        {name: step.reshape(()) for name, step in steps.items()}
        | {name: np.array(z, np.uint8) for name, z in (("xz", zero), ("wz", 128), ("yz", 100))}
        | {"w": np.random.default_rng(0).integers(0, 256, (3, 2, 2, 2)).astype(np.uint8)},
    )
    x = np.random.default_rng(1).integers(0, 256, (1, 2, 4, 4)).astype(np.uint8)
    difference = result(made, x).astype(int) - expected(made, x).astype(int)
    assert np.abs(difference).max() <= 1


@pytest.mark.parametrize("where", ["SAME_UPPER", "SAME_LOWER"])
@pytest.mark.parametrize(
    "how",
    [{}, {"output_padding": [1]}, {"output_shape": [8]}, {"output_shape": [9], "dilations": [2]}],
)
def test_a_transposed_convolution_with_gaps_begins_with_its_first_element(
    where: str, how: dict[str, Any]
) -> None:
    ort = pytest.importorskip("onnxruntime")
    made = model(
        [node("ConvTranspose", "x w", "y", strides=[3], auto_pad=where, **how)],
        [value("x", "f4", (1, 2, 3))],
        [value("y", "f4", None)],
        {"w": normal(2, 2, 1)},
    )
    x = normal(1, 2, 3, seed=2)
    session = ort.InferenceSession(made.SerializeToString(), providers=["CPUExecutionProvider"])
    (computed,) = session.run(None, {"x": x})
    found = result(made, x)
    assert found.shape == computed.shape
    np.testing.assert_allclose(found, computed, rtol=1e-5, atol=1e-6)
