"""Work and memory that a small file asks for are charged to it before its translation spends them."""

from __future__ import annotations

import tracemalloc
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import nnburst
from importer.onnx.graphs import TensorProto, helper, model, node, numpy_helper, value
from nnburst.hal.errors import InvalidArgument

MIB = 2**20


def zeros(shape: str, name: str) -> Any:
    """A known tensor of bytes whose size the file does not have."""
    return node("ConstantOfShape", shape, name, value=numpy_helper.from_array(np.zeros(1, np.int8)))


def made(nodes: list[Any], known: str, **constants: Any) -> bytes:
    """A file that adds a known tensor to its input; `constants` are lists of integers, or arrays."""
    last = [node("Cast", known, "cast", to=TensorProto.FLOAT), node("Add", "x cast", "y")]
    arrays = {name: np.asarray(each) for name, each in constants.items()}
    inputs, outputs = [value("x", "f4", (1,))], [value("y", "f4", (1,))]
    return bytes(model([*nodes, *last], inputs, outputs, arrays).SerializeToString())


def refuse(content: bytes, reason: str = "unpacks to more than") -> None:
    tracemalloc.start()
    try:
        with pytest.raises(InvalidArgument, match=reason):
            nnburst.load(content, as_graph=False)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak <= 96 * MIB


def test_a_vector_has_no_triangle() -> None:
    """Numpy makes a matrix of the vector's length and width."""
    refuse(made([zeros("s", "c"), node("Trilu", "c", "k")], "k", s=[12_000]), "expected a matrix")


def test_nothing_is_repeated_without_memory_for_more() -> None:
    nodes = [zeros("s", "c"), node("Tile", "c n", "t"), node("Shape", "t", "k", start=1)]
    content = made(nodes, "k", s=[1, 1], n=[200 * MIB, 0])
    tracemalloc.start()
    try:
        assert nnburst.load(content, as_graph=False).model.main.operations
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak <= 32 * MIB


def reduced(at: int) -> list[Any]:
    return [node("ReduceMax", f"c{at} first", f"c{at + 1}", keepdims=1)]


def turned(at: int) -> list[Any]:
    return [
        node("Transpose", f"c{at}", f"t{at}", perm=[1, 0]),
        node("Reshape", f"t{at} s", f"c{at + 1}"),
    ]


def flattened(at: int) -> list[Any]:
    return [
        node("Transpose", f"c{at}", f"t{at}", perm=[1, 0]),
        node("Flatten", f"t{at}", f"c{at + 1}"),
    ]


@pytest.mark.parametrize(
    ("copied", "shape"),
    [(reduced, [1, 4 * MIB]), (turned, [1024, 4096]), (flattened, [1024, 4096])],
)
def test_each_copy_of_a_large_constant_is_paid_for(
    copied: Callable[[int], list[Any]], shape: list[int]
) -> None:
    nodes = [each for at in range(24) for each in copied(at)]
    last = node("ReduceMax", "c24", "k", keepdims=0)
    refuse(made([zeros("s", "c0"), *nodes, last], "k", s=shape, first=[0]))


def test_a_constant_is_dequantised_once_however_many_nodes_read_it() -> None:
    nodes = [zeros("s", "c"), node("DequantizeLinear", "c step", "q")]
    for at in range(32):
        nodes += [
            node("Identity", "q", f"n{at}"),
            node("ReduceMax", f"n{at}", f"m{at}", keepdims=0),
        ]
    nodes.append(node("Sum", " ".join(f"m{at}" for at in range(32)), "k"))
    content = made(nodes, "k", s=[MIB], step=np.array(0.5, np.float32))
    tracemalloc.start()
    try:
        assert nnburst.load(content, as_graph=False).model.main.operations
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak <= 48 * MIB


def test_weights_of_8_bits_are_transposed_within_the_allowance_of_their_file() -> None:
    """As exporters write a linear layer: DequantizeLinear, Transpose, MatMul."""
    nodes, constants = [], {"step": np.array(0.5, np.float32), "zero": np.array(0, np.int8)}
    for at in range(16):
        constants[f"w{at}"] = np.ones((1024, 1024), np.int8)
        nodes += [
            node("DequantizeLinear", f"w{at} step zero", f"d{at}"),
            node("Transpose", f"d{at}", f"t{at}", perm=[1, 0]),
            node("MatMul", f"x{at} t{at}", f"x{at + 1}"),
        ]
    inputs, outputs = [value("x0", "f4", (1, 1024))], [value("x16", "f4", (1, 1024))]
    content = model(nodes, inputs, outputs, constants).SerializeToString()
    assert len(nnburst.load(content, as_graph=False).model.main.operations) == 16


def test_a_constant_is_padded_only_within_the_allowance() -> None:
    nodes = [zeros("s", "c"), node("Cast", "c", "f", to=TensorProto.FLOAT), node("Pad", "f p", "k")]
    refuse(made(nodes, "k", s=[1], p=[0, 100 * MIB]))


def test_a_constant_is_gathered_only_within_the_allowance() -> None:
    nodes = [zeros("s", "c"), node("Pad", "c p", "k", mode="edge")]
    refuse(made(nodes, "k", s=[1, 1000], p=[200_000, 0, 0, 0]))


def test_a_constant_is_split_into_as_many_parts_as_are_named() -> None:
    nodes = [zeros("s", "c"), node("Split", "c", "k", num_outputs=MIB)]
    refuse(made(nodes, "k", s=[MIB]), "1 outputs")


def test_a_causal_mask_is_paid_for() -> None:
    shape = (1, 1, 8000, 4)
    inputs = [value(name, "f4", shape) for name in "qkv"]
    attention = node("Attention", "q k v", "y", is_causal=1)
    content = model([attention], inputs, [value("y", "f4", shape)], opset=23)
    refuse(content.SerializeToString())


def in_loop(rounds: int, body: list[Any], initializers: list[Any]) -> bytes:
    """A file with a loop that sets `w` from `v` by the nodes of `body`."""
    info = helper.make_tensor_value_info
    graph = helper.make_graph(
        [*body, node("Identity", "c", "going")],
        "body",
        [info("i", 7, []), info("c", 9, []), info("v", 1, [])],
        [info("going", 9, []), info("w", 1, [])],
        initializers,
    )
    loop = node("Loop", "n - start", "k", body=graph)
    constants = {"n": np.array(rounds), "start": np.array(0, np.float32), "no": np.array(False)}
    return made([loop], "k", **constants)


def branch(count: int) -> Any:
    """An If that does not take its branch of so many nodes."""
    info = helper.make_tensor_value_info
    long, short = (
        helper.make_graph(
            [node("Identity", "v", f"n{at}") for at in range(count)] + [node("Identity", "v", out)],
            out,
            [],
            [info(out, 1, [])],
        )
        for count, out in ((count, "long"), (0, "short"))
    )
    return node("If", "no", "w", then_branch=long, else_branch=short)


def test_a_loop_pays_in_each_round_for_branches_that_it_does_not_take() -> None:
    refuse(in_loop(250, [branch(3000)], []))


def test_a_loop_pays_in_each_round_for_constants_that_are_converted() -> None:
    large = TensorProto(name="large", data_type=TensorProto.FLOAT16, dims=[20_000])
    large.int32_data.extend([0] * 20_000)
    nodes = [
        node("ReduceMax", "large", "m", keepdims=0),
        node("Cast", "m", "f", to=TensorProto.FLOAT),
        node("Add", "v f", "w"),
    ]
    refuse(in_loop(250, nodes, [large]))


def test_each_call_of_a_function_pays_for_the_branches_that_it_copies() -> None:
    function = helper.make_function(
        "local", "F", ["v", "no"], ["w"], [branch(2000)], [helper.make_opsetid("", 21)]
    )
    calls = [
        helper.make_node("F", [f"v{at}", "no"], [f"v{at + 1}"], domain="local") for at in range(60)
    ]
    content = model(
        [*calls, node("Add", "x v60", "y")],
        [value("x", "f4", (1,))],
        [value("y", "f4", (1,))],
        {"v0": np.array(0, np.float32), "no": np.array(False)},
        functions=[function],
        domains=["local"],
    )
    refuse(content.SerializeToString())
