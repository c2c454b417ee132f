"""Small networks that the provider is given, with inputs for them."""

from __future__ import annotations

from typing import Any

import numpy as np
from onnx import GraphProto, NodeProto, ValueInfoProto, helper, numpy_helper
from onnx import TensorProto as T

Feeds = dict[str, np.ndarray[Any, np.dtype[Any]]]

RANDOM = np.random.default_rng(5)


def value(name: str, shape: Any, element: int = T.FLOAT) -> ValueInfoProto:
    return helper.make_tensor_value_info(name, element, shape)


def reals(*shape: int) -> np.ndarray[Any, np.dtype[Any]]:
    return RANDOM.standard_normal(shape).astype(np.float32)


def network(
    nodes: list[NodeProto],
    inputs: list[ValueInfoProto],
    outputs: list[ValueInfoProto],
    constants: Feeds | None = None,
    stated: list[ValueInfoProto] | None = None,
) -> bytes:
    """The file; `stated` are shapes of inner tensors."""
    initializers = [
        numpy_helper.from_array(array, name) for name, array in (constants or {}).items()
    ]
    graph = helper.make_graph(nodes, "network", inputs, outputs, initializers, value_info=stated)
    opsets = [helper.make_opsetid("", 17)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=8).SerializeToString()


def layers(rows: int | str = 2) -> tuple[bytes, Feeds]:
    """Two products; the first weights are large enough to lie outside of the file, the bias is not."""
    nodes = [
        helper.make_node("Gemm", ["x", "w", "b"], ["h"]),
        helper.make_node("Relu", ["h"], ["r"]),
        helper.make_node("MatMul", ["r", "v"], ["y"]),
    ]
    constants = {"w": reals(32, 64), "b": reals(64), "v": reals(64, 3)}
    made = network(nodes, [value("x", [rows, 32])], [value("y", [rows, 3])], constants)
    return made, {"x": reals(2, 32)}


def scalars() -> tuple[bytes, Feeds]:
    """Inputs and outputs of rank 0, integers of 64 bits and truth values."""
    nodes = [
        helper.make_node("Add", ["a", "b"], ["sum"]),
        helper.make_node("Greater", ["a", "b"], ["more"]),
        helper.make_node("Cast", ["sum"], ["real"], to=T.DOUBLE),
    ]
    inputs = [value("a", [], T.INT64), value("b", [3], T.INT64)]
    outputs = [value("sum", [3], T.INT64), value("more", [3], T.BOOL), value("real", [3], T.DOUBLE)]
    return network(nodes, inputs, outputs), {"a": np.array(7), "b": np.array([1, 7, 9])}


def mean() -> tuple[bytes, Feeds]:
    """An output of rank 0."""
    nodes = [helper.make_node("ReduceMean", ["x"], ["y"], keepdims=0)]
    return network(nodes, [value("x", [4, 5])], [value("y", [])]), {"x": reals(4, 5)}


def optional() -> tuple[bytes, Feeds]:
    """An optional input that is left out, and attributes of most kinds."""
    nodes = [
        helper.make_node("Clip", ["x", "", "most"], ["c"]),
        helper.make_node("Pad", ["c", "pads"], ["p"], mode="reflect"),
        helper.make_node("LeakyRelu", ["p"], ["l"], alpha=0.25),
        helper.make_node("Transpose", ["l"], ["y"], perm=[1, 0]),
    ]
    constants = {"most": np.array(0.5, np.float32), "pads": np.array([1, 1, 1, 1])}
    made = network(nodes, [value("x", [3, 4])], [value("y", [6, 5])], constants)
    return made, {"x": reals(3, 4)}


def _branch(name: str, weights: str) -> GraphProto:
    """x · weights; the branch has a large constant of its own, and reads one of the graph around it."""
    nodes = [
        helper.make_node("MatMul", ["x", weights], [f"{name}_product"]),
        helper.make_node("Add", [f"{name}_product", f"{name}_bias"], [name]),
    ]
    bias = numpy_helper.from_array(reals(2, 300), f"{name}_bias")
    return helper.make_graph(nodes, name, [], [value(name, [2, 300])], [bias])


def branches() -> tuple[bytes, Feeds]:
    """An If whose condition is an input."""
    node = helper.make_node(
        "If", ["c"], ["y"], then_branch=_branch("yes", "w"), else_branch=_branch("no", "v")
    )
    constants = {"w": reals(8, 300), "v": reals(8, 300)}
    inputs = [value("c", [], T.BOOL), value("x", [2, 8])]
    made = network([node], inputs, [value("y", [2, 300])], constants)
    return made, {"c": np.array(True), "x": reals(2, 8)}


def loop() -> tuple[bytes, Feeds]:
    """A Loop that doubles as often as an input asks for, and lists what it had."""
    nodes = [
        helper.make_node("Add", ["v", "v"], ["v_out"]),
        helper.make_node("Identity", ["go"], ["go_out"]),
        helper.make_node("Identity", ["v_out"], ["had"]),
    ]
    body = helper.make_graph(
        nodes,
        "body",
        [value("i", [], T.INT64), value("go", [], T.BOOL), value("v", [2])],
        [value("go_out", [], T.BOOL), value("v_out", [2]), value("had", [2])],
    )
    node = helper.make_node("Loop", ["n", "", "x"], ["y", "all"], body=body)
    inputs = [value("n", [], T.INT64), value("x", [2])]
    made = network([node], inputs, [value("y", [2]), value("all", ["n", 2])])
    return made, {"n": np.array(5), "x": reals(2)}


def indices() -> tuple[bytes, Feeds]:
    """NonZero: how long its output is depends on the values, and it is longer than what is tried first."""
    nodes = [helper.make_node("NonZero", ["x"], ["y"])]
    made = network(nodes, [value("x", [50, 60])], [value("y", [2, "n"], T.INT64)])
    return made, {"x": reals(50, 60)}


def through_strings() -> tuple[bytes, Feeds]:
    """Numbers that become strings and numbers again in the middle, which a driver has no type for."""
    nodes = [
        helper.make_node("Round", ["x"], ["rounded"]),
        helper.make_node("Cast", ["rounded"], ["text"], to=T.STRING),
        helper.make_node("Cast", ["text"], ["number"], to=T.FLOAT),
        helper.make_node("Add", ["number", "rounded"], ["sum"]),
        helper.make_node("Mul", ["sum", "w"], ["y"]),
    ]
    made = network(nodes, [value("x", [4])], [value("y", [4])], {"w": reals(4)})
    return made, {"x": 10 * reals(4)}


def squeezed() -> bytes:
    """An output whose rank only a run finds out, by the length of x and that of the list of axes a."""
    nodes = [
        helper.make_node("Squeeze", ["x", "a"], ["s"]),
        helper.make_node("Mul", ["s", "s"], ["y"]),
    ]
    inputs = [value("x", ["n", "m"]), value("a", ["k"], T.INT64)]
    return network(nodes, inputs, [value("y", None)])


def either_rank() -> bytes:
    """An If whose branches have a scalar and a row."""
    scalar = helper.make_graph(
        [helper.make_node("ReduceSum", ["x"], ["p"], keepdims=0)], "yes", [], [value("p", [])]
    )
    row = helper.make_graph(
        [helper.make_node("Add", ["x", "x"], ["q"])], "no", [], [value("q", [3])]
    )
    node = helper.make_node("If", ["c"], ["y"], then_branch=scalar, else_branch=row)
    return network([node], [value("c", [], T.BOOL), value("x", [3])], [value("y", None)])


def ranks_of_any() -> bytes:
    """The sum of two tensors of any rank, which the session gives out before and behind another node."""
    nodes = [
        helper.make_node("Add", ["x", "z"], ["sum"]),
        helper.make_node("Neg", ["sum"], ["y"]),
    ]
    outputs = [value("sum", None), value("y", None)]
    return network(nodes, [value("x", None), value("z", None)], outputs)


def misstated() -> bytes:
    """Twice what comes out of strings, which has two numbers by the file, and as many as x in a run."""
    nodes = [
        helper.make_node("Cast", ["x"], ["text"], to=T.STRING),
        helper.make_node("Reshape", ["text", "shape"], ["folded"]),
        helper.make_node("Cast", ["folded"], ["number"], to=T.FLOAT),
        helper.make_node("Add", ["number", "number"], ["y"]),
    ]
    inputs = [value("x", ["n"]), value("shape", ["rank"], T.INT64)]
    stated = [value("folded", [2], T.STRING), value("number", [2])]
    return network(nodes, inputs, [value("y", None)], stated=stated)


def long_names() -> bytes:
    """Twice x: names of an input and an output that are longer than a page."""
    x, y = "x" * 5000, "y" * 5000
    return network([helper.make_node("Add", [x, x], [y])], [value(x, [3])], [value(y, [3])])


ALL = (layers, scalars, mean, optional, branches, loop, indices, through_strings)
