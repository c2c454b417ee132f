"""Whole .tflite files as one operation: bit-equal to LiteRT in process, whatever their operators are."""

from __future__ import annotations

from dataclasses import replace
from importlib import import_module
from typing import Any

import msgspec
import numpy as np
import numpy.typing as npt
import pytest

from shared_drivers import connect_to

pytest.importorskip("ai_edge_litert", reason="ai-edge-litert is not installed (extra 'litert')")

import nnburst
from nnburst.executor.base import Argument, Execution
from nnburst.executor.built_in import litert
from nnburst.executor.litert.interpreter import quiet_once
from nnburst.formats.tflite_graph import read_graph
from nnburst.hal.enums import ErrorStatus
from nnburst.hal.errors import InvalidArgument
from nnburst.importer.imported_model import ImportedModel
from nnburst.testing.models.tflite_builder import TfliteBuilder
from nnburst.testing.models.tflite_networks import NETWORKS

Array = npt.NDArray[Any]


class Peer:
    """The file in LiteRT's own Interpreter, in this process."""

    def __init__(self, content: bytes) -> None:
        with quiet_once():
            self.engine: Any = import_module("ai_edge_litert.interpreter").Interpreter(
                model_content=content, num_threads=1
            )
            self.engine.allocate_tensors()
        self.inputs = self.engine.get_input_details()

    def run(self, values: list[Array]) -> list[Array]:
        for details, value in zip(self.inputs, values, strict=True):
            self.engine.set_tensor(details["index"], value.reshape(details["shape"]))
        self.engine.invoke()
        return [self.engine.get_tensor(d["index"]) for d in self.engine.get_output_details()]

    def values(self, seed: int) -> list[Array]:
        """Random inputs, small and above 0, so that integers are indices that are there, too."""
        random = np.random.default_rng(seed)
        return [
            (random.integers(0, 2, d["shape"]) + 0.5 * (d["dtype"] == np.float32)).astype(
                d["dtype"]
            )
            for d in self.inputs
        ]


def argument(array: Array) -> Argument:
    return Argument(np.ascontiguousarray(array).reshape(-1).view(np.uint8), array.shape or (1,))


def bind(imported: ImportedModel, values: list[Array], rooms: list[Array]) -> Execution:
    prepared = litert().prepare(imported.model, list(imported.pools))
    return prepared.bind([argument(v) for v in values], [argument(r) for r in rooms])


def refusal_of(content: bytes) -> str:
    """The reason why the engine refuses a file; empty if it does not."""
    try:
        peer = Peer(content)
        peer.run(peer.values(0))
    except (RuntimeError, ValueError) as error:
        return str(error)
    return ""


@pytest.mark.parametrize("name", sorted(NETWORKS))
def test_every_operator_as_a_whole_graph_is_bit_equal_to_the_engine_in_process(name: str) -> None:
    content = NETWORKS[name]()
    if refusal_of(content):
        with pytest.raises(InvalidArgument, match="LiteRT refuses the graph"):
            run_as_graph(content, 0)
        return
    for found, wanted in run_as_graph(content, 3):
        assert found.tobytes() == wanted.tobytes(), name


def run_as_graph(content: bytes, rounds: int) -> list[tuple[Array, Array]]:
    """The outputs of a few executions, each beside the engine's own."""
    imported = nnburst.load(content, as_graph=True)
    prepared = litert().prepare(imported.model, list(imported.pools))
    pairs: list[tuple[Array, Array]] = []
    if not rounds:
        return pairs
    peer = Peer(content)
    given = [np.array(value) for value in peer.values(0)]
    expected = peer.run(given)
    peer = Peer(content)  # as if nothing had run
    rooms = [np.zeros_like(value) for value in expected]
    bound = prepared.bind([argument(v) for v in given], [argument(r) for r in rooms])
    for seed in range(rounds):
        for value, fresh in zip(given, peer.values(seed), strict=True):
            value[...] = fresh
        outcome = bound.run()
        assert outcome.status == ErrorStatus.NONE, outcome.message
        expected = peer.run(given)
        pairs += [(room.copy(), want) for room, want in zip(rooms, expected, strict=True)]
    return pairs


def integers() -> TfliteBuilder:
    """Arithmetic of 64 bits, for which NNAPI has no operation."""
    b = TfliteBuilder()
    x, y = b.input("INT64", (4,)), b.input("INT64", (4,))
    b.operator("FLOOR_MOD", [x, y], [b.output("INT64", (4,))], "FloorModOptions")
    return b


def test_integers_of_64_bits_go_through_a_burst_as_they_are() -> None:
    imported = nnburst.load(integers().finish())
    assert "INT64 is not one of NNAPI's" in imported.refusal
    x = np.array([2**40 + 3, -7, 5, 2**62], np.int64)
    y = np.array([2**40, 3, -3, 1000], np.int64)
    with (
        connect_to("litert") as device,
        device.prepare(imported) as prepared,
        prepared.open_burst() as burst,
    ):
        bound = burst.bind()
        assert [array.dtype for array in bound.inputs] == [np.int64, np.int64]
        bound.inputs[0][...], bound.inputs[1][...] = x, y
        bound.run(timeout=10)
        assert bound.outputs[0].tolist() == np.mod(x, y).tolist()


def found_out() -> bytes:
    """The positions of elements that are true: how many there are only a run finds out."""
    b = TfliteBuilder()
    x = b.input("BOOL", (6,))
    b.operator("WHERE", [x], [b.output("INT64", (1, 1), shapeSignature=[-1, 1])], "WhereOptions")
    return b.finish()


def test_an_output_has_the_extents_that_a_run_finds_out() -> None:
    imported = nnburst.load(found_out())
    with connect_to("litert") as device, device.prepare(imported) as prepared:
        for given in ([0, 1, 0, 1, 1, 0], [1, 0, 0, 0, 0, 0], [0] * 6, [1] * 6):
            x = np.array(given, np.uint8)
            [found] = prepared.execute([x]).outputs
            assert found.tolist() == np.argwhere(x).tolist()


def test_too_little_room_is_an_error_with_what_is_needed() -> None:
    imported = nnburst.load(found_out())
    bound = bind(imported, [np.ones(6, np.uint8)], [np.zeros((2, 1), np.int64)])
    assert bound.native is None
    outcome = bound.run()
    assert outcome.status == ErrorStatus.OUTPUT_INSUFFICIENT_SIZE
    assert [shape.dimensions for shape in outcome.output_shapes] == [(6, 1)]


def test_truth_values_of_other_bytes_are_true() -> None:
    b = TfliteBuilder()
    x = b.input("BOOL", (4,))
    b.operator("CAST", [x], [b.output("INT32", (4,))], "CastOptions")
    fixed, found = nnburst.load(b.finish(), as_graph=True), nnburst.load(found_out())
    x_bytes, y = np.array([0, 1, 2, 255], np.uint8), np.zeros(4, np.int32)
    bound = bind(fixed, [x_bytes], [y])
    assert bound.native is not None
    bound.run()
    assert y.tolist() == [0, 1, 1, 1]
    rows = np.zeros((6, 1), np.int64)
    bind(found, [np.array([0, 9, 0, 1, 0, 0], np.uint8)], [rows]).run()
    assert rows[:2].tolist() == [[1], [3]]


def test_integers_of_a_request_are_copied_and_real_numbers_used_where_they_lie() -> None:
    b = TfliteBuilder()
    x, i = b.input("FLOAT32", (32, 4)), b.input("INT32", (2,))
    b.operator("GATHER", [x, i], [b.output("FLOAT32", (2, 4))], "GatherOptions")
    imported = nnburst.load(b.finish(), as_graph=True)
    memory = np.zeros(4096, np.uint8)
    place = memory[-memory.ctypes.data % 64 :]
    arguments = [Argument(place[:512], (32, 4)), Argument(place[512:520], (2,))]
    prepared = litert().prepare(imported.model, list(imported.pools))
    bound = prepared.bind(arguments, [Argument(place[576:608], (2, 4))])
    assert bound._binding.copied_bytes == 8  # type: ignore[attr-defined]


def test_an_output_that_is_an_input_or_there_twice_is_right() -> None:
    """The library writes nothing to such outputs, so the Interpreter runs these graphs."""
    b = TfliteBuilder()
    x = b.input("FLOAT32", (3,))
    y = b.output("FLOAT32", (3,))
    b.operator("NEG", [x], [y], "NegOptions")
    b.raw.outputs += [x, y]
    content = b.finish()
    assert not read_graph(content).is_fixed
    rooms = [np.zeros(3, np.float32) for _ in range(3)]
    given = np.float32([1, -2, 3])
    assert (
        bind(nnburst.load(content, as_graph=True), [given], rooms).run().status == ErrorStatus.NONE
    )
    assert [room.tolist() for room in rooms] == [[-1, 2, -3], [1, -2, 3], [-1, 2, -3]]


def test_names_and_signatures_do_not_steer_what_runs() -> None:
    """A signature in another order, and two tensors of one name."""
    b = TfliteBuilder()
    x, y = b.input("FLOAT32", (2,), name="same"), b.input("FLOAT32", (2,), name="same")
    z = b.output("FLOAT32", (2,), name="z")
    b.operator("SUB", [x, y], [z], "SubOptions")
    b.signature("serving_default", {"b": y, "a": x}, {"z": z})
    imported = nnburst.load(b.finish(), as_graph=True)
    assert imported.signatures[0].inputs == {"b": 1, "a": 0}
    room = np.zeros(2, np.float32)
    bind(imported, [np.float32([5, 7]), np.float32([1, 2])], [room]).run()
    assert room.tolist() == [4, 5]


def counter(*, rounds: bool = False) -> bytes:
    """A variable that grows by the input with each run, and is the output, rounded up if it `rounds`.

    NNAPI has no operation that rounds up.
    """
    b = TfliteBuilder()
    x, y = b.input("FLOAT32", (1,), name="x"), b.output("FLOAT32", (1,), name="y")
    total = b.tensor("FLOAT32", (1,)) if rounds else y
    handle, old = b.tensor("RESOURCE", (1,)), b.tensor("FLOAT32", (1,))
    b.operator("VAR_HANDLE", [], [handle], "VarHandleOptions", sharedName="count", container="")
    b.operator("READ_VARIABLE", [handle], [old], "ReadVariableOptions")
    b.operator("ADD", [old, x], [total], "AddOptions")
    b.operator("ASSIGN_VARIABLE", [handle, total], [], "AssignVariableOptions")
    if rounds:
        b.operator("CEIL", [total], [y])
    start, first = b.subgraph()
    other, zero = first.tensor("RESOURCE", (1,)), first.constant("FLOAT32", np.zeros(1, "<f4"))
    first.operator("VAR_HANDLE", [], [other], "VarHandleOptions", sharedName="count", container="")
    first.operator("ASSIGN_VARIABLE", [other, zero], [], "AssignVariableOptions")
    b.operator("CALL_ONCE", [], [], "CallOnceOptions", initSubgraphIndex=start)
    b.raw.operators.insert(0, b.raw.operators.pop())
    return b.finish()


def test_variables_stay_with_the_prepared_model_whatever_executes_it() -> None:
    imported = nnburst.load(counter(), as_graph=True)
    one = np.ones(1, np.float32)
    with connect_to("litert") as device:
        with device.prepare(imported) as prepared, prepared.open_burst() as burst:
            with prepared.open_burst() as other:
                found = [
                    float(ways([one]).outputs[0][0])
                    for ways in (burst.execute, other.execute, prepared.execute, burst.execute)
                ]
            assert found == [1, 2, 3, 4]
        with device.prepare(imported) as prepared:
            assert prepared.execute([one]).outputs[0].tolist() == [1]


def test_shapes_that_a_file_leaves_open_are_those_that_are_given() -> None:
    b = TfliteBuilder()
    x = b.input("FLOAT32", (1, 2), name="x", shapeSignature=[-1, 2])
    y = b.output("FLOAT32", (1, 2), shapeSignature=[-1, 2])
    b.operator("NEG", [x], [y], "NegOptions")
    content = b.finish()
    imported = nnburst.load(content, shapes={"x": (3, 2)})
    assert "shapes" in imported.refusal
    given = np.arange(6, dtype=np.float32).reshape(3, 2)
    with connect_to("litert") as device, device.prepare(imported) as prepared:
        assert prepared.execute([given]).outputs[0].tolist() == (-given).tolist()
    for shapes, match in (
        ({"x": (3, 3)}, r"shapes\['x'\]: \[3, 3\], the file has \[-1, 2\]"),
        ({"z": (1,)}, "no input 'z', there are x"),
    ):
        with pytest.raises(InvalidArgument, match=match):
            nnburst.load(content, shapes=shapes)


def test_a_batch_that_is_left_open_is_the_one_that_the_file_suggests() -> None:
    b = TfliteBuilder()
    x = b.input("INT64", (1, 2), shapeSignature=[-1, 2])
    b.operator("NEG", [x], [b.output("INT64", (1, 2), shapeSignature=[-1, 2])], "NegOptions")
    imported = nnburst.load(b.finish())
    assert imported.refusal
    with (
        connect_to("litert") as device,
        device.prepare(imported) as prepared,
        prepared.open_burst() as burst,
    ):
        bound = burst.bind()  # the output's extents are known
        bound.inputs[0][...] = [[1, 2]]
        bound.run(timeout=10)
        assert bound.outputs[0].tolist() == [[-1, -2]]


def test_a_graph_in_a_cache_is_prepared_without_the_file(tmp_path: Any) -> None:
    imported = nnburst.load(integers().finish())
    given = [np.array([9, 8, 7, 6], np.int64), np.array([4, 5, 4, 5], np.int64)]
    for _ in range(2):
        with (
            connect_to("litert") as device,
            device.prepare(imported, cache_dir=tmp_path) as prepared,
        ):
            assert prepared.execute(given).outputs[0].tolist() == [1, 3, 3, 1]


@pytest.mark.parametrize("route", ["native", "interpreter"])
def test_both_routes_give_the_same(route: str, monkeypatch: pytest.MonkeyPatch) -> None:
    if route == "interpreter":
        monkeypatch.setattr("nnburst.executor.litert.native.available", lambda: False)
    for name in ("CONV_2D-FLOAT32", "SOFTMAX-INT8"):
        if name in NETWORKS:
            for found, wanted in run_as_graph(NETWORKS[name](), 2):
                assert found.tobytes() == wanted.tobytes()


@pytest.mark.parametrize("route", ["native", "interpreter"])
def test_output_has_the_extents_that_the_engine_finds_and_not_those_that_are_declared(
    route: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    if route == "interpreter":
        monkeypatch.setattr("nnburst.executor.litert.native.available", lambda: False)
    imported = nnburst.load(integers().finish(), as_graph=True)
    main = imported.model.main
    operands = [
        msgspec.structs.replace(each, dimensions=(6,)) if at in main.output_indexes else each
        for at, each in enumerate(main.operands)
    ]
    main = msgspec.structs.replace(main, operands=tuple(operands))
    imported = replace(imported, model=msgspec.structs.replace(imported.model, main=main))
    room, y = np.zeros(6, np.int64), np.full(4, 5, np.int64)
    outcome = bind(imported, [np.arange(4) + 5, y], [room]).run()
    assert (outcome.status, outcome.output_shapes[0].dimensions) == (ErrorStatus.NONE, (4,))
    assert room.tolist() == [0, 1, 2, 3, 0, 0]


@pytest.mark.parametrize("extents", [(3, 3), (6, 1)])
def test_output_has_the_extents_that_a_run_finds_and_not_those_that_are_declared(
    extents: tuple[int, int],
) -> None:
    room = np.zeros(extents, np.int64)
    bound = bind(nnburst.load(found_out()), [np.array([0, 1, 0, 1, 1, 0], np.uint8)], [room])
    outcome = bound.run()
    assert (outcome.status, outcome.output_shapes[0].dimensions) == (ErrorStatus.NONE, (3, 1))
    assert room.reshape(-1)[:4].tolist() == [1, 3, 4, 0]
