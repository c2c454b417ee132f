from __future__ import annotations

import pytest

from importer.onnx.graphs import model, node, onnx, value
from nnburst.formats.onnx_model import read_model
from nnburst.formats.onnx_writer import with_shapes
from nnburst.hal.errors import InvalidArgument


def made() -> bytes:
    inputs = [value("x", "f4", ("n", 3)), value("k", "i8", None)]
    file = model([node("Relu", "x", "y")], inputs, [value("y", "f4", ("n", 3))], {})
    return bytes(file.SerializeToString())


def test_only_the_named_inputs_get_other_dimensions() -> None:
    content = with_shapes(made(), {"x": (300, 3)})
    before, after = (onnx.load_model_from_string(each) for each in (made(), content))
    assert read_model(content).graph.inputs[0].shape == (300, 3)
    shape = after.graph.input[0].type.tensor_type.shape
    shape.dim[0].dim_param = "n"
    assert after == before


def test_a_rank_that_was_open_is_written() -> None:
    content = with_shapes(made(), {"k": (2, 5)})
    assert read_model(content).graph.inputs[1].shape == (2, 5)
    onnx.checker.check_model(onnx.load_model_from_string(content))


def test_a_field_that_ends_behind_its_message_is_refused() -> None:
    with pytest.raises(InvalidArgument, match="field 7 has 127 bytes, only 1 are left"):
        with_shapes(made() + b"\x3a\x7f\x00", {"x": (1, 3)})
