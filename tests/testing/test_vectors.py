"""Vector files: reading, writing, twins, and what becomes of them as models."""

from __future__ import annotations

import gzip
import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from nnburst.hal.enums import OperandLifeTime, OperandType, OperationType
from nnburst.hal.errors import InvalidArgument
from nnburst.testing.conformance.campaign import signed, with_unknown_outputs
from nnburst.testing.conformance.vectors import Vector, build, map_operands, read, write


def operand(kind: str, dims: list[int], lifetime: str, **more: Any) -> dict[str, Any]:
    return {
        "name": "",
        "type": kind,
        "dimensions": dims,
        "scale": 0.0,
        "zeroPoint": 0,
        "lifetime": lifetime,
        "numberOfConsumers": 0,
        **more,
    }


def document() -> dict[str, Any]:
    q8 = "TENSOR_QUANT8_ASYMM"
    operands = [
        operand(q8, [3], "SUBGRAPH_INPUT", scale=0.5, zeroPoint=10, data=0, numberOfConsumers=1),
        operand(q8, [3], "CONSTANT_REFERENCE", scale=0.5, zeroPoint=0, data=1, numberOfConsumers=1),
        operand("INT32", [], "CONSTANT_COPY", data=2, numberOfConsumers=1),
        operand(q8, [3], "SUBGRAPH_OUTPUT", scale=1.0, zeroPoint=128, data=3),
    ]
    test = {
        "name": "add_test",
        "spec": "add",
        "folder": "V1_0",
        "model_name": "",
        "example_name": "",
        "variations": [],
        "hal_version": "1.0",
        "effective_hal_version": "1.0",
        "expect_failure": False,
        "relaxed": False,
        "main": {
            "operands": operands,
            "operations": [{"type": "ADD", "inputs": [0, 1, 2], "outputs": [3]}],
            "inputs": [0],
            "outputs": [3],
        },
        "referenced": [],
        "tolerance": {
            "float32": [1e-5, 6e-7],
            "float16": [0.005, 0.005],
            "int32": 1,
            "quant8": 1,
            "quant16": 1,
            "bool8": 0,
        },
        "suites": ["run", "signed_coupling"],
    }
    # x = [0, 1, 2], constant = [1, 2, 3]; the sum is [1, 3, 5] on a scale of 1 around 128.
    buffers = ["CgwO", "AgQG", "AAAAAA==", "gYOF", "dW51c2Vk"]
    return {
        "format": 1,
        "spec": "add",
        "folder": "V1_0",
        "tests": [test],
        "buffers": buffers,
    }


def stored(tmp_path: Path, content: dict[str, Any]) -> Path:
    path = tmp_path / "add.json.gz"
    path.write_bytes(gzip.compress(json.dumps(content).encode()))
    return path


@pytest.fixture
def vector(tmp_path: Path) -> Vector:
    [found] = read(stored(tmp_path, document()))
    return found


def test_file_becomes_a_model_with_constants_and_pool(vector: Vector) -> None:
    built = build(vector)
    main = built.model.main
    assert main.operations[0].type == OperationType.ADD
    assert main.operands[1].lifetime is OperandLifeTime.CONSTANT_REFERENCE
    place = main.operands[1].location
    assert built.pools[0][place.offset : place.offset + place.length] == bytes([2, 4, 6])
    assert built.model.pools[0].size == len(built.pool)
    place = main.operands[2].location
    assert built.model.operand_values[place.offset : place.offset + place.length] == bytes(4)
    assert vector.bytes_of(vector.outputs[0]) == bytes([129, 131, 133])


def test_empty_data_of_an_input_means_omitted_and_of_an_output_means_empty(
    tmp_path: Path,
) -> None:
    content = document()
    content["buffers"] += [""]
    operands = content["tests"][0]["main"]["operands"]
    operands[0]["data"] = operands[3]["data"] = 5
    [found] = read(stored(tmp_path, content))
    assert found.bytes_of(found.inputs[0]) is None
    assert found.bytes_of(found.outputs[0]) == b""


def test_unknown_format_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InvalidArgument, match="format 2"):
        read(stored(tmp_path, document() | {"format": 2}))


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"x",
        gzip.compress(b"x", mtime=0),
        gzip.compress(b"[]", mtime=0),
        gzip.compress(b'{"a": 1}', mtime=0),
        gzip.compress(b"[" * 200_000, mtime=0),
        gzip.compress(b'{"operation": "\xff"}', mtime=0),
        gzip.compress(b'{"format": 1}', mtime=0)[:-4],
        gzip.compress(b'{"format": 1}', mtime=0)[:-8] + bytes(8),
        gzip.compress(b"", mtime=0)[:10] + b"\xff" * 20,
    ],
)
def test_file_of_something_else_is_refused_by_its_name(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "add.json.gz"
    path.write_bytes(content)
    with pytest.raises(InvalidArgument, match=f"^{re.escape(str(path))}: not a vector file: ."):
        read(path)


def test_written_file_holds_one_test_and_only_what_it_uses(tmp_path: Path, vector: Vector) -> None:
    path = tmp_path / "deep" / "one.json.gz"
    write(path, vector)
    [again] = read(path)
    assert b"unused" not in again.buffers
    assert len(again.buffers) == 4
    assert build(again) == build(vector)
    assert again.suites == vector.suites
    first = path.read_bytes()
    write(path, again)
    assert path.read_bytes() == first


def test_file_of_the_original_keeps_every_key_when_written(tmp_path: Path, vector: Vector) -> None:
    path = tmp_path / "one.json.gz"
    write(path, vector)
    [test] = json.loads(gzip.decompress(path.read_bytes()))["tests"]
    [given] = document()["tests"]
    for key in ("name", "tolerance", "suites", "spec"):
        assert test[key] == given[key]
    assert test["main"]["operations"] == given["main"]["operations"]
    assert test["main"]["operands"][1]["zeroPoint"] == 0


def test_signed_twin_shifts_bytes_and_zero_points_of_every_asymmetric_operand(
    vector: Vector,
) -> None:
    twin = signed(vector)
    kinds = [o.kind for o in twin.main.operands]
    q8s = OperandType.TENSOR_QUANT8_ASYMM_SIGNED
    assert kinds == [q8s, q8s, OperandType.INT32, q8s]
    assert [o.zero_point for o in twin.main.operands] == [-118, -128, 0, 0]
    data = twin.bytes_of(twin.outputs[0])
    assert data is not None
    assert np.frombuffer(data, np.int8).tolist() == [1, 3, 5]
    assert vector.outputs[0].kind is OperandType.TENSOR_QUANT8_ASYMM


def test_unknown_outputs_keep_their_rank(vector: Vector) -> None:
    changed = with_unknown_outputs(vector)
    assert changed.outputs[0].dimensions == (0,)
    assert changed.inputs[0].dimensions == (3,)


def test_mapping_operands_reaches_referenced_graphs(vector: Vector) -> None:
    import msgspec

    nested = msgspec.structs.replace(vector, referenced=(vector.main,))
    renamed = map_operands(nested, lambda o: msgspec.structs.replace(o, name="x"))
    assert {o.name for g in renamed.graphs for o in g.operands} == {"x"}
