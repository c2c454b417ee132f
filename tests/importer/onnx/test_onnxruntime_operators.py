"""Operators of onnxruntime's domain on integers, as its quantisation tools write them: a step off at most."""

from __future__ import annotations

from importlib import import_module
from typing import Any

import numpy as np
import pytest

from importer.onnx.graphs import Array, model, node, value

pytest.importorskip("onnxruntime", reason="computes what is expected")

import nnburst
from importer.tflite.running import Runner
from nnburst.hal.enums import OperandType
from nnburst.hal.errors import InvalidArgument

KINDS = {"u1": (np.uint8, 128), "i1": (np.int8, 0)}


def quantization(name: str, kind: str, scale: float, zero_point: int) -> dict[str, Array]:
    return {
        f"{name}s": np.array(scale, np.float32),
        f"{name}z": np.array(zero_point, KINDS[kind][0]),
    }


def made(
    operator: str,
    inputs: str,
    shapes: tuple[tuple[int, ...], tuple[int, ...]],
    kind: str = "u1",
    constants: dict[str, Array] | None = None,
    result: str | None = None,
    **attributes: Any,
) -> Any:
    """One node between integers; xs, xz, ys, yz are steps and zero points of x and y."""
    known = {
        **quantization("x", kind, 0.02, KINDS[kind][1]),
        **quantization("y", kind, 0.05, KINDS[kind][1]),
        **quantization("p", kind, 1 / 256, 0 if kind == "u1" else -128),
        **(constants or {}),
    }
    used = {name: array for name, array in known.items() if name in inputs.split()}
    return model(
        [node(operator, inputs, "y", domain="com.microsoft", **attributes)],
        [value("x", kind, shapes[0])],
        [value("y", result or kind, shapes[1])],
        used,
        opset=13,
        domains=["com.microsoft"],
    )


def random_integers(kind: str, shape: tuple[int, ...], seed: int = 0) -> Array:
    limits = np.iinfo(KINDS[kind][0])
    random = np.random.default_rng(seed)
    return random.integers(limits.min, limits.max, shape, KINDS[kind][0], endpoint=True)


def steps_apart(network: Any, x: Array) -> float:
    """The largest difference between the imported network and onnxruntime."""
    content = network.SerializeToString()
    ort = import_module("onnxruntime")
    session = ort.InferenceSession(content, providers=["CPUExecutionProvider"])
    (expected,) = session.run(None, {"x": x})
    (found,) = Runner(nnburst.load(content)).run([x])
    apart = found.reshape(expected.shape).astype(np.float64) - expected.astype(np.float64)
    assert np.ptp(expected.astype(np.float64)) > 0
    return float(np.abs(apart).max())


IMAGE = (1, 4, 6, 6)


@pytest.mark.parametrize("kind", ["u1", "i1"])
@pytest.mark.parametrize("step", ["y", "x"], ids=["another step", "the same step"])
def test_average_pool_is_at_most_a_step_from_onnxruntimes(kind: str, step: str) -> None:
    network = made(
        "QLinearAveragePool",
        f"x xs xz {step}s {step}z",
        (IMAGE, (1, 4, 3, 3)),
        kind,
        kernel_shape=[2, 2],
        strides=[2, 2],
    )
    assert steps_apart(network, random_integers(kind, IMAGE)) <= 1


@pytest.mark.parametrize("kind", ["u1", "i1"])
@pytest.mark.parametrize("step", ["xs xz", "ps pz"], ids=["the same step", "a smaller step"])
def test_global_average_pool_is_at_most_a_step_from_onnxruntimes(kind: str, step: str) -> None:
    inputs, smaller = f"x xs xz {step}", quantization("p", kind, 0.002, KINDS[kind][1])
    network = made("QLinearGlobalAveragePool", inputs, (IMAGE, (1, 4, 1, 1)), kind, smaller)
    assert steps_apart(network, random_integers(kind, IMAGE)) <= 1


@pytest.mark.parametrize("kind", ["u1", "i1"])
@pytest.mark.parametrize("opset", [11, 13])
def test_softmax_is_at_most_a_step_from_onnxruntimes(kind: str, opset: int) -> None:
    shape = (2, 3, 4)
    network = made("QLinearSoftmax", "x xs xz ps pz", (shape, shape), kind, axis=1, opset=opset)
    assert steps_apart(network, random_integers(kind, shape)) <= 1


@pytest.mark.parametrize("operator", ["QLinearSigmoid", "QLinearLeakyRelu"])
@pytest.mark.parametrize("kind", ["u1", "i1"])
def test_functions_of_one_element_are_at_most_a_step_from_onnxruntimes(
    operator: str, kind: str
) -> None:
    into = "p" if operator == "QLinearSigmoid" else "y"
    network = made(operator, f"x xs xz {into}s {into}z", ((2, 8), (2, 8)), kind)
    assert steps_apart(network, random_integers(kind, (2, 8))) <= 1


@pytest.mark.parametrize("operator", ["QLinearAdd", "QLinearMul"])
@pytest.mark.parametrize("kind", ["u1", "i1"])
def test_results_of_two_operands_are_at_most_a_step_from_onnxruntimes(
    operator: str, kind: str
) -> None:
    constants = {
        "b": random_integers(kind, (8,), 1),
        **quantization("b", kind, 0.03, KINDS[kind][1]),
    }
    names = "x xs xz b bs bz ys yz"
    network = made(operator, names, ((2, 8), (2, 8)), kind, constants)
    assert steps_apart(network, random_integers(kind, (2, 8))) <= 1


def test_concatenation_is_at_most_a_step_from_onnxruntimes() -> None:
    constants = {"b": random_integers("u1", (2, 3), 1), **quantization("b", "u1", 0.03, 100)}
    network = made(
        "QLinearConcat", "ys yz x xs xz b bs bz", ((2, 8), (2, 11)), "u1", constants, axis=1
    )
    assert steps_apart(network, random_integers("u1", (2, 8))) <= 1


def test_concatenation_of_one_tensor_takes_the_step_of_the_result() -> None:
    network = made("QLinearConcat", "ys yz x xs xz", ((2, 8), (2, 8)), "u1", axis=1)
    assert steps_apart(network, random_integers("u1", (2, 8))) <= 1


@pytest.mark.parametrize("turned", [0, 1])
@pytest.mark.parametrize("bias", [True, False])
def test_matrix_product_is_at_most_a_step_from_onnxruntimes(bias: bool, turned: int) -> None:
    stored = np.random.default_rng(1).integers(-127, 128, (8, 5)).astype(np.int8)
    constants = {
        "w": stored.T.copy() if turned else stored,
        "ws": np.array(0.01, np.float32),
        "wz": np.array(0, np.int8),
        "c": np.arange(-200, 300, 100, dtype=np.int32),
    }
    names = f"x xs xz w ws wz {'c' if bias else '-'} ys yz"
    network = made("QGemm", names, ((2, 8), (2, 5)), "i1", constants, transB=turned)
    assert steps_apart(network, random_integers("i1", (2, 8))) <= 1


def test_matrix_product_of_integers_may_be_real() -> None:
    stored = np.random.default_rng(1).integers(0, 256, (8, 5)).astype(np.uint8)
    constants = {"w": stored, **quantization("w", "u1", 0.01, 120)}
    network = made("QGemm", "x xs xz w ws wz", ((2, 8), (2, 5)), "u1", constants, result="f4")
    assert steps_apart(network, random_integers("u1", (2, 8))) < 1e-5


def test_global_average_pool_computes_on_integers() -> None:
    content = made(
        "QLinearGlobalAveragePool", "x xs xz xs xz", (IMAGE, (1, 4, 1, 1))
    ).SerializeToString()
    operands = nnburst.load(content).model.main.operands
    assert OperandType.TENSOR_FLOAT32 not in {operand.type for operand in operands}


def test_channels_behind_the_axes_are_refused_with_the_reason() -> None:
    network = made(
        "QLinearGlobalAveragePool", "x xs xz xs xz", (IMAGE, (1, 1, 1, 6)), channels_last=1
    )
    with pytest.raises(InvalidArgument, match=r"channels behind the image's axes.*as_graph=True"):
        nnburst.load(network.SerializeToString(), as_graph=False)


def test_pool_that_counts_more_than_its_padding_is_refused_with_the_reason() -> None:
    network = made(
        "QLinearAveragePool",
        "x xs xz xs xz",
        (IMAGE, (1, 4, 2, 2)),
        kernel_shape=[3, 3],
        strides=[4, 4],
        ceil_mode=1,
        count_include_pad=1,
    )
    with pytest.raises(InvalidArgument, match="ceil_mode and count_include_pad are 1"):
        nnburst.load(network.SerializeToString(), as_graph=False)
