"""Nodes that NNAPI cannot express are refused by number, name and reason; the file becomes a whole graph."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import nnburst
from importer.onnx.graphs import TensorProto, helper, model, node, onnx, value
from nnburst.hal.errors import InvalidArgument
from nnburst.importer.tensors import Refused


def refusal_of(made: Any) -> str:
    """The reason why a file is not imported by operations, which makes it a whole graph."""
    content = made.SerializeToString()
    with pytest.raises(Refused):
        nnburst.load(content, as_graph=False)
    imported = nnburst.load(content)
    assert len(imported.model.main.operations) == 1
    return imported.refusal


def sparse() -> Any:
    """The numbers 0 and 1."""
    numbers, at = np.ones(1, np.float32), np.ones(1, np.int64)
    return helper.make_sparse_tensor(
        onnx.numpy_helper.from_array(numbers), onnx.numpy_helper.from_array(at), [2]
    )


@pytest.mark.parametrize(
    ("kind", "name"),
    [(TensorProto.INT4, "int4"), (TensorProto.UINT4, "uint4"), (TensorProto.BFLOAT16, "bfloat16"),
     (TensorProto.FLOAT8E4M3FN, "float8e4m3fn"), (TensorProto.STRING, "string")],
)  # fmt: skip
@pytest.mark.parametrize("in_node", [False, True])
def test_a_tensor_of_a_type_that_nnapi_lacks(kind: int, name: str, in_node: bool) -> None:
    values = [b"a", b"b"] if name == "string" else [1, 2]
    tensor = helper.make_tensor("w", kind, (2,), values)
    # Their readers may be of any kind: the tensor is refused first.
    nodes = [node("Cast", "w", "f", to=TensorProto.FLOAT), node("Add", "x f", "y")]
    if in_node:
        nodes.insert(0, node("Constant", "", "w", value=tensor))
    made = model(nodes, [value("x", "f4", (2,))], [value("y", "f4", (2,))])
    if not in_node:
        made.graph.initializer.append(tensor)
    assert refusal_of(made) == (
        f"node 0 ({nodes[0].op_type}) cannot be imported:"
        f" tensor 'w' is {name}, which NNAPI does not have"
    )


@pytest.mark.parametrize("kind", [0, 99])
def test_a_tensor_of_no_type_of_onnx_is_no_intact_file(kind: int) -> None:
    made = model([node("Add", "x w", "y")], [value("x", "f4", (2,))], [value("y", "f4", (2,))],
                 {"w": np.ones(2, np.float32)})  # fmt: skip
    made.graph.initializer[0].data_type = kind
    with pytest.raises(InvalidArgument, match="not an intact file: tensor 'w' has the unknown"):
        nnburst.load(made.SerializeToString())


@pytest.mark.parametrize(
    ("nodes", "reason"),
    [
        (
            [node("Cast", "c", "f", to=TensorProto.BFLOAT16)],
            "a cast to bfloat16 is not supported",
        ),
        (
            [node("Constant", "", "f", sparse_value=sparse())],
            "a sparse constant is not supported",
        ),
        (
            [node("Constant", "", "s", value_strings=["1", "2"]), node("Cast", "s", "f", to=1)],
            "a constant must be a tensor of numbers",
        ),
    ],
    ids=["bfloat16", "sparse", "strings"],
)
def test_a_node_of_constants_that_nnapi_cannot_express(nodes: list[Any], reason: str) -> None:
    rest = [node("Cast", "f", "g", to=TensorProto.FLOAT), node("Add", "x g", "y")]
    made = model([*nodes, *rest], [value("x", "f4", (2,))], [value("y", "f4", (2,))],
                 {"c": np.ones(2, np.float32)})  # fmt: skip
    assert refusal_of(made) == f"node 0 ({nodes[0].op_type}) cannot be imported: {reason}"


def test_a_batch_normalisation_with_factors_for_each_element_becomes_a_whole_graph() -> None:
    constants = {name: np.ones((3, 2), np.float32) for name in "sbmv"}
    nodes = [node("BatchNormalization", "x s b m v", "y", spatial=0)]
    made = model(
        nodes, [value("x", "f4", (1, 3, 2))], [value("y", "f4", (1, 3, 2))], constants, opset=8
    )
    assert refusal_of(made) == (
        "node 0 (BatchNormalization) cannot be imported: spatial is 0, expected one factor for a channel"
    )


@pytest.mark.parametrize("kind", ["Elu", "Selu", "Celu"])
def test_an_exponential_part_whose_sign_is_turned_becomes_a_whole_graph(kind: str) -> None:
    made = model(
        [node(kind, "x", "y", alpha=-0.5)], [value("x", "f4", (2,))], [value("y", "f4", (2,))]
    )
    assert "alpha is -0.5, expected" in refusal_of(made)
