from __future__ import annotations

import os
import tracemalloc
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import nnburst
from importer.onnx.graphs import model, node, normal, onnx, value
from nnburst.formats.onnx_model import read_model
from nnburst.hal import environment
from nnburst.hal.errors import InvalidArgument


def made() -> bytes:
    nodes = [node("Conv", "x w", "a", pads=[1, 1, 1, 1]), node("Reshape", "a s", "y")]
    constants = {"w": normal(4, 3, 3, 3), "s": np.array([1, -1], np.int64)}
    inputs, outputs = [value("x", "f4", (1, 3, 6, 6))], [value("y", "f4", (1, 144))]
    return bytes(model(nodes, inputs, outputs, constants).SerializeToString())


CONTENT = made()


@settings(max_examples=3 * environment.EXAMPLES.read(), deadline=None)
@given(st.data())
def test_mutated_files_are_read_or_refused(data: st.DataObject) -> None:
    content = bytearray(CONTENT)
    for _ in range(data.draw(st.integers(1, 4))):
        at = data.draw(st.integers(0, len(content) - 1))
        content[at] = data.draw(st.integers(0, 255))
    cut = data.draw(st.integers(0, 3))
    try:
        nnburst.load(bytes(content[: len(content) - cut]))
    except InvalidArgument:
        return


@settings(max_examples=2 * environment.EXAMPLES.read(), deadline=None)
@given(st.binary(max_size=200))
def test_any_bytes_are_an_onnx_file_or_malformed(content: bytes) -> None:
    try:
        read_model(content)
    except InvalidArgument:
        return


def test_a_bomb_of_empty_nodes_is_refused_before_it_takes_memory() -> None:
    graph = b"\x0a\x00" * 4_000_000
    size = len(graph)
    prefix = b"\x08\x0a\x42\x02\x10\x15\x3a"
    varint = b""
    while size > 0x7F:
        varint += bytes([size & 0x7F | 0x80])
        size >>= 7
    content = prefix + varint + bytes([size]) + graph
    tracemalloc.start()
    with pytest.raises(InvalidArgument, match="unpacks to more than"):
        read_model(content)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak <= 16 * len(content) + 64 * 2**20


def test_a_file_that_unfolds_to_more_than_it_may_is_refused() -> None:
    nodes = [node("ConstantOfShape", "s", "c"), node("Add", "x c", "y")]
    shape = np.array([160_000_000], np.int64)
    made = model(nodes, [value("x", "f4", (1,))], [value("y", "f4", (160_000_000,))], {"s": shape})
    with pytest.raises(InvalidArgument, match="unpacks to more than"):
        nnburst.load(made.SerializeToString())


def test_functions_that_call_each_other_end() -> None:
    helper = onnx.helper
    functions = [
        helper.make_function(
            "local", f"F{n}", ["a"], ["b"],
            [helper.make_node(f"F{n + 1}", ["a"], ["t"], domain="local"),
             helper.make_node(f"F{n + 1}", ["t"], ["b"], domain="local")],
            [helper.make_opsetid("", 21), helper.make_opsetid("local", 1)],
        )
        for n in range(40)
    ]  # fmt: skip
    called = helper.make_node("F0", ["x"], ["y"], domain="local")
    made = model(
        [called],
        [value("x", "f4", (3,))],
        [value("y", "f4", (3,))],
        functions=functions,
        domains=["local"],
    )
    with pytest.raises(InvalidArgument):
        nnburst.load(made.SerializeToString(), as_graph=False)


def external(directory: Path, location: str, size: int = 12) -> Path:
    made = model([node("Add", "x c", "y")], [value("x", "f4", (3,))], [value("y", "f4", (3,))],
                 {"c": np.ones(3, np.float32)})  # fmt: skip
    tensor = made.graph.initializer[0]
    tensor.ClearField("raw_data")
    tensor.data_location = onnx.TensorProto.EXTERNAL
    tensor.external_data.add(key="location", value=location)
    tensor.external_data.add(key="length", value=str(size))
    path = directory / "network.onnx"
    path.write_bytes(made.SerializeToString())
    return path


def test_weights_beside_the_file_are_read(tmp_path: Path) -> None:
    (tmp_path / "weights").mkdir()
    (tmp_path / "weights" / "c.bin").write_bytes(np.ones(3, np.float32).tobytes())
    assert nnburst.load(external(tmp_path, "weights/c.bin")).model.main.operations


@pytest.mark.parametrize(
    "location", ["../secret", "/etc/passwd", "link", "fifo", "dir/../../secret", ""]
)
def test_files_elsewhere_links_and_pipes_are_not_read(tmp_path: Path, location: str) -> None:
    inner = tmp_path / "inner"
    inner.mkdir()
    (inner / "dir").mkdir()
    (tmp_path / "secret").write_bytes(bytes(12))
    (inner / "link").symlink_to(tmp_path / "secret")
    os.mkfifo(inner / "fifo")
    with pytest.raises(InvalidArgument, match="lies in"):
        nnburst.load(external(inner, location))


def test_a_directory_that_is_a_link_is_not_followed(tmp_path: Path) -> None:
    inner, outer = tmp_path / "inner", tmp_path / "outer"
    inner.mkdir()
    outer.mkdir()
    (outer / "c.bin").write_bytes(bytes(12))
    (inner / "there").symlink_to(outer)
    with pytest.raises(InvalidArgument, match="cannot be opened"):
        nnburst.load(external(inner, "there/c.bin"))


def test_weights_of_a_file_that_came_as_bytes_are_refused(tmp_path: Path) -> None:
    (tmp_path / "c.bin").write_bytes(bytes(12))
    with pytest.raises(InvalidArgument, match="came as bytes"):
        nnburst.load(external(tmp_path, "c.bin").read_bytes())


def test_weights_that_end_early_are_refused(tmp_path: Path) -> None:
    (tmp_path / "c.bin").write_bytes(bytes(8))
    with pytest.raises(InvalidArgument, match="end before it does"):
        nnburst.load(external(tmp_path, "c.bin"))
