"""The table of networks at the first try: the way that each took, and how far it is from its engine."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("onnxruntime", reason="the engine")
pytest.importorskip("onnx", reason="what writes the networks")

import first_try
from importer.onnx.graphs import model, node, value


def test_a_row_has_the_way_and_the_difference(tmp_path: Path) -> None:
    sums = model([node("Add", "x x", "y")], [value("x", "f4", (2, 3))], [value("y", "f4", (2, 3))])
    (tmp_path / "sum.onnx").write_bytes(sums.SerializeToString())
    row = first_try.tried(tmp_path / "sum.onnx", "sum.onnx")
    assert row.way.startswith("operations, ")
    assert (row.difference, row.why, row.fails) == (0.0, "", False)
    assert "| bit-equal |" in str(row)


def test_a_whole_graph_has_its_reason_and_must_be_bit_equal(tmp_path: Path) -> None:
    rounded = model(
        [
            node("DynamicQuantizeLinear", "x", "q scale zero"),
            node("DequantizeLinear", "q scale zero", "y"),
        ],
        [value("x", "f4", (4,))],
        [value("y", "f4", (4,))],
    )
    (tmp_path / "rounded.onnx").write_bytes(rounded.SerializeToString())
    row = first_try.tried(tmp_path / "rounded.onnx", "rounded.onnx")
    assert (row.way, row.difference, row.fails) == ("whole graph, onnxruntime", 0.0, False)
    assert "NNAPI has no operation for DynamicQuantizeLinear" in row.why


def test_a_file_that_its_engine_refuses_does_not_fail(tmp_path: Path) -> None:
    (tmp_path / "no.onnx").write_bytes(b"no network")
    row = first_try.tried(tmp_path / "no.onnx", "no.onnx")
    assert row.way.startswith("its engine refuses it: ")
    assert (row.difference, row.fails) == (None, False)


def test_equal_numbers_with_other_bits_are_no_equal_outputs() -> None:
    assert first_try._difference([[np.float32([0.0, 1.0])]], [[np.float32([0.0, 1.0])]]) == 0
    assert first_try._difference([[np.float32([-0.0, 1.0])]], [[np.float32([0.0, 1.0])]]) > 0
