"""Nodes of constants are computed when a file is read, as onnx's own evaluator computes them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import nnburst
from importer.onnx.graphs import Array, TensorProto, model, node, value
from importer.tflite.running import Runner


def sum_with(nodes: list[Any], constants: dict[str, Array], shape: tuple[int, ...]) -> Array:
    """By a driver's kernels: the known tensor `k`, added to zeros."""
    cast = [node("Cast", "k", "f", to=TensorProto.FLOAT), node("Add", "x f", "y")]
    made = model([*nodes, *cast], [value("x", "f4", shape)], [value("y", "f4", shape)], constants)
    imported = nnburst.load(made.SerializeToString(), as_graph=False)
    assert len(imported.model.main.operations) == 1  # the Add
    (found,) = Runner(imported).run([np.zeros(shape, np.float32)])
    return found


@pytest.mark.parametrize("names", ["a b", "a b c", "c a", "b b", "a"])
@pytest.mark.parametrize(
    ("operator", "function"), [("Max", np.maximum), ("Min", np.minimum), ("Sum", np.add)]
)
def test_constants_of_different_shapes_are_broadcast(
    operator: str, function: Any, names: str
) -> None:
    constants = {
        "a": np.array([1, 5, 3], np.float32),
        "b": np.array([[2], [4]], np.float32),
        "c": np.array(3.5, np.float32),
    }
    expected, *others = (constants[name] for name in names.split())
    for other in others:
        expected = function(expected, other)
    found = sum_with([node(operator, names, "k")], constants, (2, 3))
    np.testing.assert_array_equal(found, np.broadcast_to(expected, (2, 3)))


@pytest.mark.parametrize("number", [0, 3])
def test_non_zero_of_a_scalar_is_its_index_if_it_is_not_0(number: int) -> None:
    """As onnxruntime computes it: of one dimension."""
    nodes = [node("NonZero", "c", "n"), node("Shape", "n", "k")]
    found = sum_with(nodes, {"c": np.array(number, np.float32)}, (2,))
    assert found.tolist() == [1, number != 0]


@pytest.mark.parametrize("kind", [np.int32, np.int64])
def test_integers_to_negative_powers_are_cut_to_integers(kind: type[np.generic]) -> None:
    constants = {
        "c": np.array([1, 2, -1, -1, 3, 0], kind),
        "e": np.array([-1, -1, -3, -2, 2, 4], np.int64),
    }
    found = sum_with([node("Pow", "c e", "k")], constants, (6,))
    assert found.tolist() == [1, 0, -1, 1, 9, 0]


def test_the_least_integer_is_divided_towards_0() -> None:
    constants = {"c": np.array([-(2**31), 7, -7], np.int32), "d": np.array([3, -2, 2], np.int32)}
    found = sum_with([node("Div", "c d", "k")], constants, (3,))
    assert found.tolist() == [np.float32(-715827882), -3, -3]
