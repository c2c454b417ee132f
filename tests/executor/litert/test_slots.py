"""Variables of whole .tflite graphs that stay in the driver: a slot for each sequence, as for ONNX."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from shared_drivers import connect_to

pytest.importorskip("ai_edge_litert", reason="the executor's engine")

import nnburst
from executor.litert.test_whole_graphs import Peer, argument, counter
from nnburst.executor.base import Prepared
from nnburst.executor.built_in import litert
from nnburst.executor.litert import whole_graph
from nnburst.hal.enums import ErrorStatus
from nnburst.hal.errors import InvalidArgument, StateLost
from nnburst.hal.whole_graph import CLOSE_SLOT, OPEN_SLOT
from nnburst.importer.imported_model import ImportedModel
from nnburst.testing.models.tflite_builder import TfliteBuilder
from nnburst.testing.models.tflite_networks import NETWORKS

Array = npt.NDArray[Any]
ONE = np.ones(1, np.float32)


def network(content: bytes | None = None) -> ImportedModel:
    return nnburst.load(content or counter(), as_graph=True, resident=True)


def count(burst: nnburst.Burst, step: float = 1) -> float:
    return float(burst.execute([ONE * np.float32(step)], timeout=60).outputs[0][0])


@pytest.fixture(scope="module")
def device() -> Iterator[nnburst.Device]:
    with connect_to("litert") as made:
        yield made


def test_slots_go_on_from_variables_of_their_own(device: nnburst.Device) -> None:
    with device.prepare(network()) as prepared, prepared.open_burst() as burst:
        assert [p.dimensions for p in burst.inputs] == [(1,)], "a request carries no state"
        slots = [burst.slot() for _ in range(8)]
        for turn in range(1, 5):
            found = [count(slot, step) for step, slot in enumerate(slots)]
            assert found == [turn * step for step in range(8)]
        slots[3].reset()
        assert [count(slot) for slot in slots[2:5]] == [9, 1, 17]
        bound = slots[2].bind()
        bound.inputs[0][...] = 1
        bound.run(timeout=10)
        assert bound.outputs[0].tolist() == [10], "bound requests of a slot go on from its state"


@pytest.mark.parametrize("name", ["VARIABLE-FLOAT32", "SVDF-FLOAT32", "LSTM-FLOAT32"])
def test_a_slot_is_bit_equal_to_an_engine_in_process_of_its_own(
    device: nnburst.Device, name: str
) -> None:
    content = NETWORKS[name]()
    peers = [Peer(content), Peer(content)]
    with device.prepare(network(content)) as prepared, prepared.open_burst() as burst:
        slots = [burst.slot() for _ in peers]
        for seed in range(4):
            for at in (0, 1, 1):
                values = peers[at].values(seed + 7 * at)
                (expected,) = peers[at].run(values)
                (found,) = slots[at].execute(values, timeout=60).outputs
                assert found.tobytes() == expected.tobytes()


def test_a_driver_that_died_has_lost_the_state_until_reset() -> None:
    with (
        connect_to("litert", recover=True) as device,
        device.prepare(network()) as prepared,
        prepared.open_burst() as burst,
        burst.slot() as slot,
    ):
        assert count(slot) == 1
        os.kill(device.pid, signal.SIGKILL)
        for _ in range(3):
            with pytest.raises(StateLost, match=r"reset\(\) begins anew"):
                count(slot)
        slot.reset()
        assert [count(slot), count(slot)] == [1, 2]


def run(prepared: Prepared, word: Array, room: Array, step: Array = ONE) -> ErrorStatus:
    bound = prepared.bind([argument(step), argument(word)], [argument(room)])
    outcome = bound.run()
    bound.close()
    assert bound.run().status == ErrorStatus.INVALID_ARGUMENT
    return outcome.status


def test_a_request_that_is_not_the_next_one_of_its_slot_is_refused() -> None:
    imported = network()
    prepared = litert().prepare(imported.model, list(imported.pools))
    word, room = np.array([9, 0], np.uint64), np.zeros(1, np.float32)
    lost, fine = ErrorStatus.DEVICE_UNAVAILABLE, ErrorStatus.NONE
    assert run(prepared, word, room) == lost, "it is not open"
    for steps, status in [(OPEN_SLOT, fine), (0, fine), (0, lost), (2, lost), (1, fine)]:
        word[1] = steps
        assert run(prepared, word, room) == status
    assert room.tolist() == [2]
    for number, steps in [(0, OPEN_SLOT), (0, 0), (2**63, 2), (9, CLOSE_SLOT), (9, 2)]:
        word[:] = number, steps
        status = run(prepared, word, room)
        assert status == fine if steps == CLOSE_SLOT else status != fine
    with pytest.raises(InvalidArgument, match="too few bytes"):
        prepared.bind([argument(ONE), argument(word[:1])], [argument(room)])
    with pytest.raises(
        InvalidArgument, match="1 inputs and 1 outputs given, the graph has 2 and 1"
    ):
        prepared.bind([argument(ONE)], [argument(room)])
    prepared.close()


def test_a_run_without_room_for_its_output_counts_once_if_it_is_repeated() -> None:
    imported = network()
    prepared = litert().prepare(imported.model, list(imported.pools))
    word, room = np.array([9, OPEN_SLOT], np.uint64), np.zeros(1, np.float32)
    run(prepared, word, room)
    short = argument(np.zeros(0, np.float32))
    word[1] = 0
    for other, after in [(ONE, ErrorStatus.NONE), (2 * ONE, ErrorStatus.DEVICE_UNAVAILABLE)]:
        outcome = prepared.bind([argument(ONE), argument(word)], [short]).run()
        assert outcome.status == ErrorStatus.OUTPUT_INSUFFICIENT_SIZE
        assert run(prepared, word, room, other) == after
        word[1] += 1
    assert room.tolist() == [1], "the run before the repetition was not another one"


def test_slots_are_limited_and_closing_one_makes_room(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(whole_graph, "MAX_SLOTS", 2)
    imported = network()
    prepared = litert().prepare(imported.model, list(imported.pools))
    room = np.zeros(1, np.float32)
    for number, steps, status in [
        (1, OPEN_SLOT, ErrorStatus.NONE),
        (2, OPEN_SLOT, ErrorStatus.NONE),
        (3, OPEN_SLOT, ErrorStatus.RESOURCE_EXHAUSTED_PERSISTENT),
        (2, OPEN_SLOT, ErrorStatus.NONE),  # anew
        (1, CLOSE_SLOT, ErrorStatus.NONE),
        (3, OPEN_SLOT, ErrorStatus.NONE),
        (3, 0, ErrorStatus.NONE),
        (1, 0, ErrorStatus.DEVICE_UNAVAILABLE),
    ]:
        assert run(prepared, np.array([number, steps], np.uint64), room) == status


@pytest.mark.parametrize("order", ["close", "open"])
def test_a_slot_that_is_closed_or_opened_anew_during_a_run_ends_with_the_run(order: str) -> None:
    class Engine:
        """Stands for an engine with variables, of which none is run here."""

    slots = whole_graph.Slots(Engine, Engine())  # type: ignore[arg-type]
    assert slots.open(1).status == ErrorStatus.NONE
    running = slots.enter(1, 0)
    assert isinstance(running, whole_graph._Slot)
    assert getattr(slots, order)(1).status == ErrorStatus.NONE
    slots.leave(1, running, 1)
    assert list(slots._slots) == ([1] if order == "open" else [])
    assert slots.open(1).status == ErrorStatus.NONE
    assert slots.enter(1, 0) is not running


def test_slots_of_a_file_without_variables_are_refused_by_name() -> None:
    b = TfliteBuilder()
    b.operator("NEG", [b.input("FLOAT32", (2,))], [b.output("FLOAT32", (2,))], "NegOptions")
    with pytest.raises(InvalidArgument, match="resident: the file has no variables"):
        network(b.finish())
