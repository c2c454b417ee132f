"""Whole .tflite graphs whose open extents come with each request, on one burst."""

from __future__ import annotations

from collections.abc import Iterator
from importlib import import_module
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from shared_drivers import connect_to

pytest.importorskip("ai_edge_litert", reason="ai-edge-litert is not installed (extra 'litert')")

import nnburst
from executor.litert.test_whole_graphs import argument
from nnburst.executor.built_in import litert
from nnburst.executor.litert import whole_graph
from nnburst.executor.litert.interpreter import GraphInterpreter, quiet_once
from nnburst.hal.enums import ErrorStatus
from nnburst.hal.errors import InvalidArgument
from nnburst.testing.models.tflite_builder import TfliteBuilder

Array = npt.NDArray[Any]
WIDTH = 3


def network() -> bytes:
    """A dense layer of any number of rows, softmax, and the rows of a table that ids name."""
    b = TfliteBuilder()
    rows, ids = (
        b.input("FLOAT32", (1, 4), name="rows", shapeSignature=[-1, 4]),
        b.input("INT32", (2,), name="ids", shapeSignature=[-1]),
    )
    random = np.random.default_rng(0)
    weights = b.constant("FLOAT32", random.standard_normal((WIDTH, 4)).astype("<f4"))
    table = b.constant("FLOAT32", random.standard_normal((50, 2)).astype("<f4"))
    hidden = b.tensor("FLOAT32", (1, WIDTH), shapeSignature=[-1, WIDTH])
    y = b.output("FLOAT32", (1, WIDTH), name="y", shapeSignature=[-1, WIDTH])
    found = b.output("FLOAT32", (2, 2), name="found", shapeSignature=[-1, 2])
    b.operator("FULLY_CONNECTED", [rows, weights], [hidden], "FullyConnectedOptions")
    b.operator("SOFTMAX", [hidden], [y], "SoftmaxOptions", beta=1.0)
    b.operator("GATHER", [table, ids], [found], "GatherOptions")
    return b.finish()


def positions() -> bytes:
    """Where truth values of any number are true: also the output's extents only a run finds out."""
    b = TfliteBuilder()
    x = b.input("BOOL", (6,), name="x", shapeSignature=[-1])
    b.operator("WHERE", [x], [b.output("INT64", (1, 1), shapeSignature=[-1, 1])], "WhereOptions")
    return b.finish()


CONTENT = network()


def in_process(rows: Array, ids: Array) -> list[bytes]:
    with quiet_once():
        engine: Any = import_module("ai_edge_litert.interpreter").Interpreter(
            model_content=CONTENT, num_threads=1
        )
    for details, value in zip(engine.get_input_details(), (rows, ids), strict=True):
        engine.resize_tensor_input(details["index"], value.shape)
    engine.allocate_tensors()
    for details, value in zip(engine.get_input_details(), (rows, ids), strict=True):
        engine.set_tensor(details["index"], value)
    engine.invoke()
    return [engine.get_tensor(d["index"]).tobytes() for d in engine.get_output_details()]


def request(rows: int, ids: int) -> tuple[Array, Array]:
    random = np.random.default_rng(rows * 1000 + ids)
    return (
        random.standard_normal((rows, 4)).astype(np.float32),
        random.integers(0, 50, ids).astype(np.int32),
    )


@pytest.fixture(scope="module")
def prepared() -> Iterator[nnburst.PreparedModel]:
    with (
        connect_to("litert") as device,
        device.prepare(nnburst.load(CONTENT, as_graph=True)) as made,
    ):
        yield made


@pytest.fixture(scope="module")
def burst(prepared: nnburst.PreparedModel) -> Iterator[nnburst.Burst]:
    with prepared.open_burst() as made:
        yield made


def test_extents_that_the_file_leaves_open_are_open(burst: nnburst.Burst) -> None:
    assert [p.dimensions for p in burst.inputs] == [(0, 4), (0,)]
    assert [p.dimensions for p in burst.outputs] == [(0, WIDTH), (0, 2)]
    fixed = nnburst.load(CONTENT, as_graph=True, shapes={"rows": (5, 4)})
    with (
        connect_to("litert") as device,
        device.prepare(fixed) as prepared,
    ):
        assert [p.dimensions for p in prepared.inputs] == [(5, 4), (0,)]
        rows, ids = request(5, 9)
        found = prepared.execute([rows, ids]).outputs
        assert [each.tobytes() for each in found] == in_process(rows, ids)


@settings(deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    shapes=st.lists(
        st.tuples(st.integers(1, 40), st.integers(1, 40)) | st.just((1, 2)), min_size=1, max_size=12
    ),
    over=st.sampled_from(["burst", "socket"]),
)
def test_requests_of_any_shapes_are_bit_equal_to_the_engine_in_process(
    prepared: nnburst.PreparedModel,
    burst: nnburst.Burst,
    shapes: list[tuple[int, int]],
    over: str,
) -> None:
    for rows, ids in (request(*each) for each in shapes):
        way = burst.execute if over == "burst" else prepared.execute
        found = way([rows, ids]).outputs
        assert [each.tobytes() for each in found] == in_process(rows, ids)


def test_room_for_outputs_grows_and_is_kept(prepared: nnburst.PreparedModel) -> None:
    with prepared.open_burst() as burst:
        again = []
        for rows in (20_000, 19_000, 19_500):
            given_rows, ids = request(rows, 2)
            before = burst.statistics()["executions"]
            (found, _) = burst.execute([given_rows, ids]).outputs
            again.append(burst.statistics()["executions"] - before - 1)
            assert found.shape == (rows, WIDTH)
        assert again == [1, 0, 0]


def test_extents_that_only_a_run_finds_out_follow_inputs_of_any_extent() -> None:
    with (
        connect_to("litert") as device,
        device.prepare(nnburst.load(positions(), as_graph=True)) as prepared,
        prepared.open_burst() as burst,
    ):
        for length in (1, 6, 40_000, 7):
            x = np.random.default_rng(length).integers(0, 2, length).astype(bool)
            x[0] = True
            assert burst.execute([x]).outputs[0].tolist() == np.argwhere(x).tolist()


def test_inputs_that_the_graph_does_not_take_are_refused_and_the_burst_goes_on(
    burst: nnburst.Burst,
) -> None:
    rows, ids = request(3, 3)
    with pytest.raises(InvalidArgument, match="rank 1"):
        burst.execute([rows[0], ids])
    with pytest.raises(InvalidArgument, match="shape"):
        burst.execute([rows[:, :3].copy(), ids])
    with pytest.raises(nnburst.GeneralFailure):
        burst.execute([rows, np.array([10**6], np.int32)])  # beyond the table
    found = burst.execute([rows, ids]).outputs
    assert [each.tobytes() for each in found] == in_process(rows, ids)


def broadcast() -> bytes:
    """x + y, whose extents must fit each other."""
    b = TfliteBuilder()
    x, y = (b.input("FLOAT32", (1,), name=name, shapeSignature=[-1]) for name in "xy")
    b.operator("ADD", [x, y], [b.output("FLOAT32", (1,), shapeSignature=[-1])], "AddOptions")
    return b.finish()


def test_extents_that_do_not_fit_each_other_are_refused_and_the_burst_goes_on() -> None:
    with (
        connect_to("litert") as device,
        device.prepare(nnburst.load(broadcast(), as_graph=True)) as prepared,
        prepared.open_burst() as burst,
    ):
        one, three, four = (np.ones(n, np.float32) for n in (1, 3, 4))
        for _ in range(2):
            with pytest.raises(nnburst.GeneralFailure):
                burst.execute([three, four])
            assert burst.execute([three, three]).outputs[0].tolist() == [2, 2, 2]
            assert burst.execute([one, one]).outputs[0].tolist() == [2]


def test_requests_of_many_shapes_are_bound_to_one_interpreter(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Eight of them would be eight times the memory; resizing costs less than a run does."""
    made: list[GraphInterpreter] = []

    def counted(*arguments: Any) -> GraphInterpreter:
        made.append(GraphInterpreter(*arguments))
        return made[-1]

    monkeypatch.setattr(whole_graph, "GraphInterpreter", counted)
    imported = nnburst.load(CONTENT, as_graph=True)
    prepared = litert().prepare(imported.model, list(imported.pools))
    bound = []
    for count in range(2, 10):
        given = request(count, count + 1)
        rooms = [np.zeros((count, WIDTH), np.float32), np.zeros((count + 1, 2), np.float32)]
        execution = prepared.bind(*([argument(a) for a in side] for side in (given, rooms)))
        bound.append((execution, rooms, in_process(*given)))
    for execution, rooms, expected in (*bound, *reversed(bound)):
        assert execution.run().status == ErrorStatus.NONE
        assert [room.tobytes() for room in rooms] == expected
    assert len(made) == 1


def test_a_graph_that_keeps_a_state_has_the_extents_that_its_file_suggests() -> None:
    b = TfliteBuilder()
    x = b.input("FLOAT32", (2,), name="x", shapeSignature=[-1])
    handle, y = b.tensor("RESOURCE", (1,)), b.output("FLOAT32", (2,), shapeSignature=[-1])
    b.operator("VAR_HANDLE", [], [handle], "VarHandleOptions", sharedName="last", container="")
    b.operator("ASSIGN_VARIABLE", [handle, x], [], "AssignVariableOptions")
    b.operator("READ_VARIABLE", [handle], [y], "ReadVariableOptions")
    imported = nnburst.load(b.finish(), as_graph=True)
    with connect_to("litert") as device, device.prepare(imported) as prepared:
        assert [p.dimensions for p in prepared.inputs] == [(2,)]
        assert prepared.execute([np.float32([3, 4])]).outputs[0].tolist() == [3, 4]
