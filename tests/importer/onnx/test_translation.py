from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import nnburst
from importer.onnx.graphs import TYPES, Array, helper, model, node, normal, onnx, value
from importer.tflite.running import Runner
from nnburst.hal.enums import OperationType
from nnburst.hal.errors import InvalidArgument

_O = OperationType


def run(made: Any, *inputs: Array, **how: Any) -> list[Array]:
    return Runner(nnburst.load(made.SerializeToString(), **how)).run(list(inputs))


def kinds(made: Any) -> list[OperationType]:
    imported = nnburst.load(made.SerializeToString())
    return [OperationType(operation.type) for operation in imported.model.main.operations]


def expected(made: Any, *inputs: Array) -> list[Array]:
    from onnx.reference import ReferenceEvaluator

    names = [info.name for info in made.graph.input]
    return [
        np.asarray(a)
        for a in ReferenceEvaluator(made).run(None, dict(zip(names, inputs, strict=True)))
    ]


def image_model(nodes: list[Any], constants: dict[str, Array], outputs: list[Any]) -> Any:
    return model(nodes, [value("x", "f4", (1, 3, 6, 6))], outputs, constants)


def test_images_are_turned_once_on_the_way_in_and_once_on_the_way_out() -> None:
    made = image_model(
        [
            node("Conv", "x w", "a", pads=[1, 1, 1, 1]),
            node("Relu", "a", "b"),
            node("Conv", "b v", "c", pads=[1, 1, 1, 1], group=4),
            node("Add", "c b", "d"),
            node("MaxPool", "d", "y", kernel_shape=[2, 2], strides=[2, 2]),
        ],
        {"w": normal(4, 3, 3, 3), "v": normal(4, 1, 3, 3, seed=1)},
        [value("y", "f4", (1, 4, 3, 3))],
    )
    assert kinds(made).count(_O.TRANSPOSE) == 2
    x = normal(1, 3, 6, 6, seed=2)
    np.testing.assert_allclose(run(made, x)[0], expected(made, x)[0], rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(
    "pool",
    [
        {"op": "AveragePool", "pads": [1, 1, 1, 1], "count_include_pad": 1},
        {"op": "MaxPool", "pads": [3, 3, 0, 0]},  # a window lies in padding alone
    ],
)
def test_an_image_that_is_padded_before_its_pool_is_turned_once(pool: dict[str, Any]) -> None:
    attributes = dict(pool)
    made = image_model(
        [node(attributes.pop("op"), "x", "y", kernel_shape=[3, 3], strides=[3, 3], **attributes)],
        {},
        [value("y", "f4", (1, 3, *[3 if pool["pads"][0] == 3 else 2] * 2))],
    )
    assert kinds(made).count(_O.TRANSPOSE) == 2  # the second one turns the result back


def test_transposes_that_undo_each_other_move_nothing() -> None:
    made = image_model(
        [node("Transpose", "x", "a", perm=[0, 2, 3, 1]), node("Transpose", "a", "b", perm=[0, 3, 1, 2]),
         node("Relu", "b", "y")],
        {},
        [value("y", "f4", (1, 3, 6, 6))],
    )  # fmt: skip
    assert kinds(made) == [_O.RELU]


def test_a_channel_shuffle_of_five_axes_is_one_transpose_inside() -> None:
    made = image_model(
        [
            node("Conv", "x w", "a"),
            node("Reshape", "a s", "b"),
            node("Transpose", "b", "c", perm=[0, 2, 1, 3, 4]),
            node("Reshape", "c t", "d"),
            node("Conv", "d v", "y"),
        ],
        {
            "w": normal(6, 3, 1, 1),
            "v": normal(2, 6, 1, 1),
            "s": np.array([0, 2, 3, 6, 6], np.int64),
            "t": np.array([1, -1, 6, 6], np.int64),
        },
        [value("y", "f4", (1, 2, 6, 6))],
    )
    assert kinds(made).count(_O.TRANSPOSE) == 3
    x = normal(1, 3, 6, 6)
    np.testing.assert_allclose(run(made, x)[0], expected(made, x)[0], rtol=1e-4, atol=1e-5)


def test_computed_shapes_are_known_when_the_input_is() -> None:
    made = image_model(
        [
            node("Shape", "x", "s"),
            node("Gather", "s zero", "n", axis=0),
            node("Unsqueeze", "n axes", "m"),
            node("Concat", "m rest", "t", axis=0),
            node("Reshape", "x t", "y"),
        ],
        {
            "zero": np.array(0, np.int64),
            "axes": np.array([0], np.int64),
            "rest": np.array([-1], np.int64),
        },
        [value("y", "f4", (1, 108))],
    )
    assert kinds(made) == [_O.RESHAPE]


def test_integers_of_64_bits_are_32_and_too_large_ones_refused() -> None:
    made = model(
        [node("Add", "x c", "y")], [value("x", "i8", (3,))], [value("y", "i8", (3,))],
        {"c": np.array([1, 2, 3], np.int64)},
    )  # fmt: skip
    assert run(made, np.array([10, 20, 30], np.int32))[0].tolist() == [11, 22, 33]
    wide = model(
        [node("Add", "x c", "y")], [value("x", "i8", (3,))], [value("y", "i8", (3,))],
        {"c": np.array([1, 2, 2**40], np.int64)},
    )  # fmt: skip
    with pytest.raises(
        InvalidArgument, match=r"node 0 .*Add.* does not fit 32 bits.*as_graph=True"
    ):
        nnburst.load(wide.SerializeToString(), as_graph=False)


def test_open_dimensions_are_asked_for_and_taken() -> None:
    made = model(
        [node("Relu", "x", "y")], [value("x", "f4", ("n", 3))], [value("y", "f4", ("n", 3))]
    )
    with pytest.raises(InvalidArgument, match=r"'x' has open dimensions \(n, 3\): give shapes"):
        nnburst.load(made.SerializeToString(), as_graph=False)
    assert run(made, normal(2, 3), shapes={"x": (2, 3)})[0].shape == (2, 3)
    with pytest.raises(InvalidArgument, match=r"shapes\['x'\]: \[2, 4\], the file declares"):
        nnburst.load(made.SerializeToString(), shapes={"x": (2, 4)}, as_graph=False)


def test_an_output_that_is_the_next_input_is_a_state() -> None:
    made = model(
        [node("Add", "x h", "g"), node("Identity", "g", "y")],
        [value("x", "f4", (2,)), value("h", "f4", (2,))],
        [value("y", "f4", (2,)), value("g", "f4", (2,))],
    )
    imported = nnburst.load(made.SerializeToString(), states={"h": "g"})
    assert [(s.name, s.input_index, s.output_index) for s in imported.states] == [("h", 1, 1)]
    with pytest.raises(InvalidArgument, match="states: 'k' from 'g'"):
        nnburst.load(made.SerializeToString(), states={"k": "g"}, as_graph=False)


def test_a_local_function_stands_where_it_is_called() -> None:
    square = helper.make_function(
        "local", "Square", ["a"], ["b"], [node("Mul", "a a", "b")], [helper.make_opsetid("", 21)]
    )
    called = helper.make_node("Square", ["x"], ["y"], domain="local")
    made = model(
        [called],
        [value("x", "f4", (3,))],
        [value("y", "f4", (3,))],
        functions=[square],
        domains=["local"],
    )
    x = normal(3)
    np.testing.assert_allclose(run(made, x)[0], x * x)


@pytest.mark.parametrize("arguments", ["x", "x - high", "x low", "x low -"])
@pytest.mark.parametrize("inner", ["node", "function", "branch"])
def test_an_input_that_a_call_omits_is_omitted_in_the_function(arguments: str, inner: str) -> None:
    """Wherever the function reads it: by a node, by a call of another function, or in a branch."""
    opset = [helper.make_opsetid("", 21), helper.make_opsetid("local", 1)]
    clip = node("Clip", "a low high", "b")
    limit = helper.make_function("local", "Limit", ["a", "low", "high"], ["b"], [clip], opset)
    graph = helper.make_graph([clip], "branch", [], [value("b", "f4", None)])
    true = helper.make_node("Constant", [], ["true"], value_int=1)
    condition = node("Cast", "true", "c", to=TYPES["?"])
    nodes = {
        "node": [clip],
        "function": [helper.make_node("Limit", ["a", "low", "high"], ["b"], domain="local")],
        "branch": [true, condition, node("If", "c", "b", then_branch=graph, else_branch=graph)],
    }[inner]
    called = helper.make_function("local", "Called", ["a", "low", "high"], ["b"], nodes, opset)
    call = node("Called", arguments, "y")
    call.domain = "local"
    made = model(
        [call], [value("x", "f4", (3,))], [value("y", "f4", (3,))],
        {"low": np.array(-1, np.float32), "high": np.array(1, np.float32)},
        functions=[limit, called], domains=["local"],
    )  # fmt: skip
    low = -1 if "low" in arguments else -5
    high = 1 if "high" in arguments else 5
    assert run(made, np.array([-5, 0, 5], np.float32))[0].tolist() == [low, 0, high]


def test_the_branch_of_a_known_condition_is_taken_and_a_computed_one_refused() -> None:
    def branch(operator: str) -> Any:
        return helper.make_graph([node(operator, "x", "z")], "b", [], [value("z", "f4", (3,))])

    chosen = {"then_branch": branch("Neg"), "else_branch": branch("Abs")}
    made = model(
        [node("If", "c", "y", **chosen)], [value("x", "f4", (3,))], [value("y", "f4", (3,))],
        {"c": np.array(True)},
    )  # fmt: skip
    assert kinds(made) == [_O.NEG]
    open_one = model(
        [node("If", "c", "y", **chosen)],
        [value("x", "f4", (3,)), value("c", "?", ())],
        [value("y", "f4", (3,))],
    )
    with pytest.raises(InvalidArgument, match=r"node 0 \(If\) cannot be imported: its condition"):
        nnburst.load(open_one.SerializeToString(), as_graph=False)


def test_what_nnapi_has_not_is_refused_by_number_name_and_reason() -> None:
    made = model(
        [node("Relu", "x", "a"), node("Det", "a", "y", name="the_det")],
        [value("x", "f4", (2, 2))],
        [value("y", "f4", ())],
    )
    with pytest.raises(
        InvalidArgument,
        match=r"node 1 'the_det' \(Det\) cannot be imported: NNAPI has no operation",
    ):
        nnburst.load(made.SerializeToString(), as_graph=False)


def test_quantised_groups_become_quantised_operations() -> None:
    random = np.random.default_rng(0)
    constants = {
        "xs": np.array(0.02, np.float32), "xz": np.array(128, np.uint8),
        "w": random.integers(-127, 128, (4, 3, 3, 3)).astype(np.int8),
        "ws": np.full(4, 0.01, np.float32), "wz": np.zeros(4, np.int8),
        "ys": np.array(0.05, np.float32), "yz": np.array(100, np.uint8),
    }  # fmt: skip
    made = image_model(
        [
            node("QuantizeLinear", "x xs xz", "xq"),
            node("DequantizeLinear", "xq xs xz", "xd"),
            node("DequantizeLinear", "w ws wz", "wd", axis=0),
            node("Conv", "xd wd", "a"),
            node("QuantizeLinear", "a ys yz", "aq"),
            node("DequantizeLinear", "aq ys yz", "y"),
        ],
        constants,
        [value("y", "f4", (1, 4, 4, 4))],
    )
    found = kinds(made)
    assert [kind for kind in found if kind not in (_O.TRANSPOSE, _O.RESHAPE)] == [
        _O.QUANTIZE, _O.CONV_2D, _O.DEQUANTIZE,
    ]  # fmt: skip
    x = normal(1, 3, 6, 6)
    off = np.abs(run(made, x)[0] - expected(made, x)[0]).max()
    assert off <= 0.05 * 1.01  # one step


@pytest.mark.parametrize("by_channel", [False, True])
def test_weights_behind_dequantize_stay_eight_bits(by_channel: bool) -> None:
    stored = np.random.default_rng(1).integers(-127, 128, (8, 3, 3, 3)).astype(np.int8)
    scale = np.linspace(0.01, 0.03, 8, dtype=np.float32)
    constants = {"w": stored, "ws": scale if by_channel else scale[3]}
    made = image_model(
        [node("DequantizeLinear", "w ws", "wd", axis=0), node("Conv", "x wd", "y")],
        constants,
        [value("y", "f4", (1, 8, 4, 4))],
    )
    content = made.SerializeToString()
    imported = nnburst.load(content)
    assert sum(pool.nbytes for pool in imported.pools) <= 1.1 * stored.nbytes + 128
    assert not imported.model.relax_computation_float32_to_float16
    assert nnburst.load(content, exact=False).model.relax_computation_float32_to_float16
    x = normal(1, 3, 6, 6)
    np.testing.assert_allclose(run(made, x)[0], expected(made, x)[0], rtol=1e-4, atol=1e-5)


def transposed(w: Array, b: Array, shape: tuple[int, ...], **attributes: Any) -> Any:
    return model(
        [node("ConvTranspose", "x w b", "y", strides=[2, 2], **attributes)],
        [value("x", "f4", shape)], [value("y", "f4", None)], {"w": w, "b": b},
    )  # fmt: skip


@pytest.mark.parametrize("pads", [[0, 0, 0, 0], [1, 0, 1, 1]])
def test_groups_of_a_transposed_convolution_are_convolved_one_by_one(pads: list[int]) -> None:
    w, b, x = normal(6, 2, 3, 2), normal(6, seed=1), normal(2, 6, 3, 4, seed=2)
    made = transposed(w, b, x.shape, group=3, pads=pads)
    assert kinds(made).count(_O.TRANSPOSE_CONV_2D) == 3
    each = [  # onnx's own evaluator does not take groups of several outputs
        expected(transposed(w[part], b[part], (2, 2, 3, 4), pads=pads), x[:, part])[0]
        for part in (slice(0, 2), slice(2, 4), slice(4, 6))
    ]
    np.testing.assert_allclose(run(made, x)[0], np.concatenate(each, 1), rtol=1e-4, atol=1e-5)


def test_labels_and_other_metadata_come_along() -> None:
    made = model(
        [node("Relu", "x", "y")], [value("x", "f4", (3,))], [value("y", "f4", (3,))],
        metadata={"names": "{0: 'cat'}"},
    )  # fmt: skip
    assert nnburst.load(made.SerializeToString()).metadata["names"] == b"{0: 'cat'}"


def test_a_result_that_is_an_input_or_a_constant_is_copied() -> None:
    made = model(
        [node("Identity", "x", "y"), node("Identity", "c", "z")],
        [value("x", "f4", (3,))],
        [value("y", "f4", (3,)), value("z", "f4", (2,))],
        {"c": np.array([1, 2], np.float32)},
    )
    x = normal(3)
    y, z = run(made, x)
    assert y.tolist() == x.tolist()
    assert z.tolist() == [1, 2]


def test_an_input_that_never_changes_decides_a_branch() -> None:
    def branch(operator: str) -> Any:
        return helper.make_graph([node(operator, "x", "z")], "b", [], [value("z", "f4", (3,))])

    chosen = {"then_branch": branch("Neg"), "else_branch": branch("Abs")}
    made = model(
        [node("Equal", "rate fast", "c"), node("If", "c", "y", **chosen)],
        [value("x", "f4", (3,)), value("rate", "i8", ())],
        [value("y", "f4", (3,))],
        {"fast": np.array(16000, np.int64)},
    )  # fmt: skip
    imported = nnburst.load(made.SerializeToString(), constants={"rate": 16000})
    assert imported.input_names == ("x",)
    assert [OperationType(o.type) for o in imported.model.main.operations] == [_O.NEG]
    with pytest.raises(InvalidArgument, match=r"constants\['speed'\]: not an input of the network"):
        nnburst.load(made.SerializeToString(), constants={"speed": 1}, as_graph=False)
    with pytest.raises(InvalidArgument, match=r"constants\['rate'\] has shape \(2,\)"):
        nnburst.load(made.SerializeToString(), constants={"rate": [1, 2]}, as_graph=False)


def test_options_of_onnx_files_are_refused_for_others() -> None:
    with pytest.raises(InvalidArgument, match=r"constants, states: for \.onnx files"):
        nnburst.load(b"\x1c\0\0\0TFL3", constants={"x": 1})


@pytest.mark.parametrize("content", [b"no network", b""])
def test_a_broken_file_is_refused_in_the_format_of_its_name(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "model.onnx"
    path.write_bytes(content)
    with pytest.raises(InvalidArgument, match=r"model\.onnx") as refused:
        nnburst.load(path)
    assert ".tflite" not in str(refused.value)


def test_a_number_beyond_float16_is_infinite_in_a_network_of_float16() -> None:
    made = model(
        [node("ThresholdedRelu", "x", "y", alpha=1e6)],
        [value("x", "f2", (3,))],
        [value("y", "f2", (3,))],
    )
    x = np.array([-1, 1, 60000], np.float16)
    np.testing.assert_array_equal(run(made, x)[0], np.zeros(3, np.float16))


@pytest.mark.parametrize(
    ("operator", "attribute", "reason"),
    [("LSTM", "clip", "clip is given"), ("LSTM", "input_forget", "input_forget is 1, expected 0")],
)
def test_attribute_that_nnapi_lacks_is_named_with_its_value(
    operator: str, attribute: str, reason: str
) -> None:
    weights = {"w": normal(1, 8, 3), "r": normal(1, 8, 2)}
    made = model(
        [node(operator, "x w r", "y", hidden_size=2, **{attribute: 1})],
        [value("x", "f4", (1, 1, 3))],
        [value("y", "f4", (1, 1, 1, 2))],
        weights,
    )
    with pytest.raises(InvalidArgument, match=rf"\({operator}\) cannot be imported: {reason}"):
        nnburst.load(made.SerializeToString(), as_graph=False)


@pytest.mark.parametrize("shape", [(), (1,), (3,), (1, 3), (3, 1), (3, 3)], ids=str)
@pytest.mark.parametrize("alpha", [1.0, 0.5])
def test_gemm_adds_what_is_broadcast_to_a_square_product(
    shape: tuple[int, ...], alpha: float
) -> None:
    made = model(
        [node("Gemm", "x w c", "y", alpha=alpha)], [value("x", "f4", (3, 4))], [value("y", "f4", (3, 3))],
        {"w": normal(4, 3), "c": np.asarray(normal(*shape, seed=1), np.float32)},
    )  # fmt: skip
    x = normal(3, 4, seed=2)
    np.testing.assert_allclose(run(made, x)[0], expected(made, x)[0], rtol=1e-4, atol=1e-5)


def test_gemm_adds_stored_integers_of_each_row() -> None:
    stored = np.array([[-90], [5], [127]], np.int8)
    made = model(
        [node("DequantizeLinear", "q s z", "c"), node("Gemm", "x w c", "y")],
        [value("x", "f4", (3, 4))],
        [value("y", "f4", (3, 3))],
        {"w": normal(4, 3), "q": stored, "s": np.array(0.1, np.float32), "z": np.array(3, np.int8)},
    )
    x = normal(3, 4, seed=2)
    np.testing.assert_allclose(run(made, x)[0], expected(made, x)[0], rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("shape", [(1, 1, 2, 2), (1, 3), (1, 1, 1, 3)], ids=str)
@pytest.mark.parametrize(
    "nodes",
    [
        [node("LpNormalization", "c", "k")],
        [node("Mul", "c d", "k")],
        [node("Clip", "c zero one", "k")],
        [node("HardSigmoid", "c", "k")],
        [node("BatchNormalization", "c s s s s", "k")],
    ],
    ids=lambda nodes: nodes[0].op_type,
)  # fmt: skip
def test_what_is_computed_from_constants_keeps_its_extents(
    nodes: list[Any], shape: tuple[int, ...]
) -> None:
    made = model(
        [*nodes, node("Add", "x k", "y")],
        [value("x", "f4", shape)],
        [value("k", "f4", shape), value("y", "f4", shape)],
        {"c": normal(*shape), "d": normal(*shape, seed=1), "zero": np.zeros((), "f4"),
         "one": np.ones((), "f4"), "s": np.ones(shape[1], "f4")},
    )  # fmt: skip
    x = normal(*shape, seed=2)
    for ours, theirs in zip(run(made, x), expected(made, x), strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=1e-4, atol=1e-5)


def test_a_constant_that_is_masked_is_refused_by_its_name() -> None:
    inputs = [value("x", "f4", (2,)), value("c", "f4", (2,))]
    made = model([node("Add", "x c", "y")], inputs, [value("y", "f4", (2,))])
    masked = np.ma.array([1, 2], np.float32, mask=[True, False])
    with pytest.raises(InvalidArgument, match=r"constants\['c'\] is a masked array"):
        nnburst.load(made.SerializeToString(), constants={"c": masked}, as_graph=False)


@pytest.mark.parametrize(
    ("kind", "given", "reason"),
    [
        ("u1", np.array([300]), "expected numbers that uint8 can hold"),
        ("u1", [300], "expected numbers that uint8 can hold"),
        ("i8", [16000.7], "expected numbers that int64 can hold"),
        ("i8", [np.nan], "expected numbers that int64 can hold"),
        ("f4", [1e300], "expected numbers that float32 can hold"),
        ("?", [2], "expected numbers that bool can hold"),
        ("?", ["no"], "expected real numbers, not <U2$"),
        ("i4", ["5x"], "expected real numbers, not <U2"),
        ("i8", np.array([5], "M8[s]"), r"expected real numbers, not datetime64\[s\]"),
        ("f4", [None], "expected real numbers, not object"),
        ("f4", [3j], "expected real numbers, not complex128"),
        ("f4", [[1], [2, 3]], "inhomogeneous"),
    ],
)
def test_a_constant_that_its_type_cannot_hold_is_refused_by_its_name(
    kind: str, given: Any, reason: str
) -> None:
    inputs = [value("x", "f4", (1,)), value("c", kind, (1,))]
    nodes = [node("Cast", "c", "f", to=TYPES["f4"]), node("Add", "x f", "y")]
    made = model(nodes, inputs, [value("y", "f4", (1,))])
    with pytest.raises(InvalidArgument, match=rf"^constants\['c'\] is (?!.*constants).*{reason}"):
        nnburst.load(made.SerializeToString(), constants={"c": given}, as_graph=False)


def test_a_cast_of_small_integers_to_truth_values_is_whether_they_are_not_0() -> None:
    made = model(
        [node("Cast", "x", "y", to=TYPES["?"])],
        [value("x", "u1", (4,))],
        [value("y", "?", (4,))],
    )
    (found,) = Runner(nnburst.load(made.SerializeToString())).run([np.array([0, 1, 7, 255])])
    np.testing.assert_array_equal(found, [0, 1, 1, 1])


@pytest.mark.parametrize("axis", [0, 1])
def test_truth_values_are_picked_by_their_places(axis: int) -> None:
    made = model(
        [node("GatherElements", "x i", "y", axis=axis)],
        [value("x", "?", (2, 3))],
        [value("y", "?", (2, 3))],
        {"i": np.array([[0, 1, 0], [-1, 0, 1]])},
    )
    x = np.array([[True, False, False], [False, True, True]])
    np.testing.assert_array_equal(run(made, x)[0], expected(made, x)[0])


def test_made_up_name_of_the_slot_differs_from_those_of_the_file() -> None:
    made = model(
        [node("Add", "slot past", "present"), node("Neg", "present", "y")],
        [value(name, "f4", (2,)) for name in ("slot", "past")],
        [value(name, "f4", (2,)) for name in ("present", "y")],
    )
    content = made.SerializeToString()
    found = nnburst.load(content, states={"past": "present"}, as_graph=True, resident=True)
    assert found.input_names == ("slot", "slot_")


INTEGERS = {"i1": [-20, 20, 0, -128], "u1": [0, 20, 0, 0]}


@pytest.mark.parametrize("kind", INTEGERS)
def test_quantize_linear_without_a_zero_point_makes_the_integers_that_it_names(kind: str) -> None:
    quantize = node("QuantizeLinear", "x s", "y", output_dtype=TYPES[kind])
    made = model(
        [quantize], [value("x", "f4", (4,))], [value("y", kind, (4,))],
        {"s": np.array(0.5, np.float32)},
    )  # fmt: skip
    (found,) = run(made, np.array([-10, 10, 0, -99], np.float32))
    assert found.dtype == np.dtype(kind)
    assert found.tolist() == INTEGERS[kind]


def test_operation_before_a_quantize_linear_computes_on_the_integers_that_it_names() -> None:
    nodes = [
        node("QuantizeLinear", "x s", "q", output_dtype=TYPES["i1"]),
        node("DequantizeLinear", "q s", "a"),
        node("Relu", "a", "b"),
        node("QuantizeLinear", "b s", "r", output_dtype=TYPES["i1"]),
        node("DequantizeLinear", "r s", "y"),
    ]
    made = model(
        nodes, [value("x", "f4", (3,))], [value("y", "f4", (3,))], {"s": np.array(0.5, np.float32)}
    )
    assert kinds(made) == [_O.QUANTIZE, _O.RELU, _O.DEQUANTIZE]
    assert run(made, np.array([-10, 10, 99], np.float32))[0].tolist() == [0, 10, 63.5]


def test_quantize_linear_of_a_constant_makes_the_integers_that_it_names() -> None:
    nodes = [
        node("QuantizeLinear", "c s", "q", output_dtype=TYPES["i1"]),
        node("DequantizeLinear", "q s", "d"),
        node("Add", "x d", "y"),
    ]
    constants = {"c": np.array([-10, 10, 99], np.float32), "s": np.array(0.5, np.float32)}
    made = model(nodes, [value("x", "f4", (3,))], [value("y", "f4", (3,))], constants)
    assert run(made, np.zeros(3, np.float32))[0].tolist() == [-10, 10, 63.5]


@pytest.mark.parametrize(("s", "z"), [(0.013, 3), (0.5, 100)])
def test_dequantize_linear_gives_numbers_of_the_type_of_its_scale(s: float, z: int) -> None:
    nodes = [node("DequantizeLinear", "x s z", "r"), node("Mul", "r r", "y")]
    constants = {"s": np.array(s, np.float16), "z": np.array(z, np.uint8)}
    made = model(nodes, [value("x", "u1", (4,))], [value("y", "f2", (4,))], constants, opset=21)
    x = np.array([0, 77, 200, 255], np.uint8)
    found, wanted = run(made, x, as_graph=False)[0], expected(made, x)[0]
    assert found.dtype == wanted.dtype == np.float16
    np.testing.assert_array_equal(found, wanted)


def test_types_that_quantisation_names_and_nnapi_lacks_are_refused() -> None:
    s = {"s": np.array(0.5, np.float32)}
    wide = [
        node("QuantizeLinear", "x s", "q", output_dtype=onnx.TensorProto.INT16),
        node("DequantizeLinear", "q s", "y"),
    ]
    half = [
        node("QuantizeLinear", "x s", "q"),
        node("DequantizeLinear", "q s", "y", output_dtype=TYPES["f2"]),
    ]
    for nodes, reason in (
        (wide, "type int16"),
        (half, "output_dtype is float16, expected float32"),
    ):
        made = model(nodes, [value("x", "f4", (3,))], [value("y", "f4", (3,))], s, opset=23)
        with pytest.raises(InvalidArgument, match=reason):
            nnburst.load(made.SerializeToString(), as_graph=False)


def of_integers(nodes: list[Any], kind: str, **constants: Array) -> list[Array]:
    """The results of nodes that read q: 0, 40, 100, 110 and 255 in steps of 0.5, zero point 100."""
    given = {"s": np.array(0.5, np.float32), "z": np.array(100, np.uint8), **constants}
    x = (np.array([0, 40, 100, 110, 255], np.float32) - 100) / 2
    quantize = node("QuantizeLinear", "x s z", "q")
    made = model([quantize, *nodes], [value("x", "f4", (5,))], [value("y", kind, None)], given)
    return [run(made, x, as_graph=False)[0], expected(made, x)[0]]


@pytest.mark.parametrize(
    ("operator", "kind"),
    [("Equal", "?"), ("Greater", "?"), ("Less", "?"), ("Max", "u1"), ("Min", "u1")],
)
@pytest.mark.parametrize("inputs", ["q c", "c q"])
def test_operators_on_integers_that_were_quantised_read_stored_numbers(
    operator: str, kind: str, inputs: str
) -> None:
    ours, theirs = of_integers([node(operator, inputs, "y")], kind, c=np.array(100, np.uint8))
    np.testing.assert_array_equal(ours, theirs)


def test_integers_that_were_quantised_are_clipped_chosen_and_joined_as_stored() -> None:
    low, high = np.array(90, np.uint8), np.array(110, np.uint8)
    k, c = np.array([1, 0, 1, 0, 1], np.bool_), np.array([1, 2, 3, 4, 200], np.uint8)
    for last, constants in (
        (node("Clip", "q low high", "y"), {"low": low, "high": high}),
        (node("Where", "k q c", "y"), {"k": k, "c": c}),
        (node("Where", "k low q", "y"), {"k": k, "low": low}),
        (node("Concat", "q c", "y", axis=0), {"c": c}),
        (node("Concat", "c q", "y", axis=0), {"c": c}),
    ):
        ours, theirs = of_integers([last], "u1", **constants)
        np.testing.assert_array_equal(ours, theirs)


def test_truth_of_integers_that_were_quantised_is_whether_they_are_stored_as_0() -> None:
    ours, theirs = of_integers([node("Cast", "q", "y", to=TYPES["?"])], "?")
    np.testing.assert_array_equal(ours, theirs)


def test_an_input_of_integers_that_is_also_dequantised_is_compared_as_stored() -> None:
    made = model(
        [node("DequantizeLinear", "x s z", "d"), node("Greater", "x c", "y")],
        [value("x", "u1", (3,))],
        [value("d", "f4", (3,)), value("y", "?", (3,))],
        {
            "s": np.array(0.5, np.float32),
            "z": np.array(100, np.uint8),
            "c": np.array(101, np.uint8),
        },
    )
    real, above = run(made, np.array([0, 101, 255], np.uint8))
    assert real.tolist() == [-50, 0.5, 77.5]
    assert above.tolist() == [0, 0, 1]


@pytest.mark.parametrize(
    "last", [node("Concat", "q r", "y", axis=0), node("Max", "q r", "y"), node("Where", "k q r", "y")],
    ids=lambda made: made.op_type,
)  # fmt: skip
def test_stored_integers_of_several_steps_are_refused_together(last: Any) -> None:
    other = node("QuantizeLinear", "x t z", "r")
    k, t = np.array([1, 0, 1, 0, 1], np.bool_), np.array(0.25, np.float32)
    with pytest.raises(InvalidArgument, match=r"integers in steps of 0\.5.* and 0\.25"):
        of_integers([other, last], "u1", k=k, t=t)


@pytest.mark.parametrize("given", [8, -8, 0])
def test_an_integer_without_axes_is_divided_by_another(given: int) -> None:
    made = model(
        [node("Div", "x c", "y")], [value("x", "i4", ())], [value("y", "i4", ())],
        {"c": np.array(-2, np.int32)},
    )  # fmt: skip
    assert run(made, np.array([given], np.int32))[0].tolist() == [given // -2]


def test_parts_of_a_constant_that_begin_at_the_same_element_are_different_constants() -> None:
    shapes = ((1, 1, 1, 2, 3), (1, 1, 1, 3, 2))
    constants = {
        "c": np.arange(9, dtype=np.float32).reshape(1, 1, 1, 3, 3),
        "starts": np.array([0]),
        "ends": np.array([2]),
    }
    nodes = []
    for at, shape in enumerate(shapes):
        constants |= {f"axis{at}": np.array([3 + at]), f"s{at}": np.array(shape)}
        constants[f"t{at}"] = np.array(shape[3:])
        nodes += [
            node("Slice", f"c starts ends axis{at}", f"part{at}"),
            node("Reshape", f"x{at} s{at}", f"more{at}"),
            node("Add", f"more{at} part{at}", f"sum{at}"),
            node("Reshape", f"sum{at} t{at}", f"y{at}"),
        ]
    made = model(
        nodes,
        [value(f"x{at}", "f4", shape[3:]) for at, shape in enumerate(shapes)],
        [value(f"y{at}", "f4", shape[3:]) for at, shape in enumerate(shapes)],
        constants,
    )
    inputs = [np.zeros(shape[3:], np.float32) for shape in shapes]
    for ours, theirs in zip(run(made, *inputs), expected(made, *inputs), strict=True):
        np.testing.assert_array_equal(ours, theirs)


@pytest.mark.parametrize("slope", [0.5, None], ids=["given", "by default"])
def test_attribute_of_a_local_function_reaches_the_branches_inside(slope: float | None) -> None:
    leaky = node("LeakyRelu", "a", "t")
    leaky.attribute.add(name="alpha", ref_attr_name="slope", type=onnx.AttributeProto.FLOAT)
    inner = helper.make_graph([leaky], "inner", [], [value("t", "f4", None)])
    middle = node("If", "c", "m", then_branch=inner, else_branch=inner)
    outer = helper.make_graph([middle], "outer", [], [value("m", "f4", None)])
    function = helper.make_function(
        "local", "Leak", ["a", "c"], ["b"],
        [node("If", "c", "b", then_branch=outer, else_branch=outer)],
        [helper.make_opsetid("", 21)], [], [helper.make_attribute("slope", 0.25)],
    )  # fmt: skip
    given = {} if slope is None else {"slope": slope}
    made = model(
        [helper.make_node("Leak", ["x", "c"], ["y"], domain="local", **given)],
        [value("x", "f4", (2,))],
        [value("y", "f4", (2,))],
        {"c": np.array(True)},
        functions=[function],
        domains=["local"],
    )
    assert run(made, np.array([-8, 8], np.float32))[0].tolist() == [-8 * (slope or 0.25), 8]


def test_result_that_is_quantised_and_also_read_in_a_branch_is_not_rounded_there() -> None:
    branch = helper.make_graph([node("Neg", "r", "n")], "b", [], [value("n", "f4", None)])
    nodes = [
        node("QuantizeLinear", "x s z", "q"),
        node("DequantizeLinear", "q s z", "d"),
        node("DequantizeLinear", "w ws wz", "k"),
        node("Conv", "d k", "r"),
        node("QuantizeLinear", "r s z", "a"),
        node("DequantizeLinear", "a s z", "y"),
        node("If", "c", "n", then_branch=branch, else_branch=branch),
    ]
    constants = {
        "s": np.array(0.5, np.float32), "z": np.array(128, np.uint8), "c": np.array(True),
        "w": np.random.default_rng(0).integers(-99, 99, (2, 2, 1, 1)).astype(np.int8),
        "ws": np.array(0.01, np.float32), "wz": np.array(0, np.int8),
    }  # fmt: skip
    outputs = [value("y", "f4", (1, 2, 4, 4)), value("n", "f4", (1, 2, 4, 4))]
    made = model(nodes, [value("x", "f4", (1, 2, 4, 4))], outputs, constants)
    x = normal(1, 2, 4, 4)
    for ours, theirs in zip(run(made, x), expected(made, x), strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=1e-5, atol=1e-5)


def test_local_function_named_as_an_operator_that_quantises_reads_what_is_not_rounded() -> None:
    function = helper.make_function(
        "local", "QuantizeLinear", ["a", "s", "z"], ["b"], [node("Identity", "a", "b")],
        [helper.make_opsetid("", 21)],
    )  # fmt: skip
    nodes = [
        node("QuantizeLinear", "x s z", "q"),
        node("DequantizeLinear", "q s z", "d"),
        node("Add", "d d", "a"),
        helper.make_node("QuantizeLinear", ["a", "t", "z"], ["y"], domain="local"),
    ]
    constants = {"s": np.array(0.5, np.float32), "t": np.array(4, np.float32)}
    made = model(
        nodes, [value("x", "f4", (3,))], [value("y", "f4", (3,))],
        {**constants, "z": np.array(128, np.uint8)}, functions=[function], domains=["local"],
    )  # fmt: skip
    assert run(made, np.array([-1, 0.5, 3], np.float32))[0].tolist() == [-2, 1, 6]


def test_a_square_has_the_axes_of_its_exponent() -> None:
    made = model(
        [node("Pow", "x e", "y")], [value("x", "f4", (3,))], [value("y", "f4", (1, 3))],
        {"e": np.array([[2]], np.float32)},
    )  # fmt: skip
    (found,) = run(made, np.array([1, 2, 3], np.float32))
    assert found.tolist() == [[1, 4, 9]]


def test_a_squeeze_of_no_axes_removes_all_that_onnxruntime_removes() -> None:
    nodes = [
        node("Squeeze", "x axes", "a"),
        node("Squeeze", "c axes", "b"),
        node("Add", "a b", "y"),
    ]
    constants = {"axes": np.zeros(0, np.int64), "c": np.ones((1, 3, 1), np.float32)}
    made = model(nodes, [value("x", "f4", (1, 3, 1))], [value("y", "f4", (3,))], constants)
    assert run(made, np.ones((1, 3, 1), np.float32))[0].tolist() == [2, 2, 2]


def test_rounding_is_exact_next_to_halves_and_for_large_numbers() -> None:
    sizes = np.float32([0.5, 1.5, 2.5, 2**22 - 0.5, 2**22 + 0.5, 2**23 - 0.5, 2**23, 2**24, 3e38])
    near = [sizes, np.nextafter(sizes, np.float32(0)), np.nextafter(sizes, np.float32(np.inf))]
    odd = np.arange(2**23 + 1, 2**24, 99_998, np.float32)
    x = np.concatenate([*near, odd, np.float32([0, 1e-45, 1e-10, np.inf])])
    x = np.concatenate([x, -x, np.float32([np.nan])])
    made = model(
        [node("Round", "x", "y")], [value("x", "f4", x.shape)], [value("y", "f4", x.shape)]
    )
    assert np.array_equal(run(made, x)[0], np.round(x), equal_nan=True)


def test_the_cosine_of_large_numbers_is_exact() -> None:
    x = np.linspace(1e5, 2e5, 200, dtype=np.float32)
    made = model([node("Cos", "x", "y")], [value("x", "f4", (200,))], [value("y", "f4", (200,))])
    np.testing.assert_allclose(run(made, x)[0], np.cos(x.astype(np.float64)), atol=1e-6)
