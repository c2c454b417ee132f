"""Element types and ranks that NNAPI lacks are the extension's; what is no tensor is refused by its name."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from importer.onnx.graphs import Array, helper, model, node, onnx, value
from shared_drivers import connect_to

pytest.importorskip("onnxruntime", reason="the executor's engine")

import nnburst
from nnburst.executor.base import Argument
from nnburst.executor.built_in import onnxruntime
from nnburst.hal.errors import InvalidArgument
from nnburst.hal.whole_graph import ELEMENTS, Element


def copying(number: int, shape: tuple[int, ...]) -> bytes:
    """y = x, of an element type by ONNX's number."""
    ends = [helper.make_tensor_value_info(name, number, shape) for name in "xy"]
    return bytes(model([node("Identity", "x", "y")], ends[:1], ends[1:]).SerializeToString())


def argument(array: Array) -> Argument:
    return Argument(array.reshape(-1).view(np.uint8), array.shape or (1,))


@pytest.mark.parametrize("shape", [(), (3,), (1, 2, 1, 3, 1, 2, 1, 2)], ids=len)
@pytest.mark.parametrize("element", ELEMENTS, ids=lambda element: element.name)
def test_every_bit_of_a_tensor_arrives(element: Element, shape: tuple[int, ...]) -> None:
    size = int(np.prod(shape)) * element.dtype.itemsize
    given = np.random.default_rng(0).integers(0, 256, size, np.uint8)
    if element.name == "bool":
        given %= 2
    x = given.view(element.dtype).reshape(shape)
    y = np.zeros_like(x)
    imported = nnburst.load(copying(element.number, shape), as_graph=True)
    prepared = onnxruntime().prepare(imported.model, list(imported.pools))
    prepared.bind([argument(x)], [argument(y)]).run()
    assert y.tobytes() == x.tobytes()


def test_types_that_nnapi_lacks_pass_through_a_burst() -> None:
    x = np.array([[2**40, -1]], np.int64)
    imported = nnburst.load(copying(7, x.shape), as_graph=True)
    with (
        connect_to("onnxruntime") as device,
        device.prepare(imported) as prepared,
        prepared.open_burst() as burst,
    ):
        (y,) = burst.execute([x]).outputs
    assert y is not None
    assert y.dtype == np.int64
    np.testing.assert_array_equal(y, x)


def no_tensor(kind: str) -> Any:
    tensor = helper.make_tensor_type_proto(1, [2])
    if kind == "sequence":
        return helper.make_sequence_type_proto(tensor)
    if kind == "optional":
        return helper.make_optional_type_proto(tensor)
    return helper.make_map_type_proto(onnx.TensorProto.INT64, tensor)


@pytest.mark.parametrize("kind", ["sequence", "optional", "map"])
@pytest.mark.parametrize("side", ["input", "output"])
def test_what_is_no_tensor_is_refused_by_name(side: str, kind: str) -> None:
    made = model([node("Identity", "x", "y")], [value("x", "f4", (2,))], [value("y", "f4", (2,))])
    border = made.graph.input[0] if side == "input" else made.graph.output[0]
    border.type.CopyFrom(no_tensor(kind))
    with pytest.raises(InvalidArgument, match=f"{side} '{border.name}' is (a )?{kind}"):
        nnburst.load(made.SerializeToString(), as_graph=True)
