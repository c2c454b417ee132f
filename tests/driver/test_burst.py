"""The driver's side of a burst: its answers, the memory that it keeps, and the faults that end it."""

from __future__ import annotations

import _thread
import gc
import os
import socket
import threading
from collections.abc import Callable

import numpy as np
import pytest

from descriptors import descriptors
from driver.burst_harness import (
    Harness,
    ScriptedExecution,
    ScriptedExecutor,
    configure,
    encoded,
    relu_model,
    shapes,
)
from nnburst.control.channel import Fds
from nnburst.driver import burst as driver_burst
from nnburst.driver.burst import BurstClient, start_burst
from nnburst.driver.model.prepared_model import PreparedModel
from nnburst.executor.base import NativeCall, Outcome
from nnburst.executor.null import NullPrepared
from nnburst.fmq.message_queue import MessageQueue
from nnburst.fmq.shared_memory import Flavor, SharedMemory
from nnburst.hal.enums import ErrorStatus, ExecutionPreference
from nnburst.hal.errors import DeadObject, GeneralFailure, InvalidArgument, ResourceExhausted
from nnburst.hal.limits import NO_TIMING
from nnburst.serialize import REQUEST_DATUM, RESULT_DATUM
from waiting import wait_for

NOT_MEASURED = (NO_TIMING, NO_TIMING)


# --- answers ---


@pytest.mark.parametrize("measure", [False, True])
def test_measured_success_is_timed_and_others_are_not(measure: bool) -> None:
    with Harness() as burst:
        for _ in range(3):
            status, reported, timing = burst.exchange(burst.packet(0, measure=measure))
            assert (status, reported) == (ErrorStatus.NONE, ())
            times = timing.time_on_device, timing.time_in_driver
            assert times[0] <= times[1] if measure else times == NOT_MEASURED


@pytest.mark.parametrize("status", list(ErrorStatus)[1:])
def test_failure_is_never_timed_and_only_the_first_five_statuses_travel(
    status: ErrorStatus,
) -> None:
    executor = ScriptedExecutor(lambda _: Outcome(status, shapes((2,))))
    insufficient = status == ErrorStatus.OUTPUT_INSUFFICIENT_SIZE
    with Harness(executor) as burst:
        answer = burst.exchange(burst.packet(0, measure=True), 4 if insufficient else 2)
        assert answer[0] == (status if status <= 4 else ErrorStatus.GENERAL_FAILURE)
        assert len(answer[1]) == insufficient
        assert (answer[2].time_on_device, answer[2].time_in_driver) == NOT_MEASURED


def test_execution_that_raises_is_a_general_failure() -> None:
    def fail(_: ScriptedExecution) -> Outcome:
        raise RuntimeError("a bug")

    with Harness(ScriptedExecutor(fail)) as burst:
        for _ in range(2):
            assert burst.exchange(burst.packet(0))[0] == ErrorStatus.GENERAL_FAILURE


def test_shapes_are_reported_where_the_model_leaves_them_open() -> None:
    executor = ScriptedExecutor(lambda _: Outcome(output_shapes=shapes((2,))))
    with Harness(executor, model=relu_model((0,))) as burst:
        for _ in range(2):
            status, reported, _ = burst.exchange(burst.packet(0), 4)
            assert (status, reported) == (ErrorStatus.NONE, shapes((2,)))


@pytest.mark.parametrize("known", [True, False])
def test_native_execution_replaces_python_for_open_shapes_only_if_it_has_them(known: bool) -> None:
    executor = ScriptedExecutor(lambda _: Outcome(output_shapes=shapes((2,))))
    bound = NullPrepared(relu_model()).bind([], [])
    null = bound.native
    call = NativeCall(null.run, null.execution, shapes((2,)) if known else None)
    executor.native = call
    with Harness(executor, model=relu_model((0,))) as burst:
        for measure in (False, True):
            for _ in range(3):
                packet = burst.packet(0, measure=measure)
                status, reported, timing = burst.exchange(packet, 4)
                assert (status, reported) == (ErrorStatus.NONE, shapes((2,)))
                assert (timing.time_on_device != NO_TIMING) == measure
        assert executor.runs == (2 if known else 6)


def test_ill_formed_requests_are_answered_and_the_burst_goes_on() -> None:
    with Harness() as burst:
        good = burst.packet(0)
        for index in range(len(good)):
            bad = good.copy()
            bad.view("u1").reshape(-1, 24)[index, 0] ^= 7
            assert burst.exchange(bad)[0] == ErrorStatus.GENERAL_FAILURE
        assert burst.exchange(good[:1])[0] == ErrorStatus.GENERAL_FAILURE
        assert burst.exchange(good)[0] == ErrorStatus.NONE
        assert burst.executor.runs == 1


def test_two_requests_at_once_are_one_ill_formed_packet() -> None:
    with Harness() as burst:
        packet = burst.packet(0)
        assert burst.exchange(np.concatenate([packet, packet]))[0] == ErrorStatus.GENERAL_FAILURE
        assert burst.exchange(packet)[0] == ErrorStatus.NONE


def test_request_that_the_model_refuses_is_an_invalid_argument() -> None:
    with Harness() as burst:
        packet = burst.packet(0)
        burst.pools[0] = SharedMemory.create(8)  # the output does not lie in it
        assert burst.exchange(packet)[0] == ErrorStatus.INVALID_ARGUMENT


def test_result_larger_than_the_ring_becomes_two_elements() -> None:
    executor = ScriptedExecutor(lambda _: Outcome(output_shapes=shapes((2,))))
    with Harness(executor, model=relu_model((0,)), lengths=(64, 3)) as burst:
        status, reported, timing = burst.exchange(burst.packet(0, measure=True))
        assert (status, reported) == (ErrorStatus.GENERAL_FAILURE, ())
        assert (timing.time_on_device, timing.time_in_driver) == NOT_MEASURED


# --- slots ---


def test_unknown_slots_are_asked_for_once_sorted_and_without_repetition() -> None:
    with Harness() as burst:
        assert burst.exchange(burst.packet(7, 3, 7, 5))[0] == ErrorStatus.NONE
        assert burst.exchange(burst.packet(3, 9, 5, 1))[0] == ErrorStatus.NONE
        assert burst.exchange(burst.packet(9, 7))[0] == ErrorStatus.NONE
        assert burst.asked == [[3, 5, 7], [1, 9]]


def test_any_number_of_slots_is_resolved() -> None:
    with Harness(lengths=(256, 4)) as burst:
        assert burst.exchange(burst.packet(*range(150)))[0] == ErrorStatus.NONE
        assert [s for asked in burst.asked for s in asked] == list(range(150))


@pytest.mark.parametrize(
    ("error", "status"),
    [
        (InvalidArgument("no such slot"), ErrorStatus.INVALID_ARGUMENT),
        (GeneralFailure("no"), ErrorStatus.GENERAL_FAILURE),
        (DeadObject("gone"), ErrorStatus.GENERAL_FAILURE),
        (OSError("too many files"), ErrorStatus.GENERAL_FAILURE),
    ],
)
def test_failing_upcall_fails_the_request_and_is_tried_again(
    error: Exception,
    status: ErrorStatus,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    with Harness() as burst, caplog.at_level("INFO"):
        packet = burst.packet(0)
        with monkeypatch.context() as patch:
            patch.setattr(burst.context._slots, "_get_memories", _raising(error))
            assert burst.exchange(packet)[0] == status
        assert burst.exchange(packet)[0] == ErrorStatus.NONE
    assert str(error) in caplog.text  # a packet has no room for the reason


def _raising(error: Exception) -> Callable[..., object]:
    def call(*_: object) -> object:
        raise error

    return call


def test_freed_slot_means_new_memory_and_its_bindings_are_closed() -> None:
    seen: list[float] = []

    def read(execution: ScriptedExecution) -> Outcome:
        buffer = execution.arguments[0].buffer
        assert buffer is not None
        seen.append(float(buffer.view("<f4")[0]))
        return Outcome()

    with Harness(ScriptedExecutor(read)) as burst:
        packet = burst.packet(0)
        for value in (1, 2):
            burst.pools[0] = SharedMemory.create(64)
            burst.pools[0].map(writable=True).view("<f4")[0] = value
            for _ in range(2):
                burst.exchange(packet)
            burst.context.free_memory(0)
        assert seen == [1, 1, 2, 2]
        assert [execution.closed for execution in burst.executor.bound] == [True, True]
        assert burst.asked == [[0], [0]]


def test_freeing_one_slot_leaves_the_bindings_of_others() -> None:
    with Harness() as burst:
        for slot in (0, 1):
            burst.exchange(burst.packet(slot))
        burst.context.free_memory(0)
        burst.context.free_memory(12345)
        burst.context.free_memory(-1)
        assert [execution.closed for execution in burst.executor.bound] == [True, False]
        burst.exchange(burst.packet(1))
        assert burst.asked == [[0], [1]]


def test_free_memory_waits_for_the_execution_under_way() -> None:
    inside, go_on = threading.Event(), threading.Event()

    def block(_: ScriptedExecution) -> Outcome:
        inside.set()
        assert go_on.wait(20)
        return Outcome()

    with Harness(ScriptedExecutor(block)) as burst:
        burst.send(burst.packet(0))
        assert inside.wait(20)
        freed = threading.Thread(target=burst.context.free_memory, args=(0,))
        freed.start()
        assert not burst.executor.bound[0].closed
        go_on.set()
        freed.join(20)
        assert burst.executor.bound[0].closed
        assert burst.receive()[0] == ErrorStatus.NONE


def test_model_is_held_until_an_execution_without_waiters_is_done(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    inside, go_on = threading.Event(), threading.Event()

    def block(_: ScriptedExecution) -> Outcome:
        inside.set()
        assert go_on.wait(20)
        return Outcome()

    burst = Harness(ScriptedExecutor(block))
    burst.send(burst.packet(0))
    assert inside.wait(20)
    monkeypatch.setattr(driver_burst, "_COMMAND_TIMEOUT", 0.01)
    with pytest.raises(GeneralFailure, match="does not end"):
        burst.context.close()
    assert not burst.released
    go_on.set()
    wait_for(lambda: burst.released == [True])


def test_burst_whose_execution_does_not_close_lets_go_of_all_else(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(ScriptedExecution, "close", _raising(ZeroDivisionError("a mistake")))
    with Harness() as burst:
        burst.exchange(burst.packet(0))
    assert burst.released == [True]
    assert "a mistake" in caplog.text


def test_burst_that_gets_no_thread_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    before = descriptors()
    with monkeypatch.context() as patch:
        patch.setattr(_thread, "start_new_thread", _raising(RuntimeError("can't start new thread")))
        with pytest.raises(ResourceExhausted, match="cannot start the thread"):
            Harness()
    gc.collect()  # what only garbage holds is not kept
    assert descriptors() <= before


def test_command_is_served_between_the_requests_of_a_client_that_never_pauses() -> None:
    with Harness(NullPrepared(relu_model())) as burst:
        packet, stop = burst.packet(0), threading.Event()

        def hammer() -> None:
            while not stop.is_set():
                assert burst.exchange(packet)[0] == ErrorStatus.NONE

        client = threading.Thread(target=hammer)
        client.start()
        try:
            for _ in range(20):
                burst.context.free_memory(0)
        finally:
            stop.set()
        client.join(20)


def test_oldest_binding_goes_where_there_are_too_many(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("nnburst.driver.burst.CAPACITY", 3)
    with Harness() as burst:
        for slot in range(5):
            burst.exchange(burst.packet(slot))
        assert [e.closed for e in burst.executor.bound] == [True, True, False, False, False]
        burst.exchange(burst.packet(4))
        assert len(burst.executor.bound) == 5
        burst.exchange(burst.packet(0))
        assert len(burst.executor.bound) == 6


def test_idle_burst_frees_its_bindings_and_binds_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(driver_burst, "IDLE_NS", 1_000_000)
    idle = threading.Event()
    with Harness() as burst:
        clear = burst.context._bindings.clear

        def note() -> None:
            clear()
            if burst.executor.bound:  # on a busy machine it is idle before the request, too
                idle.set()

        monkeypatch.setattr(burst.context._bindings, "clear", note)
        burst.exchange(burst.packet(0))
        assert idle.wait(20)
        assert burst.executor.bound[0].closed
        assert burst.exchange(burst.packet(0))[0] == ErrorStatus.NONE
        assert burst.asked == [[0]], "the pool itself stays known"


# --- more than one in flight ---


def test_requests_in_flight_are_answered_in_order() -> None:
    with Harness(max_in_flight=8) as burst:
        packets = [burst.packet(slot) for slot in range(8)]
        burst.send(np.concatenate(packets))
        for _ in packets:
            assert burst.receive()[0] == ErrorStatus.NONE
        first_pools = [execution.arguments[0].buffer for execution in burst.executor.bound]
        assert len(first_pools) == 8


def test_ill_formed_packet_of_the_right_length_is_answered_between_good_ones() -> None:
    with Harness(max_in_flight=3) as burst:
        good = burst.packet(0)
        bad = good.copy()
        bad.view("u1").reshape(-1, 24)[1, 0] = 6
        burst.send(np.concatenate([good, bad, good]))
        statuses = [burst.receive()[0] for _ in range(3)]
        assert statuses == [ErrorStatus.NONE, ErrorStatus.GENERAL_FAILURE, ErrorStatus.NONE]


@pytest.mark.parametrize("announced", [0, 64, 2**32 - 1])
@pytest.mark.parametrize("measure", [False, True])
def test_lost_boundary_gets_one_general_failure_and_ends_the_burst(
    announced: int, measure: bool
) -> None:
    burst = Harness(max_in_flight=4)
    good = burst.packet(0, measure=measure)
    lost = good.copy()
    lost.view("<u4").reshape(-1, 6)[0, 1] = announced
    burst.send(np.concatenate([good, lost, good]))
    assert burst.receive()[0] == ErrorStatus.NONE
    assert burst.receive()[0] == ErrorStatus.GENERAL_FAILURE
    assert burst.has_ended.wait(20)
    assert burst.ended == ["a packet boundary was lost"]
    assert burst.results.available_to_read() == 0, "nothing more is answered"
    burst.context.close()


# --- what ends a burst ---


@pytest.mark.parametrize("grantor", [0, 1])
@pytest.mark.parametrize("queue", ["requests", "results"])
@pytest.mark.parametrize("value", [1, 2**63, 2**64 - 24, 24 * 100])
def test_hostile_counter_ends_that_burst_and_no_other(queue: str, grantor: int, value: int) -> None:
    ours = (queue, grantor) in (("requests", 1), ("results", 0))
    with Harness() as bystander:
        burst = Harness(lengths=(64, 2))
        burst.exchange(burst.packet(0))
        target = getattr(burst, queue)
        part = target.descriptor.grantors[grantor]
        words = target.memories[0].map(writable=True)
        before = int(words[part.offset : part.offset + 8].view("<u8")[0])
        words[part.offset : part.offset + 8].view("<u8")[0] = value
        if queue == "requests":
            burst.requests.event_flag.wake(2)  # type: ignore[union-attr]
        if not ours:
            # A counter of the driver's own is output only: it is not read back.
            words[part.offset : part.offset + 8].view("<u8")[0] = before
            assert burst.exchange(burst.packet(0))[0] == ErrorStatus.NONE
        else:
            if queue == "results":
                burst.send(burst.packet(0))
            assert burst.has_ended.wait(20)
            assert burst.ended == ["the counters of its queues are impossible"]
        burst.context.close()
        assert bystander.exchange(bystander.packet(0))[0] == ErrorStatus.NONE


def test_client_that_never_reads_loses_its_burst_and_no_other(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert driver_burst._STUCK_NS <= 1_500_000_000, "it is to be over within 2 s"
    with Harness() as bystander:
        monkeypatch.setattr(driver_burst, "_STUCK_NS", 20_000_000)
        burst = Harness(lengths=(64, 3))
        burst.leave_a_result_without_room()
        assert burst.has_ended.wait(20)
        assert burst.ended == ["its client does not read results"]
        assert burst.executor.bound[0].closed
        assert bystander.exchange(bystander.packet(0))[0] == ErrorStatus.NONE
        burst.context.free_memory(0)
        burst.context.close()


def test_silent_reader_is_not_taken_for_gone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(driver_burst, "_STUCK_NS", 200_000_000)
    with Harness(lengths=(64, 3)) as burst:
        burst.leave_a_result_without_room()
        assert burst.results.read(2) is not None  # without waking the writer
        assert burst.receive()[0] == ErrorStatus.NONE
        assert not burst.ended


def test_close_ends_a_burst_whose_result_finds_no_room() -> None:
    burst = Harness(lengths=(64, 3))
    burst.leave_a_result_without_room()
    burst.context.close()
    assert not burst.ended, "it was asked for"


def test_closed_burst_gives_everything_back() -> None:
    before = descriptors()
    burst = Harness()
    burst.exchange(burst.packet(0, 1))
    burst.context.close()
    burst.context.close()
    burst.context.free_memory(0)
    for queue in (burst.requests, burst.results):
        queue.close()
    for pool in burst.pools.values():
        pool.close()
    gc.collect()  # what only garbage holds is not kept
    assert descriptors() <= before
    assert all(execution.closed for execution in burst.executor.bound)


def test_low_power_burst_never_spins() -> None:
    with Harness(preference=ExecutionPreference.LOW_POWER) as burst:
        for _ in range(5):
            assert burst.exchange(burst.packet(0))[0] == ErrorStatus.NONE
        waiter = burst.context._server.waiter
        assert (waiter.may_spin, waiter.window_ns, waiter.spun_ns) == (0, 0, 0)


# --- opening ---


def _open(requests: MessageQueue, results: MessageQueue, fds: Fds | None = None) -> None:
    prepared = PreparedModel(
        relu_model(), ScriptedExecutor(), ExecutionPreference.FAST_SINGLE_ANSWER
    )
    client = BurstClient(lambda *_: [], lambda _: None, lambda: None)
    if fds is None:
        fds = Fds(os.dup(queue.memories[0].fd) for queue in (requests, results))
    with fds:
        start_burst(prepared, configure(requests, results), fds, client).close()


def _used() -> MessageQueue:
    queue = MessageQueue.create(REQUEST_DATUM, 8)
    queue.write(np.zeros(1, REQUEST_DATUM))
    return queue


CHANNELS: dict[str, Callable[[], MessageQueue]] = {
    "without event flag": lambda: MessageQueue.create(REQUEST_DATUM, 8, event_flag=False),
    "unsynchronized": lambda: MessageQueue.create(REQUEST_DATUM, 8, Flavor.UNSYNCHRONIZED_WRITE),
    "of other elements": lambda: MessageQueue.create("<u8", 8),
    "of one element": lambda: MessageQueue.create(REQUEST_DATUM, 1),
    "used before": _used,
}


@pytest.mark.parametrize("kind", CHANNELS)
@pytest.mark.parametrize("position", [0, 1])
def test_unfit_channel_is_refused_by_name_and_leaves_nothing(kind: str, position: int) -> None:
    good = MessageQueue.create(RESULT_DATUM, 8)
    unfit = CHANNELS[kind]()
    channels = (unfit, good) if position == 0 else (good, unfit)
    before = descriptors()
    name = ("request_channel", "result_channel")[position]
    with pytest.raises(InvalidArgument, match=f"{name}: "):
        _open(*channels)
    gc.collect()  # what only garbage holds is not kept
    assert descriptors() <= before


@pytest.mark.parametrize("position", [0, 1])
def test_channel_that_is_not_sealed_memory_is_refused_by_name(position: int) -> None:
    queues = MessageQueue.create(REQUEST_DATUM, 8), MessageQueue.create(RESULT_DATUM, 8)
    fds = [os.dup(queue.memories[0].fd) for queue in queues]
    os.close(fds[position])
    fds[position] = os.open("/dev/zero", os.O_RDWR)
    name = ("request_channel", "result_channel")[position]
    with pytest.raises(InvalidArgument, match=f"{name}: fd: not a memfd"):
        _open(*queues, fds=Fds(fds))


@pytest.mark.parametrize("count", [0, 1, 4])
def test_one_descriptor_for_each_channel_is_expected(count: int) -> None:
    queues = MessageQueue.create(REQUEST_DATUM, 8), MessageQueue.create(RESULT_DATUM, 8)
    fds = Fds(os.dup(queues[0].memories[0].fd) for _ in range(count))
    with pytest.raises(InvalidArgument, match=f"{count} fds, expected one for each"):
        _open(*queues, fds=fds)


@pytest.mark.parametrize(
    "make",
    [
        lambda: os.open("/dev/null", os.O_RDWR),
        lambda: socket.socket(socket.AF_INET, socket.SOCK_STREAM).detach(),
        lambda: socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM).detach(),
    ],
)
def test_third_descriptor_that_is_not_a_stream_socket_is_refused(make: Callable[[], int]) -> None:
    queues = MessageQueue.create(REQUEST_DATUM, 8), MessageQueue.create(RESULT_DATUM, 8)
    before = descriptors()
    fds = Fds([*(os.dup(queue.memories[0].fd) for queue in queues), make()])
    with pytest.raises(InvalidArgument, match="wakeup_socket: "):
        _open(*queues, fds=fds)
    fds.close()
    gc.collect()  # what only garbage holds is not kept
    assert descriptors() <= before


def test_channel_laid_out_by_the_original_is_served() -> None:
    queues = [
        MessageQueue.create(d, 8, original_layout=True) for d in (REQUEST_DATUM, RESULT_DATUM)
    ]
    assert encoded(queues[0].descriptor)
    _open(*queues)
