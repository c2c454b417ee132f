"""AIDL's burst: memory goes along once, what is closed is forgotten, deadlines hold."""

from __future__ import annotations

import gc
import os
import signal
import threading
import weakref
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from client.burst_helpers import copy_model, held_by, standing_still
from client.conftest import add_model
from nnburst import (
    BurstBusy,
    Closed,
    DeadObject,
    Device,
    GeneralFailure,
    InvalidArgument,
    Memory,
    MissedDeadline,
    OutputInsufficientSize,
    PreparedModel,
)
from nnburst.client.device import allocate_buffer
from nnburst.client.hal import open_aidl_burst
from nnburst.control.messages import BurstExecute, ReleaseMemoryResource
from nnburst.hal import AidlBurst
from nnburst.testing.faults.footprint import footprint, settle
from waiting import wait_for

HANG = 20.0


@pytest.fixture
def burst(relu: PreparedModel) -> Iterator[AidlBurst]:
    with open_aidl_burst(relu) as opened:
        yield opened


class Sent:
    """The messages that go over a connection."""

    def __init__(self, device: Device, monkeypatch: pytest.MonkeyPatch) -> None:
        self.executions: list[tuple[tuple[int, ...], int]] = []  # identifiers and descriptors
        self.released: list[int] = []
        connection = device._session.connection
        call = connection.call

        def note(message: Any, expected: Any, fds: Any = (), *, timeout: float) -> Any:
            if isinstance(message, BurstExecute):
                self.executions.append((message.memory_identifiers, len(fds)))
            if isinstance(message, ReleaseMemoryResource):
                self.released.append(message.memory_identifier)
            return call(message, expected, fds, timeout=timeout)

        monkeypatch.setattr(connection, "call", note)


@pytest.fixture
def sent(still: Device, monkeypatch: pytest.MonkeyPatch) -> Sent:
    return Sent(still, monkeypatch)


def pooled(device: Device) -> tuple[Memory, np.ndarray, np.ndarray]:
    memory = device.allocate(16)
    return memory, memory.array(np.float32, (2,)), memory.array(np.float32, (2,), 8)


def test_execution_gives_what_the_other_ways_give(burst: AidlBurst) -> None:
    for number in range(5):
        x = np.array([number, -1], np.float32)
        assert burst.execute([x]).outputs[0].tolist() == [number, 0]


def test_memory_goes_along_with_its_first_request_only(
    relu: PreparedModel, burst: AidlBurst, sent: Sent
) -> None:
    pools = [pooled(relu._prepared.session) for _ in range(3)]
    for number in range(4):
        for _, x, y in pools:
            x[:] = number
            assert burst.execute([x], [y]).outputs[0] is y
            assert y.tolist() == [number] * 2
    burst.execute([pools[0][1]], [pools[2][2]])
    assert sent.executions == [*(((n,), 1) for n in range(3)), *(((n,), 0) for n in range(3))] + [
        ((n,), 0) for _ in range(2) for n in range(3)
    ] + [((0, 2), 0)]


def test_numbers_are_never_used_again(relu: PreparedModel, burst: AidlBurst, sent: Sent) -> None:
    for number in range(4):
        memory, x, y = pooled(relu._prepared.session)
        x[:] = number
        burst.execute([x], [y])
        assert y.tolist() == [number] * 2
        memory.close()
        assert sent.executions[-1] == ((number,), 1)
    burst.execute([np.zeros(2, np.float32)])
    assert sent.executions[-1][0] == (4,)


def test_closed_memory_is_forgotten_by_the_driver(relu: PreparedModel, burst: AidlBurst) -> None:
    burst.execute([np.zeros(2, np.float32)])
    before = held_by(relu._prepared.session)
    for _ in range(20):
        memory, x, y = pooled(relu._prepared.session)
        burst.execute([x], [y])
        memory.close()
    burst.execute([np.zeros(2, np.float32)])
    settle(relu._prepared.session.pid, before, HANG)


def test_memory_outlives_many_bursts_and_remembers_none(relu: PreparedModel) -> None:
    memory, x, y = pooled(relu._prepared.session)
    for _ in range(10):
        with open_aidl_burst(relu) as burst:
            burst.execute([x], [y])
    assert memory._state.callbacks == []
    forgotten = open_aidl_burst(relu)
    forgotten.execute([x], [y])
    gone = weakref.ref(forgotten._identities)
    del forgotten
    gc.collect()
    assert gone() is None
    memory.close()


def test_release_of_what_is_no_memory_is_refused(burst: AidlBurst) -> None:
    for other in (5, np.zeros(2, np.float32), None):
        with pytest.raises(InvalidArgument, match=r"^memory is of type .*, expected a Memory"):
            burst.release_memory_resource(other)  # type: ignore[arg-type]


def test_memory_may_be_released_and_used_again(
    relu: PreparedModel, burst: AidlBurst, sent: Sent
) -> None:
    memory, x, y = pooled(relu._prepared.session)
    for number in range(3):
        x[:] = number
        burst.execute([x], [y])
        assert y.tolist() == [number] * 2
        burst.release_memory_resource(memory)
        burst.release_memory_resource(memory)
    assert [identifiers for identifiers, _ in sent.executions] == [(0,), (1,), (2,)]
    assert sent.released == [0, 1, 2]
    memory.close()
    burst.execute([np.zeros(2, np.float32)])
    assert sent.released == [0, 1, 2]


def test_more_memory_than_the_driver_shall_remember_is_sent_each_time(
    relu: PreparedModel, burst: AidlBurst, sent: Sent
) -> None:
    pools = [pooled(relu._prepared.session) for _ in range(70)]
    for _ in range(2):
        for number, (_, x, y) in enumerate(pools):
            x[:] = number
            burst.execute([x], [y])
            assert y.tolist() == [number] * 2
    assert sent.executions[-1] == ((-1,), 1)
    assert sent.executions[70] == ((0,), 0)


def test_measured_execution_is_timed_in_nanoseconds(burst: AidlBurst) -> None:
    x = np.zeros(2, np.float32)
    result = burst.execute([x], measure=True)
    assert result.timing_ns is not None
    device, driver = result.timing_ns.time_on_device_ns, result.timing_ns.time_in_driver_ns
    assert device is not None
    assert driver is not None
    assert device <= driver
    assert result.timing.time_on_device == -(-device // 1000)
    assert not burst.execute([x]).timing.measured


def test_output_of_open_shape_gets_the_room_that_it_needs(still: Device) -> None:
    x = np.ones(40_000, np.float32)
    with (
        still.prepare(add_model((0,), output=(0,))) as prepared,
        open_aidl_burst(prepared) as burst,
    ):
        assert burst.execute([x, x]).outputs[0].tolist() == [2] * 40_000
        with pytest.raises(OutputInsufficientSize) as raised:
            burst.execute([x, x], [np.zeros(7, np.float32)])
        assert raised.value.output_shapes[0].dimensions == (40_000,)


def test_requests_may_name_buffers(relu: PreparedModel, burst: AidlBurst) -> None:
    with allocate_buffer(relu._prepared.session, (), [(relu, 0)], (), 30.0) as buffer:
        for number in range(3):
            x = np.full(2, number, np.float32)
            assert burst.execute([x], [buffer]).outputs[0] is buffer
            assert buffer.copy_to().tolist() == [number] * 2


def test_arguments_are_checked(burst: AidlBurst) -> None:
    with pytest.raises(InvalidArgument, match="inputs: 0 arrays"):
        burst.execute([])
    with pytest.raises(InvalidArgument, match="dtype"):
        burst.execute([np.zeros(2, np.int8)])
    with pytest.raises(InvalidArgument, match="timeout"):
        burst.execute([np.zeros(2, np.float32)], timeout=-1)


def test_second_execution_at_the_same_time_is_refused(still: Device, burst: AidlBurst) -> None:
    x, results = np.ones(2, np.float32), []
    with standing_still(still):
        thread = threading.Thread(target=lambda: results.append(burst.execute([x])))
        thread.start()
        wait_for(lambda: bool(burst._under_way))
        with pytest.raises(BurstBusy, match="one at a time"):
            burst.execute([x])
    thread.join(HANG)
    assert results[0].outputs[0].tolist() == [1, 1]


def test_deadline_is_honoured(still: Device, burst: AidlBurst) -> None:
    x = np.ones(2, np.float32)
    with standing_still(still), pytest.raises(MissedDeadline):
        burst.execute([x], timeout=0.01)

    def works() -> bool:
        try:
            return bool(burst.execute([x]).outputs[0].tolist() == [1, 1])
        except GeneralFailure:  # the late one is still under way
            return False

    wait_for(works)


def test_bursts_of_one_model_know_nothing_of_each_other(relu: PreparedModel) -> None:
    memory, x, y = pooled(relu._prepared.session)
    with open_aidl_burst(relu) as one, open_aidl_burst(relu) as other:
        for burst in (one, other):
            x[:] = 3
            burst.execute([x], [y])
        one.release_memory_resource(memory)
        other.execute([x], [y])
        assert y.tolist() == [3, 3]


def test_released_model_is_kept(still: Device) -> None:
    prepared = still.prepare(copy_model())
    burst = open_aidl_burst(prepared)
    prepared.close()
    assert burst.execute([np.ones(2, np.float32)]).outputs[0].tolist() == [1, 1]
    burst.close()


def test_closed_burst_refuses_calls_and_costs_nothing(relu_by_socket: PreparedModel) -> None:
    relu = relu_by_socket
    x = np.ones(2, np.float32)
    for _ in range(2):  # the second one binds the request, which stays
        relu.execute([x])
    with open_aidl_burst(
        relu
    ) as first:  # and so does the pool that a burst's arrays are copied through
        first.execute([x])
    own, driver = footprint(os.getpid()), held_by(relu._prepared.session)
    burst = open_aidl_burst(relu)
    burst.execute([x])
    burst.close()
    burst.close()
    assert "closed" in repr(burst)
    with pytest.raises(Closed):
        burst.execute([x])
    with pytest.raises(Closed):
        burst.release_memory_resource(relu._prepared.session.allocate(8))
    forgotten = open_aidl_burst(relu)
    forgotten.execute([x])
    gone = weakref.ref(forgotten)
    del forgotten
    gc.collect()
    assert gone() is None
    for _ in range(2):  # the second one binds the request, which stays
        relu.execute([x])
    settle(os.getpid(), own, HANG)
    settle(relu._prepared.session.pid, driver, HANG)


def test_dead_driver_is_a_dead_object(own_device: Device) -> None:
    with own_device.prepare(copy_model()) as prepared:
        burst = open_aidl_burst(prepared)
        memory = own_device.allocate(8)
        burst.execute([memory.array(np.float32, (2,))])
        os.kill(own_device.pid, signal.SIGKILL)
        with pytest.raises(DeadObject):
            burst.execute([np.ones(2, np.float32)])
        with pytest.raises(DeadObject):
            burst.release_memory_resource(memory)
        memory.close()
        burst.close()


@settings(max_examples=25)
@given(
    st.lists(
        st.tuples(
            st.sampled_from(["execute", "execute", "release", "close"]),
            st.integers(0, 3),
            st.integers(0, 3),
        ),
        max_size=30,
    )
)
def test_any_order_of_calls_reads_and_writes_the_right_memory(
    relu: PreparedModel, steps: list[tuple[str, int, int]]
) -> None:
    pools = [pooled(relu._prepared.session) for _ in range(4)]
    with open_aidl_burst(relu) as burst:
        for number, (what, source, target) in enumerate(steps):
            memory, x, _ = pools[source]
            if what == "close":
                memory.close()
                pools[source] = pooled(relu._prepared.session)
            elif what == "release":
                burst.release_memory_resource(memory)
            else:
                x[:], y = number, pools[target][2]
                burst.execute([x], [y])
                assert y.tolist() == [number] * 2
