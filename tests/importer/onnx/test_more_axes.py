"""Tensors of more than four axes: what is imported runs, the rest is refused with node, rank and rule."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import nnburst
from importer.onnx.graphs import Array, model, node, normal, value
from importer.tflite.running import SIGNATURES, Runner
from nnburst.hal.enums import OperationType
from nnburst.hal.errors import InvalidArgument
from nnburst.hal.signature import Signature
from nnburst.importer.subgraph import MOST_AXES, UP_TO_FOUR_AXES

SHAPES = [(2, 3, 2, 2, 3), (1, 1, 2, 1, 3), (1, 2, 1, 3, 2, 2)]
COPIED: list[tuple[str, dict[str, Any]]] = [
    ("Identity", {}),
    ("Dropout", {}),
    ("Cast", {"to": 1}),
    ("Clip", {}),
    ("Split", {"num_outputs": 1, "axis": 1}),
]
REFUSED = [
    ("Relu", "RELU"),
    ("Sigmoid", "LOGISTIC"),
    ("Tanh", "TANH"),
    ("Floor", "FLOOR"),
    ("Ceil", "FLOOR"),
]
#: Every operator of one input and no more; some have no operation in NNAPI at all.
UNARY = (
    "Abs Ceil Celu Cos Elu Erf Exp Floor Gelu HardSigmoid HardSwish LeakyRelu Log Mish Neg Reciprocal Relu"
    " Round Selu Sigmoid Sign Sin Softmax Softplus Softsign Sqrt Swish Tanh ThresholdedRelu ReduceMax"
    " ReduceMean ReduceSum GlobalAveragePool Transpose Flatten"
)


def one_node(operator: str, shape: tuple[int, ...], **attributes: Any) -> Any:
    made = node(operator, "x", "y", name="the_node", **attributes)
    return model([made], [value("x", "f4", shape)], [value("y", "f4", None)], opset=22)


def result(made: Any, x: Array) -> Array:
    return Runner(nnburst.load(made.SerializeToString())).run([x])[0]


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize(("operator", "attributes"), COPIED)
def test_an_input_that_is_an_output_unchanged_may_have_any_number_of_axes(
    operator: str, attributes: dict[str, Any], shape: tuple[int, ...]
) -> None:
    x = normal(*shape)
    np.testing.assert_array_equal(result(one_node(operator, shape, **attributes), x), x)


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize(("operator", "operation"), REFUSED)
def test_an_operation_of_up_to_four_axes_is_refused_by_node_rank_and_rule(
    operator: str, operation: str, shape: tuple[int, ...]
) -> None:
    with pytest.raises(InvalidArgument) as caught:
        nnburst.load(one_node(operator, shape).SerializeToString(), as_graph=False)
    assert f"node 0 'the_node' ({operator}) cannot be imported" in str(caught.value)
    rule = f"NNAPI's {operation} takes up to 4 axes, its input has {len(shape)}: {list(shape)}"
    assert rule in str(caught.value)


def test_an_input_that_is_reshaped_is_refused_by_the_output_that_wants_it() -> None:
    nodes = [node("Reshape", "x s", "y")]
    shape = {"s": np.array([6, 4], np.int64)}
    made = model(nodes, [value("x", "f4", (2, 3, 1, 2, 2))], [value("y", "f4", None)], shape)
    with pytest.raises(InvalidArgument, match=r"output 'y' .* RESHAPE takes up to 4 axes, .* 5"):
        nnburst.load(made.SerializeToString(), as_graph=False)


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("operator", UNARY.split())
def test_an_operator_is_refused_or_valid_and_right(operator: str, shape: tuple[int, ...]) -> None:
    from onnx.reference import ReferenceEvaluator

    made = one_node(operator, shape)
    x = np.abs(normal(*shape)) + np.float32(0.1)
    try:
        imported = nnburst.load(made.SerializeToString(), as_graph=False)
    except InvalidArgument as error:
        refused = str(error)
    else:
        [expected] = ReferenceEvaluator(made).run(None, {"x": x})
        found = Runner(imported).run([x])[0]
        np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-5)
        return
    assert "'the_node'" in refused or "output 'y'" in refused


def test_operations_of_up_to_four_axes_are_those_whose_rules_say_so() -> None:
    """Of most the signature says so; of the others what the signature or the shape rule computes."""
    limited = {kind for kind, signature in SIGNATURES.items() if _most(signature) == MOST_AXES}
    others = "ADD SUB MUL DIV BATCH_MATMUL DEPTH_TO_SPACE SPACE_TO_DEPTH"
    assert limited | {OperationType[name] for name in others.split()} == set(UP_TO_FOUR_AXES)


def _most(signature: Signature) -> int:
    return max((max(form.inputs[0].rank, default=0) for form in signature.forms), default=0)
