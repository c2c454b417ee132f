"""`nnburst.load` keeps names, signatures, metadata and pools, and reads from files and bytes."""

from __future__ import annotations

import json
import subprocess
import sys
from importlib.resources import files
from pathlib import Path

import numpy as np
import pytest

from shared_drivers import connect_to

pytest.importorskip("ai_edge_litert", reason="ai-edge-litert is not installed (extra 'litert')")

import nnburst
from nnburst.hal.enums import OperandLifeTime
from nnburst.testing.models.tflite_builder import TfliteBuilder, schema
from nnburst.testing.models.tflite_networks import NETWORKS
from tflite_format import read_format

SMALL = NETWORKS["ADD-FLOAT32"]()


def test_file_is_read_from_a_path_or_from_bytes(tmp_path: Path) -> None:
    path = tmp_path / "sum.tflite"
    path.write_bytes(SMALL)
    models = [nnburst.load(source).model for source in (path, str(path), SMALL, bytearray(SMALL))]
    assert all(model == models[0] for model in models)


def test_error_names_the_file(tmp_path: Path) -> None:
    path = tmp_path / "cut.tflite"
    path.write_bytes(SMALL[:40])
    with pytest.raises(nnburst.InvalidArgument, match=r"cut\.tflite: not an intact"):
        nnburst.load(path)
    with pytest.raises(FileNotFoundError):
        nnburst.load(tmp_path / "absent.tflite")


def test_names_signatures_metadata_and_description_are_kept() -> None:
    b = TfliteBuilder()
    x, y = b.input("FLOAT32", (1,), name="left"), b.input("FLOAT32", (1,), name="rïght")
    z = b.output("FLOAT32", (1,), name="sum")
    b.operator("ADD", [x, y], [z], "AddOptions")
    b.signature("add", {"a": y, "b": x}, {"c": z})
    b.metadata("labels", b"one\ntwo")
    loaded = nnburst.load(b.finish())
    assert loaded.input_names == ("left", "rïght")
    assert loaded.output_names == ("sum",)
    [signature] = loaded.signatures
    assert (signature.key, signature.inputs, signature.outputs) == (
        "add",
        {"a": 1, "b": 0},
        {"c": 0},
    )
    assert loaded.metadata == {"labels": b"one\ntwo"}
    assert loaded.description == "built for a test"
    assert loaded.operators == ("0 ADD",)


def test_shapes_that_the_file_has_itself_change_nothing() -> None:
    name, *_ = nnburst.load(SMALL).input_names
    shape = tuple(nnburst.load(SMALL).model.main.operands[0].dimensions)
    given = nnburst.load(SMALL, shapes={name: shape})
    assert given.model == nnburst.load(SMALL).model
    assert not given.refusal
    with pytest.raises(nnburst.InvalidArgument, match="the file has"):
        nnburst.load(SMALL, shapes={name: (*shape, 1)})


def test_large_constants_lie_in_one_aligned_pool_and_small_ones_in_the_model() -> None:
    b = TfliteBuilder()
    x = b.input("FLOAT32", (1, 33))
    large = [np.arange(33, dtype="<f4") + i for i in range(2)]
    values = [large[0], np.float32([2]), large[1]]
    for value in values:
        y = b.tensor("FLOAT32", (1, 33))
        b.operator("ADD", [x, b.constant("FLOAT32", value)], [y], "AddOptions")
        x = y
    b.raw.outputs.append(x)
    loaded = nnburst.load(b.finish())
    [pool] = loaded.pools
    assert loaded.model.pools[0].size == pool.nbytes
    assert not pool.flags.writeable
    referenced = [
        operand.location
        for operand in loaded.model.main.operands
        if operand.lifetime == OperandLifeTime.CONSTANT_REFERENCE
    ]
    assert [place.offset % 64 for place in referenced] == [0, 0]
    for place, value in zip(referenced, large, strict=True):
        part = pool[place.offset : place.offset + place.length].view("<f4")
        np.testing.assert_array_equal(part, value)
    copied = [
        operand
        for operand in loaded.model.main.operands
        if operand.lifetime == OperandLifeTime.CONSTANT_COPY
    ]
    assert sorted(operand.location.length for operand in copied) == [4, 4]


def test_tensors_of_one_buffer_share_their_bytes() -> None:
    b = TfliteBuilder()
    x, buffer = b.input("FLOAT32", (1, 50)), b.buffer(bytes(200))
    for _ in range(3):
        y = b.tensor("FLOAT32", (1, 50))
        constant = b.tensor("FLOAT32", (50,), buffer=buffer)
        b.operator("ADD", [x, constant], [y], "AddOptions")
        x = y
    b.raw.outputs.append(x)
    assert [pool.nbytes for pool in nnburst.load(b.finish()).pools] == [200]


def test_buffer_behind_the_flatbuffer_is_found() -> None:
    b = TfliteBuilder()
    x, y = b.input("FLOAT32", (1, 50)), b.output("FLOAT32", (1, 50))
    constant = b.constant("FLOAT32", np.zeros(50, "<f4"))
    b.operator("ADD", [x, constant], [y], "AddOptions")
    value = np.arange(50, dtype="<f4").tobytes()
    buffer = b.model.buffers[-1]
    buffer.data, buffer.offset, buffer.size = None, 4096, len(value)
    content = b.finish()
    assert len(content) <= 4096
    behind = content + bytes(4096 - len(content)) + value
    assert nnburst.load(behind).pools[0].tobytes() == value
    with pytest.raises(nnburst.InvalidArgument, match="buffer 1 at byte 4096"):
        nnburst.load(behind[:-1])


def test_reading_a_file_does_not_load_the_engine() -> None:
    source = f"""
import sys, nnburst
nnburst.load({SMALL!r})
assert "ai_edge_litert" not in sys.modules
assert "LiteRt" not in open("/proc/self/maps").read()
"""
    subprocess.run([sys.executable, "-c", source], check=True)


def test_file_is_read_and_inspected_without_the_engine_installed(tmp_path: Path) -> None:
    path = tmp_path / "small.tflite"
    path.write_bytes(SMALL)
    source = f"""
import importlib.abc, importlib.util as util, sys

class Absent(importlib.abc.MetaPathFinder):
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] == "ai_edge_litert":
            raise ModuleNotFoundError(name, name=name)

sys.meta_path.insert(0, Absent())
find = util.find_spec
util.find_spec = lambda name, *more: None if name == "ai_edge_litert" else find(name, *more)
from nnburst.cli import main
sys.exit(main(["inspect", {str(path)!r}, "--dot", {str(tmp_path / "small.dot")!r}]))
"""
    words = [sys.executable, "-c", source]
    done = subprocess.run(words, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert "ADD" in done.stdout
    assert "executor litert needs the package ai-edge-litert" in " ".join(done.stdout.split())
    assert "digraph" in (tmp_path / "small.dot").read_text()


def test_fields_of_the_format_are_where_its_authors_generated_classes_have_them() -> None:
    known = json.loads((files("nnburst.formats") / "format.json").read_text())
    source = Path(schema().__file__).read_text(encoding="utf-8")
    tables, enumerations = read_format(source)
    for name, fields in known["tables"].items():
        assert fields.items() <= tables[name].items(), name
    for name, members in known["enumerations"].items():
        assert members.items() <= enumerations[name].items(), name


def test_device_prepares_a_loaded_model_with_its_pools() -> None:
    loaded = nnburst.load(NETWORKS["FULLY_CONNECTED-flat-FLOAT32"]())
    assert loaded.pools
    x = np.linspace(-1, 1, 48, dtype=np.float32).reshape(2, 3, 8)
    with connect_to("reference") as device:
        assert device.supported_operations(loaded) == [True]
        prepared = device.prepare(loaded)
        [found] = prepared.execute([x]).outputs
        with pytest.raises(nnburst.InvalidArgument, match="the model brings its own"):
            device.prepare(loaded, pools=[device.allocate(100)])
    weights, bias = loaded.pools[0][:160].view("<f4").reshape(5, 8), np.arange(-5, 5, 2) / 8
    expected = np.maximum(x.reshape(6, 8) @ weights.T + bias, 0)
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-6)
