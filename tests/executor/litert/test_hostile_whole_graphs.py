"""Whole .tflite files from anywhere: none names another file, none is other than what its client declares."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from msgspec.structs import replace

from shared_drivers import connect_to

pytest.importorskip("ai_edge_litert", reason="ai-edge-litert is not installed (extra 'litert')")

import nnburst
from nnburst.executor.base import Argument
from nnburst.executor.built_in import litert
from nnburst.formats.tflite_graph import read_graph
from nnburst.hal.enums import ErrorStatus, OperandType
from nnburst.hal.errors import InvalidArgument
from nnburst.hal.whole_graph import GraphParams
from nnburst.testing.fuzzing.file_fuzzers import with_content
from nnburst.testing.models.tflite_builder import TfliteBuilder, schema

SECRET = np.float32([3, 1, 4]).tobytes()


def plain() -> TfliteBuilder:
    """x + (1, 1, 1)."""
    b = TfliteBuilder()
    x, y = b.input("FLOAT32", (3,), name="x"), b.output("FLOAT32", (3,), name="y")
    b.operator("ADD", [x, b.constant("FLOAT32", np.ones(3, "<f4"))], [y], "AddOptions")
    return b


def prepare(content: bytes) -> None:
    imported = with_content(nnburst.load(plain().finish(), as_graph=True), content)
    litert().prepare(imported.model, list(imported.pools)).close()


def in_a_group(b: TfliteBuilder, path: str) -> None:
    group, buffer = schema().ExternalBufferGroupT(), schema().ExternalBufferT()
    group.name = path
    buffer.id, buffer.group, buffer.offset, buffer.length = 1, 0, 0, 12
    b.model.externalBufferGroups, b.model.externalBuffers = [group], [buffer]
    b.raw.tensors[-1].buffer, b.raw.tensors[-1].externalBuffer = 0, 1


def in_a_tensor_alone(b: TfliteBuilder, _path: str) -> None:
    b.raw.tensors[-1].externalBuffer = 1


def by_a_delegate(b: TfliteBuilder, _path: str) -> None:
    """The engine would look for a library of TensorFlow's."""
    b.custom_operator("FlexAdd", [0, 2], [1])


def by_a_compiled_part(b: TfliteBuilder, path: str) -> None:
    b.custom_operator("DISPATCH_OP", [0], [1], path.encode())


@pytest.mark.parametrize("way", [in_a_group, in_a_tensor_alone, by_a_delegate, by_a_compiled_part])
def test_a_graph_opens_no_file(way: Callable[[TfliteBuilder, str], None], tmp_path: Path) -> None:
    secret = tmp_path / "weights"
    secret.write_bytes(SECRET)
    b = plain()
    way(b, str(secret))
    with pytest.raises(InvalidArgument, match=r"names other files|lies in another|may open files"):
        prepare(b.finish())


def test_a_border_that_is_not_the_graphs_is_refused() -> None:
    imported = nnburst.load(plain().finish(), as_graph=True)
    operands = list(imported.model.main.operands)
    executor = litert()
    for at, change, match in (
        (1, {"dimensions": (4,)}, r"input 'x' is \[3\], the model declares \[4\]"),
        (1, {"type": OperandType.TENSOR_INT32}, "input 'x' is float"),
        (2, {"type": OperandType.TENSOR_INT32}, "output 'y' is float"),
        (0, {"extra_params": GraphParams(("z",), ("y",)).pack()}, r"has the inputs \['x'\]"),
        (0, {"extra_params": GraphParams(("x",), ("y",), ("f",)).pack()}, "1 files, expected"),
        (0, {"extra_params": None}, "the file has no parameters"),
    ):
        wrong = list(operands)
        wrong[at] = replace(operands[at], **change)
        changed = replace(imported.model, main=replace(imported.model.main, operands=tuple(wrong)))
        with pytest.raises(InvalidArgument, match=match):
            executor.prepare(changed, list(imported.pools))


def test_extents_of_outputs_are_those_of_the_engine_and_not_of_the_file() -> None:
    b = plain()
    b.raw.tensors[1].shape = [7]
    imported = nnburst.load(b.finish(), as_graph=True)
    prepared = litert().prepare(imported.model, list(imported.pools))
    x, y = np.float32([3, 1, 4]), np.zeros(7, np.float32)
    for room, status in ((7, ErrorStatus.NONE), (2, ErrorStatus.OUTPUT_INSUFFICIENT_SIZE)):
        given = Argument(x.view(np.uint8), (3,)), Argument(y[:room].view(np.uint8), (7,))
        outcome = prepared.bind([given[0]], [given[1]]).run()
        assert (outcome.status, outcome.output_shapes[0].dimensions) == (status, (3,))
    assert y.tolist() == [4, 2, 5, 0, 0, 0, 0]


def test_an_operation_beside_a_whole_graph_is_refused() -> None:
    imported = nnburst.load(plain().finish(), as_graph=True)
    main = imported.model.main
    twice = replace(main, operations=(*main.operations, *main.operations))
    with pytest.raises(InvalidArgument, match="must be that one operation alone"):
        litert().prepare(replace(imported.model, main=twice), list(imported.pools))


def test_a_driver_without_the_engine_refuses_a_whole_graph_by_its_name() -> None:
    pytest.importorskip("onnxruntime", reason="a driver that has one of the two extensions")
    imported = nnburst.load(plain().finish(), as_graph=True)
    with (
        connect_to("onnxruntime") as device,
        pytest.raises(InvalidArgument, match=r"operation 0 of dev\.nnburst\.tflite"),
    ):
        device.prepare(imported)


def subgraph_that_is_not_there(b: TfliteBuilder) -> None:
    b.raw.outputs = [99]


def buffer_that_is_not_there(b: TfliteBuilder) -> None:
    b.raw.tensors[0].buffer = 99


def code_that_is_not_there(b: TfliteBuilder) -> None:
    b.raw.operators[0].opcodeIndex = 99


def bytes_behind_the_end(b: TfliteBuilder) -> None:
    b.model.buffers[1].data = None
    b.model.buffers[1].offset, b.model.buffers[1].size = 1 << 40, 12


def options_behind_the_end(b: TfliteBuilder) -> None:
    b.raw.operators[0].largeCustomOptionsOffset = 1 << 40


def a_string(b: TfliteBuilder) -> None:
    b.raw.tensors[0].type = schema().TensorType.STRING


@pytest.mark.parametrize(
    "spoil",
    [
        subgraph_that_is_not_there,
        buffer_that_is_not_there,
        code_that_is_not_there,
        bytes_behind_the_end,
        options_behind_the_end,
        a_string,
    ],
)
def test_what_is_not_in_the_file_is_refused_before_the_engine_sees_it(
    spoil: Callable[[TfliteBuilder], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    b = plain()
    spoil(b)
    monkeypatch.setattr("nnburst.executor.litert.whole_graph.GraphInterpreter", None)
    monkeypatch.setattr("nnburst.executor.litert.native.NativeEngine", None)
    with pytest.raises(InvalidArgument):
        prepare(b.finish())


def test_every_byte_that_an_offset_can_lie_in_may_be_wrong() -> None:
    """Each byte of a file set to each of some values: read, or refused by name; nothing else."""
    content = plain().finish()
    refused = 0
    for at in range(len(content)):
        for value in (0x00, 0x7F, 0x80, 0xFF):
            changed = bytearray(content)
            changed[at] = value
            try:
                read_graph(bytes(changed))
            except InvalidArgument:
                refused += 1
    assert refused > len(content) // 2


def test_a_signature_is_taken_out_and_nothing_else() -> None:
    b = plain()
    b.signature("serving_default", {"a": 0}, {"z": 1})
    content = b.finish()
    found = read_graph(content)
    assert len(found.content) == len(content)
    assert sum(x != y for x, y in zip(found.content, content, strict=True)) <= 2
    assert read_graph(found.content) == found


BOMB = """
import resource, sys
import numpy as np
sys.path[:0] = {path!r}
from executor.litert.test_hostile_whole_graphs import bomb
import nnburst
from nnburst.executor.built_in import litert
from nnburst.executor.base import Argument
from nnburst.hal.errors import NnburstError
executor = litert()
imported = nnburst.load(bomb(), as_graph=True)
resource.setrlimit(resource.RLIMIT_DATA, ({limit}, {limit}))
x, y = np.array([400_000_000], np.int32), np.zeros(1, np.float32)
try:
    prepared = executor.prepare(imported.model, list(imported.pools))
    bound = prepared.bind([Argument(x.view(np.uint8), (1,))], [Argument(y.view(np.uint8), (1,))])
    print("ended:", bound.run().status.name)
except NnburstError as error:
    print("ended:", error.status.name)
"""


def bomb() -> bytes:
    b = TfliteBuilder()
    x, y = b.input("INT32", (1,)), b.output("FLOAT32", (1,))
    filled = b.tensor("FLOAT32", (1,), shapeSignature=[-1])
    b.operator("FILL", [x, b.constant("FLOAT32", np.ones((), "<f4"))], [filled], "FillOptions")
    axis = b.constant("INT32", np.zeros(1, "<i4"))
    b.operator("SUM", [filled, axis], [y], "ReducerOptions", keepDims=True)
    return b.finish()


def test_a_graph_that_makes_more_than_the_quota_ends_its_run_or_its_worker() -> None:
    """1.6 GB from one integer, if the worker's quota leaves 1 GiB."""
    code = BOMB.format(path=[str(Path(__file__).parents[2])], limit=1 << 30)
    words = [sys.executable, "-c", code]
    ended = subprocess.run(words, capture_output=True, text=True, timeout=120, check=False)
    assert ended.returncode != 0 or ended.stdout.strip() in (
        "ended: GENERAL_FAILURE",
        "ended: RESOURCE_EXHAUSTED_TRANSIENT",
    )
    assert "NONE" not in ended.stdout
