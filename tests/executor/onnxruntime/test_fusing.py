"""Operators that the importer writes in parts become the engine's operator again."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import repeat
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("onnxruntime", reason="the executor's engine")
pytest.importorskip("onnx", reason="reads what the engine has made of a graph")

import nnburst
from executor.onnxruntime.networks import Chain, computed, optimised
from executor.onnxruntime.networks import operators as operators_of
from importer.onnx.graphs import Array, model, node, normal, value
from nnburst.executor.built_in import onnxruntime, reference
from nnburst.executor.onnxruntime.graph import OnnxGraph
from nnburst.executor.onnxruntime.operations.elementwise import _ERF, error_function_of
from nnburst.hal.enums import OperationType
from nnburst.hal.model import Model


def imported(nodes: Sequence[Any], constants: dict[str, Array] | None = None) -> Model:
    made = model(nodes, [value("x", "f4", (4, 5))], [value("y", "f4", (4, 5))], constants)
    return nnburst.load(made.SerializeToString()).model


def agree(network: Model, tolerance: float) -> None:
    x = 3 * normal(4, 5)
    (found,), (wanted,) = (computed(e, network, [x]) for e in (onnxruntime(), reference()))
    np.testing.assert_allclose(found, wanted, rtol=0, atol=tolerance)


def test_the_error_function_is_one_operator() -> None:
    network = imported([node("Erf", "x", "y")])
    assert operators_of(network) == {"Erf": 1}
    agree(network, 1e-6)


def test_a_gelu_is_one_operator_of_the_engine_whole_or_in_parts(tmp_path: Path) -> None:
    half, root = np.array(0.5, np.float32), np.array(np.sqrt(2), np.float32)
    nodes = [
        node("Div", "x root", "a"),
        node("Erf", "a", "b"),
        node("Add", "b one", "c"),
        node("Mul", "x c", "d"),
        node("Mul", "d half", "y"),
    ]
    in_parts = imported(nodes, {"half": half, "root": root, "one": np.array(1, np.float32)})
    for network in (in_parts, imported([node("Gelu", "x", "y")])):
        assert optimised(network, tmp_path / "made.onnx") == {"com.microsoft:Gelu": 1}
        agree(network, 5e-6)


def layer_normalization() -> Model:
    numbers = {"g": np.linspace(0.5, 2, 5, dtype=np.float32), "b": np.arange(5, dtype=np.float32)}
    return imported([node("LayerNormalization", "x g b", "y")], numbers)


def test_a_layer_normalization_is_one_operator_of_the_engine(tmp_path: Path) -> None:
    found = optimised(layer_normalization(), tmp_path / "made.onnx")
    assert found == {":LayerNormalization": 1}


def test_a_layer_normalization_is_as_exact_for_numbers_with_a_large_mean() -> None:
    network, x = layer_normalization(), 1000 + normal(4, 5)
    (found,), (wanted,) = (computed(e, network, [x]) for e in (onnxruntime(), reference()))
    np.testing.assert_allclose(found, wanted, rtol=0, atol=2e-3)


def written(graph: OnnxGraph, pattern: Any, names: Iterator[str]) -> str:
    """The pattern in a graph; each place of "x" takes the next name."""
    if isinstance(pattern, float):
        return graph.real(pattern)
    if pattern == "x":
        return next(names)
    kind, *parts = pattern
    return graph.node(kind, [written(graph, part, names) for part in parts])[0]


@pytest.mark.parametrize("normalizes", [False, True])
def test_an_error_function_has_the_same_x_in_all_places(*, normalizes: bool) -> None:
    graph, pattern = OnnxGraph(normalizes=normalizes), _ERF[normalizes]
    assert error_function_of(graph, written(graph, pattern, repeat("x"))) == "x"
    places = _count(pattern)
    for other in range(places):
        names = iter(["z" if at == other else "x" for at in range(places)])
        assert error_function_of(graph, written(graph, pattern, names)) is None


def _count(pattern: Any) -> int:
    return int(pattern == "x") + sum(map(_count, pattern[1:] if isinstance(pattern, tuple) else ()))


def test_a_hard_sigmoid_is_one_operator() -> None:
    network = imported([node("HardSigmoid", "x", "y", alpha=0.3, beta=0.6)])
    assert operators_of(network) == {"HardSigmoid": 1}
    agree(network, 1e-6)


def test_what_only_looks_like_it_stays_as_it_is() -> None:
    bounds = {"low": np.array(0, np.float32), "high": np.array(2, np.float32)}
    nodes = [node("Mul", "x high", "a"), node("Add", "a high", "b"), node("Max", "b low", "c")]
    network = imported([*nodes, node("Min", "c high", "y")], bounds)
    assert "HardSigmoid" not in operators_of(network)
    agree(network, 1e-6)


def normalised(order: tuple[OperationType, OperationType]) -> Model:
    """Convolutions with an image between them that is scaled and moved by channel, as in DenseNet."""
    chain = Chain((1, 3, 8, 8))
    chain.transpose(0, 2, 3, 1)
    first = chain.convolution(16)
    axis = chain.builder.scalar(3)
    chain.then(OperationType.CONCATENATION, (1, 8, 8, 32), first, axis)
    zero, one = chain.builder.scalar(0), chain.builder.scalar(1)
    chain.then(order[0], chain.shape, chain.weights(32), zero)
    chain.then(order[1], chain.shape, chain.weights(32), one)
    chain.convolution(16)
    chain.transpose(0, 3, 1, 2, last=True)
    return chain.build()


def test_what_is_scaled_and_moved_by_channel_is_normalised() -> None:
    network = normalised((OperationType.MUL, OperationType.ADD))
    found = operators_of(network)
    assert (found["BatchNormalization"], found["Mul"], found["Add"]) == (1, 0, 0)
    same_as_the_reference(network)


def test_what_is_moved_and_then_scaled_stays_as_it_is() -> None:
    network = normalised((OperationType.ADD, OperationType.MUL))
    assert "BatchNormalization" not in operators_of(network)
    same_as_the_reference(network)


def same_as_the_reference(network: Model) -> None:
    x = normal(1, 3, 8, 8)
    (found,), (wanted,) = (computed(e, network, [x]) for e in (onnxruntime(), reference()))
    np.testing.assert_allclose(found, wanted, rtol=1e-4, atol=1e-3)
