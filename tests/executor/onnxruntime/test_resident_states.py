"""States that stay in the driver: a decoder in three forms, a streaming encoder, slots, lost states."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Iterator
from functools import partial
from importlib import import_module
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from forked_child import refused_in_child, true_in_child
from importer.onnx.graphs import model, node, value
from shared_drivers import connect_to

pytest.importorskip("onnxruntime", reason="the engine")

import nnburst
from nnburst import InvalidArgument, StateLost
from nnburst.client.burst.burst import RingBurst
from nnburst.client.served_model import Variable
from nnburst.executor.base import Argument
from nnburst.executor.built_in import onnxruntime
from nnburst.executor.onnxruntime.executor import GraphPrepared
from nnburst.executor.onnxruntime.native import GROWING, IN_PLACE, IN_TURNS
from nnburst.hal.enums import ErrorStatus
from nnburst.hal.whole_graph import CLOSE_SLOT, OPEN_SLOT, GraphState
from nnburst.testing.models.transformers import (
    BANDS,
    FORMS,
    Form,
    TransformerSize,
    decoder,
    decoder_states,
    speech_encoder,
    speech_states,
)

Array = npt.NDArray[Any]
SIZE = TransformerSize(2, 64, 2, 97, 64)
PROMPT = np.array([[3, 1, 4, 1, 5]])
TOKENS = 12


def network(form: Form, *, index: bool = True) -> nnburst.ImportedModel:
    return nnburst.load(
        decoder(form, SIZE),
        as_graph=True,
        states=decoder_states(form, SIZE),
        resident=True,
        largest=["logits"] if index else [],
    )


class InProcess:
    """The engine, with states that are passed on by numpy."""

    def __init__(self, content: bytes, states: dict[str, str]) -> None:
        ort = import_module("onnxruntime")
        options = ort.SessionOptions()
        options.intra_op_num_threads = 1
        self._session = ort.InferenceSession(content, options, ["CPUExecutionProvider"])
        self._states = states
        self._values = {
            info.name: np.zeros(
                [extent if isinstance(extent, int) else 0 for extent in info.shape],
                np.int64 if info.type == "tensor(int64)" else np.float32,
            )
            for info in self._session.get_inputs()
            if info.name in states
        }

    def run(self, **inputs: Array) -> dict[str, Array]:
        names = [info.name for info in self._session.get_outputs()]
        found = dict(zip(names, self._session.run(None, {**inputs, **self._values}), strict=True))
        self._values = {name: found[after] for name, after in self._states.items()}
        return found


def tokens_in_process(form: Form, prompt: Array = PROMPT) -> list[int]:
    engine, ids, found = InProcess(decoder(form, SIZE), decoder_states(form, SIZE)), prompt, []
    for _ in range(TOKENS):
        found.append(int(engine.run(ids=ids)["logits"].argmax()))
        ids = np.array([[found[-1]]])
    return found


def tokens_of(burst: nnburst.Burst, prompt: Array = PROMPT) -> list[int]:
    """The tokens of the sequence that `execute` continues."""
    ids, found = prompt, []
    for _ in range(TOKENS):
        found.append(int(burst.execute([ids]).outputs[0][0]))
        ids = np.array([[found[-1]]])
    return found


@pytest.fixture(scope="module")
def device() -> Iterator[nnburst.Device]:
    with connect_to("onnxruntime") as made:
        yield made


@pytest.mark.parametrize("form", FORMS)
def test_tokens_are_those_of_the_engine_in_process(device: nnburst.Device, form: Form) -> None:
    expected = tokens_in_process(form)
    with device.prepare(network(form)) as prepared, prepared.open_burst() as burst:
        assert [p.dimensions for p in burst.inputs] == [(1, 0)], "a request carries ids alone"
        assert [p.dimensions for p in burst.outputs] == [(1,)]
        assert tokens_of(burst) == expected
        burst.reset()
        assert tokens_of(burst) == expected


@pytest.mark.parametrize("form", FORMS)
def test_logits_are_bit_equal_to_the_engine_in_process(device: nnburst.Device, form: Form) -> None:
    engine = InProcess(decoder(form, SIZE), decoder_states(form, SIZE))
    with (
        device.prepare(network(form, index=False)) as prepared,
        prepared.open_burst() as burst,
        burst.slot() as slot,
    ):
        for ids in (PROMPT, np.array([[7]]), np.array([[1, 2]]), np.array([[9]])):
            (found,) = slot.execute([ids]).outputs
            assert found.tobytes() == engine.run(ids=ids)["logits"].tobytes()


def test_slots_go_on_from_states_of_their_own(device: nnburst.Device) -> None:
    prompts = [np.array([[n, n + 1, n + 2]]) for n in range(8)]
    expected = [tokens_in_process("scatter", prompt) for prompt in prompts]
    with device.prepare(network("scatter")) as prepared, prepared.open_burst() as burst:
        slots = [burst.slot() for _ in prompts]
        ids, found = list(prompts), [[] for _ in prompts]  # type: ignore[var-annotated]
        for _ in range(TOKENS):
            for at, slot in enumerate(slots):  # in turns
                found[at].append(int(slot.execute([ids[at]]).outputs[0][0]))
                ids[at] = np.array([[found[at][-1]]])
        assert found == expected


def test_all_requests_of_a_slot_go_on_from_one_state_and_others_from_their_own(
    device: nnburst.Device,
) -> None:
    expected = tokens_in_process("grouped")
    with device.prepare(network("grouped")) as prepared, prepared.open_burst() as burst:
        with burst.slot() as slot:
            first = int(slot.execute([PROMPT]).outputs[0][0])
            token = nnburst.Memory(8).array(np.int64, (1, 1))
            bound = slot.bind([token])
            found = [first]
            for _ in range(TOKENS - 3):
                token[...] = found[-1]
                found.append(int(bound.run().outputs[0][0]))
            step = slot.function([token])
            found.append(int(step(np.array([[found[-1]]]))[0][0]))
            token[...] = found[-1]
            found.append(int(bound.submit().result().outputs[0][0]))
            assert found == expected
        alone = burst.bind([token])
        token[...] = 3
        expected = [int(x) for x in two_runs_in_process(token)]
        assert [int(alone.run().outputs[0][0]) for _ in range(2)] == expected


def two_runs_in_process(ids: Array) -> list[int]:
    engine = InProcess(decoder("grouped", SIZE), decoder_states("grouped", SIZE))
    return [int(engine.run(ids=np.array(ids))["logits"].argmax()) for _ in range(2)]


def test_an_event_loop_waits_for_tokens(device: nnburst.Device) -> None:
    async def tokens(burst: nnburst.Burst) -> list[int]:
        with burst.slot() as slot:
            found = [int(slot.execute([PROMPT]).outputs[0][0])]
            token = nnburst.Memory(8).array(np.int64, (1, 1))
            bound = slot.bind([token])
            while len(found) < TOKENS:
                token[...] = found[-1]
                found.append(int((await bound.run_async()).outputs[0][0]))
            return found

    with device.prepare(network("concat")) as prepared, prepared.open_burst() as burst:
        assert asyncio.run(tokens(burst)) == tokens_in_process("concat")


def test_a_stream_of_speech_goes_on_from_what_it_has_heard(device: nnburst.Device) -> None:
    size = TransformerSize(2, 48, 2, 0, 8)
    content, states = speech_encoder(size), speech_states(size)
    engine = InProcess(content, states)
    imported = nnburst.load(content, as_graph=True, states=states, resident=True)
    random = np.random.default_rng(0)
    with device.prepare(imported) as prepared, prepared.open_burst() as burst:
        for length in (8, 8, 3, 8, 1):
            frames = random.standard_normal((1, length, BANDS)).astype(np.float32)
            (found,) = burst.execute([frames]).outputs
            assert found.tobytes() == engine.run(frames=frames)["hidden"].tobytes()


@pytest.mark.parametrize(
    ("states", "side"), [({"last": "x"}, "an input"), ({"sum": "next"}, "an output")]
)
def test_a_state_that_no_node_writes_or_that_is_an_output_is_refused(
    device: nnburst.Device, states: dict[str, str], side: str
) -> None:
    every = [value(name, "f4", (2,)) for name in ("x", "last", "sum", "next")]
    nodes = [node("Add", "sum x", "next"), node("Mul", "last x", "y")]
    made = model(nodes, every[:3], [value("y", "f4", (2,)), *every[0:1], *every[2:]])
    content = made.SerializeToString()
    imported = nnburst.load(content, as_graph=True, states=states, resident=True)
    with pytest.raises(InvalidArgument, match=f"is {side} of the graph, too"):
        device.prepare(imported)


def test_a_state_that_a_file_lists_twice_is_refused(device: nnburst.Device) -> None:
    sides = [value("x", "f4", (2,)), value("sum", "f4", (2,))], [value("next", "f4", (2,))] * 2
    content = model([node("Add", "sum x", "next")], *sides).SerializeToString()
    imported = nnburst.load(content, as_graph=True, states={"sum": "next"}, resident=True)
    with pytest.raises(InvalidArgument, match="'next' is 2 outputs of the graph, expected one"):
        device.prepare(imported)


def test_states_beside_those_that_stay_in_the_driver_are_refused_before_a_burst_is_opened(
    device: nnburst.Device, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened: list[object] = []
    with device.prepare(network("concat")) as prepared:
        monkeypatch.setattr(RingBurst, "_open", lambda *given, **_: opened.append(given))
        with pytest.raises(InvalidArgument, match="states: those of the model stay"):
            prepared.open_burst(states=[Variable("key", 0, 0, np.zeros(1, np.float32))])
    assert opened == []


# -- where states lie ------------------------------------------------------------------------------


def run(prepared: Any, word: Array, ids: Array) -> ErrorStatus:
    index = np.zeros(1, np.int64)
    given = [
        Argument(array.reshape(-1).view(np.uint8), array.shape) for array in (ids, word, index)
    ]
    status: ErrorStatus = prepared.bind(given[:2], given[2:]).run().status
    return status


@pytest.mark.parametrize("form", FORMS)
def test_present_is_written_over_past_where_the_operator_permits_it(form: Form) -> None:
    imported = network(form)
    prepared = onnxruntime().prepare(imported.model, list(imported.pools))
    assert isinstance(prepared, GraphPrepared)
    states = prepared._states
    assert states is not None
    word = np.array([5, OPEN_SLOT], np.uint64)
    assert run(prepared, word, PROMPT) == ErrorStatus.NONE
    seen = []
    for steps in range(4):
        before = states.address(5, "past_key_1", written=False)
        written = states.address(5, "past_key_1", written=True)
        word[1] = steps
        assert run(prepared, word, np.array([[1]])) == ErrorStatus.NONE
        seen.append((before, written))
    if form == "concat":
        assert set(states.kinds.values()) == {GROWING}
        assert all(written == 0 for _, written in seen)
        return
    kinds = dict(states.kinds)
    assert kinds.pop("position") == IN_TURNS
    assert set(kinds.values()) == {IN_PLACE}
    assert len({*(read for read, _ in seen), *(written for _, written in seen)}) == 1
    assert seen[0][0] != 0


def test_past_of_open_extents_begins_empty_and_grows_with_each_token(
    device: nnburst.Device,
) -> None:
    heads, head = 2, 8
    width = heads * head
    made = model(
        [
            node(
                "GroupQueryAttention",
                "q k v past_key past_value seqlens_k total",
                "y present_key present_value",
                domain="com.microsoft",
                num_heads=heads,
                kv_num_heads=heads,
            )
        ],
        [
            *(value(name, "f4", (1, "tokens", width)) for name in "qkv"),
            value("past_key", "f4", (1, heads, "past", head)),
            value("past_value", "f4", (1, heads, "past", head)),
            value("seqlens_k", "i4", (1,)),
            value("total", "i4", (1,)),
        ],
        [
            value("y", "f4", (1, "tokens", width)),
            value("present_key", "f4", (1, heads, "total", head)),
            value("present_value", "f4", (1, heads, "total", head)),
        ],
        domains=["com.microsoft"],
    ).SerializeToString()
    states = {"past_key": "present_key", "past_value": "present_value"}
    engine = InProcess(made, states)
    for name in states:
        engine._values[name] = np.zeros((1, heads, 0, head), np.float32)
    imported = nnburst.load(made, as_graph=True, states=states, resident=True)
    random, total = np.random.default_rng(0), 0
    with (
        device.prepare(imported) as prepared,
        prepared.open_burst() as burst,
        burst.slot() as slot,
    ):
        for count in (5, 1, 1, 3):
            total += count
            q, k, v = random.standard_normal((3, 1, count, width), np.float32)
            lengths, last = np.array([total], np.int32), np.array([total - 1], np.int32)
            expected = engine.run(q=q, k=k, v=v, seqlens_k=last, total=lengths)["y"]
            assert np.array_equal(slot.execute([q, k, v, last, lengths]).outputs[0], expected)


def test_a_state_that_something_else_reads_too_is_not_written_over() -> None:
    from importer.onnx.graphs import model, node, value

    made = model(
        [node("TensorScatter", "past k at", "present", axis=-2), node("Add", "past past", "y")],
        [value("past", "f4", (1, 4, 2)), value("k", "f4", (1, 1, 2)), value("at", "i8", (1,))],
        [value("present", "f4", (1, 4, 2)), value("y", "f4", (1, 4, 2))],
        opset=24,
    )
    imported = nnburst.load(
        made.SerializeToString(), as_graph=True, states={"past": "present"}, resident=True
    )
    prepared = onnxruntime().prepare(imported.model, list(imported.pools))
    assert isinstance(prepared, GraphPrepared)
    assert prepared._states is not None
    assert prepared._states.kinds == {"past": IN_TURNS}


# -- what is lost, and what may not be -------------------------------------------------------------


def test_a_driver_that_died_has_lost_the_state_until_reset() -> None:
    expected = tokens_in_process("scatter")
    with (
        connect_to("onnxruntime", recover=True) as device,
        device.prepare(network("scatter")) as prepared,
        prepared.open_burst() as burst,
        burst.slot() as slot,
    ):
        slot.execute([PROMPT])
        os.kill(device.pid, signal.SIGKILL)
        for _ in range(3):
            with pytest.raises(StateLost, match=r"reset\(\) begins anew"):
                slot.execute([np.array([[1]])], timeout=60)
        slot.reset()
        assert tokens_of(slot) == expected


def test_a_request_that_is_not_the_next_one_of_its_slot_is_refused() -> None:
    imported = network("scatter")
    prepared = onnxruntime().prepare(imported.model, list(imported.pools))
    word = np.array([9, 0], np.uint64)
    lost, fine = ErrorStatus.DEVICE_UNAVAILABLE, ErrorStatus.NONE
    ids = np.array([[1]])
    assert run(prepared, word, ids) == lost, "it is not open"
    for steps, status in [(OPEN_SLOT, fine), (0, fine), (0, lost), (2, lost), (1, fine)]:
        word[1] = steps
        assert run(prepared, word, ids) == status
    for number, steps in [(0, OPEN_SLOT), (0, 0), (2**63, 2), (9, CLOSE_SLOT), (9, 2)]:
        word[:] = number, steps
        status = run(prepared, word, ids)
        assert status == fine if steps == CLOSE_SLOT else status != fine


def test_no_client_reaches_the_slot_of_another(device: nnburst.Device) -> None:
    with (
        connect_to("onnxruntime") as other,
        device.prepare(network("scatter")) as mine,
        other.prepare(network("scatter")) as theirs,
        mine.open_burst() as burst,
        burst.slot() as slot,
    ):
        slot.execute([PROMPT])
        number = slot._own._number  # type: ignore[attr-defined]
        with pytest.raises(nnburst.DeviceUnavailable, match="lost"):
            theirs.execute([np.array([[1]]), np.array([number, 1], np.uint64)])


def test_slots_are_limited_and_closing_one_makes_room(device: nnburst.Device) -> None:
    with device.prepare(network("scatter")) as prepared, prepared.open_burst() as burst:
        slots = [burst.slot() for _ in range(1024)]
        with pytest.raises(nnburst.ResourceExhausted, match="1024 slots, as many as it may"):
            burst.slot()
        slots.pop().close()
        burst.slot().close()
        del slots[:512]  # are closed with the next one that opens
        assert tokens_of(burst.slot()) == tokens_in_process("scatter")
        with slots[0] as slot:
            assert slot.execute([PROMPT]).outputs
            assert repr(slot).endswith("with a slot>")
        with pytest.raises(nnburst.Closed):
            slot.execute([PROMPT])
        assert repr(slot).endswith("with a slot that is closed>")


def slow_network() -> nnburst.ImportedModel:
    """y = the sum of the state + x, which a few tenths of a second of multiplications by 1 do not change."""
    size, rounds = 600, 40
    nodes = [
        node("Add", "s x", "a0"),
        *(node("MatMul", f"a{turn} one", f"a{turn + 1}") for turn in range(rounds)),
        node("Identity", f"a{rounds}", "t"),
        node("ReduceMax", f"a{rounds}", "y", keepdims=1),
    ]
    content = model(
        nodes,
        [value("x", "f4", (1,)), value("s", "f4", (size, size))],
        [value("y", "f4", (1, 1)), value("t", "f4", (size, size))],
        {"one": np.eye(size, dtype=np.float32)},
    )
    return nnburst.load(
        content.SerializeToString(), as_graph=True, states={"s": "t"}, resident=True
    )


def test_forked_child_may_not_use_a_slot(device: nnburst.Device) -> None:
    with device.prepare(network("scatter")) as prepared, prepared.open_burst() as burst:
        slot = burst.slot()
        ids = nnburst.Memory(PROMPT.nbytes).array(PROMPT.dtype, PROMPT.shape)
        bound, function = slot.bind([ids]), slot.function([PROMPT])
        for user in (burst, slot):
            user.execute([PROMPT])
            for call in (user.reset, user.slot, partial(user.execute, [PROMPT])):
                assert refused_in_child(call)
        for call in (bound.run, bound.submit, bound.reset, partial(function, PROMPT)):
            assert refused_in_child(call)
        assert refused_in_child(lambda: asyncio.run(bound.run_async()))
        assert true_in_child(lambda: slot.close() is None), "it does nothing"
        slot.reset()
        assert tokens_of(slot) == tokens_in_process("scatter")


@pytest.mark.campaign  # some seconds of computing
def test_a_slot_is_reset_and_closed_although_a_request_of_it_is_late(
    device: nnburst.Device,
) -> None:
    one = np.ones(1, np.float32)
    with device.prepare(slow_network()) as prepared, prepared.open_burst() as burst:
        slots = [burst.slot() for _ in range(1023)]
        with burst.slot() as slot:
            assert slot.execute([one], timeout=60).outputs[0].tolist() == [[1]]
            with pytest.raises(nnburst.MissedDeadline):
                slot.execute([one], timeout=0.001)
            slots.pop().close()  # the late run keeps its place until it ends
            slot.reset()
            assert slot.execute([one], timeout=60).outputs[0].tolist() == [[1]]
            with pytest.raises(nnburst.MissedDeadline):
                slot.execute([one], timeout=0.001)
        assert slots[0].execute([one], timeout=60).outputs[0].tolist() == [[1]]
        slots += [burst.slot(), burst.slot()]  # all 1,024 places are free again but the others'


def test_a_closed_burst_opens_no_slot(device: nnburst.Device) -> None:
    with device.prepare(network("scatter")) as prepared:
        with prepared.open_burst() as burst:
            slot = burst.slot()
        for call in (burst.slot, burst.reset, slot.reset):
            with pytest.raises(nnburst.Closed):
                call()


@pytest.mark.parametrize("recover", [False, True])
def test_an_open_burst_opens_and_resets_slots_after_its_model_was_closed(recover: bool) -> None:
    expected = tokens_in_process("scatter")
    with connect_to("onnxruntime", recover=recover) as device:
        prepared = device.prepare(network("scatter"))
        with prepared.open_burst() as burst, burst.slot() as slot:
            prepared.close()
            with pytest.raises(nnburst.Closed):
                prepared.execute_async([PROMPT, np.zeros(2, np.uint64)])
            for _ in range(2):
                assert tokens_of(slot) == expected
                with burst.slot() as another:
                    assert tokens_of(another) == expected
                slot.reset()
                burst.reset()
                if recover:
                    os.kill(device.pid, signal.SIGKILL)
                    with pytest.raises(StateLost):
                        slot.execute([PROMPT], timeout=60)
                    slot.reset()


def test_a_run_without_room_for_its_output_leaves_the_state_as_it_was(
    device: nnburst.Device,
) -> None:
    imported = nnburst.load(
        decoder("scatter", SIZE),
        as_graph=True,
        states=decoder_states("scatter", SIZE),
        resident=True,
    )
    with (
        device.prepare(imported) as prepared,
        prepared.open_burst() as burst,
        burst.slot() as slot,
    ):
        with pytest.raises(InvalidArgument):
            slot.execute([PROMPT.astype(np.float32)])
        engine = InProcess(decoder("scatter", SIZE), decoder_states("scatter", SIZE))
        (found,) = slot.execute([PROMPT]).outputs
        assert found.tobytes() == engine.run(ids=PROMPT)["logits"].tobytes()


@pytest.mark.parametrize(
    ("state", "message"),
    [
        (GraphState("nothing", "next_position", (1,)), "'nothing' is not an input"),
        (GraphState("position", "nothing", (1,)), "'nothing' is not an output"),
        (GraphState("position", "present_key_0", (1,)), "different types"),
        (GraphState("position", "next_position", (2,)), r"is \[1\], not \[2\]"),
        (GraphState("position", "next_position", (-1,)), r"is \[1\], not \[-1\]"),
    ],
)
def test_states_that_the_graph_has_not_are_refused_by_the_driver(
    state: GraphState, message: str
) -> None:
    from nnburst.executor.onnxruntime.native import ResidentStates, Session
    from nnburst.formats.onnx_model import read_model

    content = decoder("scatter", SIZE)
    with pytest.raises(InvalidArgument, match=message):
        ResidentStates(Session(content, {}, 1), read_model(content), [state])
    twice = GraphState("position", "next_position", (1,))
    with pytest.raises(InvalidArgument, match="twice"):
        ResidentStates(Session(content, {}, 1), read_model(content), [twice, twice])


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"states": {"position": "next_position"}, "as_graph": True}, "resident"),
        ({"resident": True}, "as_graph=True"),
        ({"largest": ["logits"]}, "as_graph=True"),
        ({"largest": ["other"], "as_graph": True}, "largest: 'other'"),
        ({"states": {"ids": "x"}, "resident": True, "as_graph": True}, "'x' is not an output"),
        ({"resident": True, "as_graph": True}, "states"),
    ],
)
def test_options_that_do_not_fit_are_refused_by_name(options: dict[str, Any], message: str) -> None:
    with pytest.raises(InvalidArgument, match=message):
        nnburst.load(decoder("scatter", SIZE), **options)


def test_a_burst_without_states_in_its_driver_has_no_slots(device: nnburst.Device) -> None:
    imported = nnburst.load(decoder("concat", SIZE), as_graph=True)
    with (
        device.prepare(imported) as prepared,
        prepared.open_burst() as burst,
        pytest.raises(InvalidArgument, match="no states that stay in the driver"),
    ):
        burst.slot()
