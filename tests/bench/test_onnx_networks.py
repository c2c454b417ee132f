from __future__ import annotations

import numpy as np
import pytest

import nnburst
from nnburst.bench.network.onnx import Distances, InProcessGraph, by_operations, graph_lineup
from nnburst.formats import onnx_writer
from nnburst.testing.models.onnx_networks import OnnxNetwork

FLOAT, BYTE = 1, 2


def quantized() -> bytes:
    """A graph that NNAPI has no operation for, with an open extent."""
    node = onnx_writer.node("DynamicQuantizeLinear", ["x"], ["y", "scale", "zero"], {})
    return onnx_writer.model(
        [node],
        [],
        [onnx_writer.described("x", FLOAT, ["n"])],
        [
            onnx_writer.described("y", BYTE, ["n"]),
            onnx_writer.described("scale", FLOAT, []),
            onnx_writer.described("zero", BYTE, []),
        ],
        opset=13,
        version=8,
    )


def test_a_graph_that_nnapi_has_no_operation_for_is_refused_by_operations_alone() -> None:
    pytest.importorskip("onnxruntime", reason="needs onnxruntime")
    content, network = quantized(), OnnxNetwork("quantized", "quantized.onnx", {"x": (8,)})
    in_process = InProcessGraph(content)
    found = by_operations("litert", network, content, in_process, 1)
    assert "DynamicQuantizeLinear" in found["refused"]
    values = [np.linspace(-1, 1, 8, dtype=np.float32)]
    with (
        nnburst.launch("onnxruntime") as device,
        graph_lineup(content, in_process.names, device, 0, values) as lineup,
    ):
        assert not lineup.different


def test_a_difference_counts_by_the_outputs_range_over_all_inputs() -> None:
    distances = Distances()
    distances.add([np.array([1.1e-5])], [np.array([1e-5])])
    distances.add([np.array([0.5])], [np.array([0.5])])
    np.testing.assert_allclose(distances.in_parts_of_range(), 2e-6, rtol=1e-4)
    np.testing.assert_allclose(distances.at_worst, 0.1)


def test_each_output_has_its_own_range() -> None:
    distances = Distances()
    for scale in (1.0, 2.0):
        wanted = [np.array([0.0, scale]), np.array([0.0, 1000 * scale])]
        distances.add([wanted[0] + 0.02, wanted[1]], wanted)
    np.testing.assert_allclose(distances.in_parts_of_range(), 0.01)


def test_a_difference_of_an_output_that_never_changes_counts_by_its_size() -> None:
    distances = Distances()
    for _ in range(2):
        distances.add([np.array([3.0, 2.0])], [np.array([2.0, 2.0])])
    np.testing.assert_allclose(distances.in_parts_of_range(), 0.5)
