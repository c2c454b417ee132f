"""Which files can be read: versions of operators, loops, sequences, and what is refused with the way out."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import nnburst
from importer.onnx.graphs import Array, helper, model, node, normal, onnx, value
from importer.tflite.running import Runner
from nnburst.hal.enums import OperationType
from nnburst.hal.errors import InvalidArgument
from shared_drivers import connect_to

_O = OperationType
NEWEST = int(onnx.defs.onnx_opset_version())


def run(made: Any, *inputs: Array) -> list[Array]:
    return Runner(nnburst.load(made.SerializeToString())).run(list(inputs))


def softmax(opset: int) -> Any:
    """A function whose meaning changed, between two that did not."""
    nodes = [node("Relu", "x", "a"), node("Softmax", "a", "b", axis=1), node("Neg", "b", "y")]
    ends = [value(name, "f4", (2, 3, 4)) for name in "xy"]
    return model(nodes, ends[:1], ends[1:], opset=opset)


@pytest.mark.parametrize("opset", range(7, NEWEST + 1))
def test_operators_of_every_version_mean_what_they_meant_then(opset: int) -> None:
    x = normal(2, 3, 4)
    a = np.maximum(x, 0)
    axes = (1, 2) if opset < 13 else (1,)  # joined, until version 13
    parts = np.exp(a)
    wanted = -parts / parts.sum(axis=axes, keepdims=True)
    np.testing.assert_allclose(run(softmax(opset), x)[0], wanted, rtol=1e-5, atol=1e-6)


def test_older_operators_are_refused_with_their_version() -> None:
    with pytest.raises(InvalidArgument, match="operators of version 6, expected 7 or later"):
        nnburst.load(softmax(6).SerializeToString(), as_graph=False)


def loop(rounds: Array | None) -> Any:
    """y = x times 2, as often as the loop goes round."""
    body = helper.make_graph(
        [node("Add", "v v", "w"), node("Identity", "c", "d")],
        "body",
        [value("i", "i8", ()), value("c", "?", ()), value("v", "f4", (3,))],
        [value("d", "?", ()), value("w", "f4", (3,))],
    )
    inputs = [value("x", "f4", (3,))]
    constants = {"n": rounds} if rounds is not None else {}
    if rounds is None:
        inputs.append(value("n", "i8", ()))
    made = node("Loop", "n - x", "y", body=body)
    return model([made], inputs, [value("y", "f4", (3,))], constants)


def test_a_loop_of_known_rounds_stands_where_it_is() -> None:
    made = loop(np.array(3, np.int64))
    x = normal(3)
    kinds = [o.type for o in nnburst.load(made.SerializeToString()).model.main.operations]
    assert kinds == [_O.ADD] * 3
    np.testing.assert_allclose(run(made, x)[0], 8 * x)


@pytest.mark.parametrize(
    ("rounds", "reason"),
    [(None, "its rounds are computed"), (np.array(10**9, np.int64), "it has more than")],
)
def test_a_loop_of_other_rounds_is_refused_with_the_way_out(
    rounds: Array | None, reason: str
) -> None:
    with pytest.raises(InvalidArgument, match=rf"node 0 \(Loop\).*{reason}.*as_graph=True"):
        nnburst.load(loop(rounds).SerializeToString(), as_graph=False)


def gru(steps: int) -> Any:
    constants = {
        "w": normal(1, 6, 3, seed=1),
        "r": normal(1, 6, 2, seed=2),
        "b": normal(1, 12, seed=3),
    }
    return model(
        [node("GRU", "x w r b", "y h", hidden_size=2)],
        [value("x", "f4", (steps, 1, 3))],
        [value("y", "f4", (steps, 1, 1, 2)), value("h", "f4", (1, 1, 2))],
        constants,
    )


def test_a_gru_is_unrolled_up_to_its_bound() -> None:
    from onnx.reference import ReferenceEvaluator

    made, x = gru(64), normal(64, 1, 3)
    wanted = ReferenceEvaluator(made).run(None, {"x": x})
    for found, expected in zip(run(made, x), wanted, strict=True):
        np.testing.assert_allclose(found.reshape(-1), expected.reshape(-1), rtol=1e-4, atol=1e-5)


def test_a_longer_gru_is_refused_with_the_way_out() -> None:
    with pytest.raises(
        InvalidArgument, match=r"\(GRU\).*65 steps, unrolled are at most 64.*as_graph=True"
    ):
        nnburst.load(gru(65).SerializeToString(), as_graph=False)


def dynamically_quantised() -> Any:
    """The operators that dynamic quantisation writes for a product of matrices."""
    nodes = [
        node("DynamicQuantizeLinear", "x", "q s z"),
        node("MatMulInteger", "q w z", "i"),
        node("Cast", "i", "f", to=1),
        node("Mul", "f s", "y"),
    ]
    weights = np.arange(-6, 6, dtype=np.int8).reshape(4, 3)
    ends = [value("x", "f4", (2, 4)), value("y", "f4", (2, 3))]
    return model(nodes, ends[:1], ends[1:], {"w": weights})


def test_dynamic_quantisation_is_refused_and_runs_as_a_graph() -> None:
    pytest.importorskip("onnxruntime", reason="runs the graph")
    content = dynamically_quantised().SerializeToString()
    with pytest.raises(InvalidArgument, match=r"\(DynamicQuantizeLinear\).*as_graph=True"):
        nnburst.load(content, as_graph=False)
    x = normal(2, 4)
    with (
        connect_to("onnxruntime") as device,
        device.prepare(nnburst.load(content, as_graph=True)) as prepared,
        prepared.open_burst() as burst,
    ):
        (y,) = burst.execute([x]).outputs
    wanted = x @ np.arange(-6, 6, dtype=np.float32).reshape(4, 3)
    assert y is not None
    np.testing.assert_allclose(y, wanted, atol=4 * 6 * np.ptp(x) / 255)


@pytest.mark.parametrize(
    ("operator", "nodes"),
    [
        ("ConvInteger", [node("ConvInteger", "x w", "y")]),
        ("MatMulInteger", [node("MatMulInteger", "x w", "y")]),
    ],
)
def test_products_of_integers_are_refused_with_the_way_out(operator: str, nodes: list[Any]) -> None:
    shape = (1, 2, 3, 3) if operator == "ConvInteger" else (2, 4)
    weights = np.ones((1, 2, 3, 3) if operator == "ConvInteger" else (4, 3), np.int8)
    out = (1, 1, 1, 1) if operator == "ConvInteger" else (2, 3)
    made = model(nodes, [value("x", "u1", shape)], [value("y", "i4", out)], {"w": weights})
    with pytest.raises(InvalidArgument, match=rf"node 0 \({operator}\).*as_graph=True"):
        nnburst.load(made.SerializeToString(), as_graph=False)
