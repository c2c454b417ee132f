"""Nodes of a file in another order than they are computed in, as tools that edit graphs leave them."""

from __future__ import annotations

import numpy as np
import pytest

import nnburst
from importer.onnx.graphs import helper, model, node, value
from importer.tflite.running import Runner
from nnburst.hal.errors import InvalidArgument


def test_nodes_may_be_in_any_order() -> None:
    inner = helper.make_graph(
        [node("Neg", "a", "b"), node("Add", "y x", "a")], "branch", [], [value("b", "f4", (2,))]
    )
    nodes = [
        node("Mul", "t z", "w"),
        node("If", "yes", "z", then_branch=inner, else_branch=inner),
        node("Relu", "x", "y"),
        node("Add", "y y", "t"),
        node("Sqrt", "t", "not needed"),
    ]
    made = model(nodes, [value("x", "f4", (2,))], [value("w", "f4", (2,))], {"yes": np.array(True)})
    imported = nnburst.load(made.SerializeToString())
    (found,) = Runner(imported).run([np.array([3, -1], np.float32)])
    assert found.tolist() == [-36, 0]


def test_nodes_in_a_circle_are_refused() -> None:
    nodes = [node("Add", "x b", "a"), node("Neg", "a", "b"), node("Relu", "x", "y")]
    made = model(nodes, [value("x", "f4", (2,))], [value("y", "f4", (2,)), value("b", "f4", (2,))])
    with pytest.raises(
        InvalidArgument, match=r"node 0 \(Add\): .*'b' is read before it is written"
    ):
        nnburst.load(made.SerializeToString(), as_graph=False)
