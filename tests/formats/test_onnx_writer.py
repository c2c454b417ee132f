"""Written ONNX files are read back by our reader, and by the standard's own."""

from __future__ import annotations

from importlib import import_module

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from nnburst.formats import onnx_writer
from nnburst.formats.onnx_model import read_model
from nnburst.formats.protobuf import encoded_varint, signed, varint


@given(st.integers(-(2**63), 2**63 - 1))
def test_integers_come_back(number: int) -> None:
    written = encoded_varint(number)
    value, end = varint(memoryview(written), 0)
    assert (signed(value), end) == (number, len(written))


def small() -> bytes:
    values = np.arange(6, dtype=np.float32)
    nodes = [
        onnx_writer.node("Pad", ["x", "places", "", "axes"], ["p"], {"mode": "edge"}),
        onnx_writer.node("Elu", ["p"], ["e"], {"alpha": 0.5}),
        onnx_writer.node("ReduceMax", ["e"], ["y"], {"axes": (-1, 0), "keepdims": 1}),
    ]
    constants = [
        onnx_writer.tensor("places", 7, (2,), np.array([1, 2], np.int64).tobytes()),
        onnx_writer.tensor("axes", 7, (1,), np.array([1], np.int64).tobytes()),
        onnx_writer.tensor_elsewhere("w", 1, (2, 3), ("elsewhere", 64, values.nbytes)),
    ]
    inputs, outputs = [onnx_writer.described("x", 1, (2, 3))], [onnx_writer.described("y", 1, ())]
    return onnx_writer.model(nodes, constants, inputs, outputs, opset=17, version=8)


def test_our_reader_reads_it() -> None:
    file = read_model(small())
    kinds = [(node.op_type, list(node.inputs), list(node.outputs)) for node in file.graph.nodes]
    assert kinds[0] == ("Pad", ["x", "places", "", "axes"], ["p"])
    assert [kind for kind, _, _ in kinds] == ["Pad", "Elu", "ReduceMax"]
    assert list(file.graph.initializers) == ["places", "axes", "w"]
    assert file.graph.initializers["w"].external["location"] == "elsewhere"
    assert file.graph.initializers["w"].external["offset"] == "64"


def test_the_standards_reader_reads_the_same() -> None:
    onnx = pytest.importorskip("onnx", reason="the standard's reader")
    made = onnx.ModelProto.FromString(small())
    helper, numbers = import_module("onnx.helper"), import_module("onnx.numpy_helper")
    first, second, third = made.graph.node
    assert [helper.get_attribute_value(a) for a in first.attribute] == [b"edge"]
    assert [helper.get_attribute_value(a) for a in second.attribute] == [0.5]
    assert [helper.get_attribute_value(a) for a in third.attribute] == [[-1, 0], 1]
    assert numbers.to_array(made.graph.initializer[0]).tolist() == [1, 2]
    assert made.graph.initializer[2].data_location == onnx.TensorProto.EXTERNAL
    assert made.opset_import[0].version == 17
    assert made.ir_version == 8
