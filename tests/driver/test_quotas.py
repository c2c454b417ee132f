"""A client cannot make its worker take the whole machine."""

from __future__ import annotations

import gc
import os
import re
import resource
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest

import nnburst
from nnburst.client.execution.fenced_execution import FencedExecution
from nnburst.client.execution.sync_fence import SyncFence
from nnburst.client.hal import execute_fenced
from nnburst.control import channel
from nnburst.control.channel import MAX_BUFFERS, MAX_BURSTS, MAX_HELD_FDS, Fds
from nnburst.control.messages import Allocate, Allocated, OpenBurst, Ping, Release
from nnburst.driver.burst import SlotCache
from nnburst.driver.confinement import (
    HELD_FDS,
    POOLS,
    SHARED_BYTES,
    Quota,
    machine_memory,
    memory_quota,
)
from nnburst.driver.model.buffers import Room
from nnburst.driver.model.compilation_cache import CacheFiles
from nnburst.driver.model.pools import Pool
from nnburst.fmq.message_queue import MessageQueue
from nnburst.fmq.shared_memory import SharedMemory, address_of
from nnburst.hal.enums import ErrorStatus
from nnburst.hal.errors import ResourceExhausted
from nnburst.hal.model import Model
from nnburst.hal.types import BufferDesc, BufferRole
from nnburst.serialize import REQUEST_DATUM, RESULT_DATUM
from shared_drivers import connect_to

PERSISTENT = ErrorStatus.RESOURCE_EXHAUSTED_PERSISTENT
TRANSIENT = ErrorStatus.RESOURCE_EXHAUSTED_TRANSIENT

ALLOCATE = """
import mmap, numpy
from nnburst.driver.confinement import limit_this_process, memory_quota
limit_this_process()
limit_this_process()  # twice is fine
numpy.empty(1 << 20, "u1")
mmap.mmap(-1, memory_quota() + 1)  # shared memory does not count
try:
    numpy.empty(memory_quota() + (1 << 20), "u1")
except MemoryError:
    print("refused")
"""


def test_memory_beyond_the_quota_is_a_memory_error() -> None:
    command = [sys.executable, "-c", ALLOCATE]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout == "refused\n"


def test_worker_is_limited() -> None:
    with connect_to("null") as device:
        lines = Path(f"/proc/{device.pid}/limits").read_text().splitlines()
    (data,) = (line for line in lines if line.startswith("Max data size"))
    assert int(data.split()[3]) < 2 * memory_quota()


def test_worker_may_open_enough_files_for_its_quotas() -> None:
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    with connect_to("null") as device:
        lines = Path(f"/proc/{device.pid}/limits").read_text().splitlines()
    (files,) = (line for line in lines if line.startswith("Max open files"))
    assert int(files.split()[3]) == hard


def test_charge_comes_back_when_it_is_closed_or_forgotten() -> None:
    quota = Quota("things", 3)
    first, second = quota.charge(2), quota.charge()
    with pytest.raises(ResourceExhausted, match="1 more things: the client has 3 of 3") as caught:
        quota.charge()
    assert caught.value.status == TRANSIENT
    first.close()
    first.close()
    assert quota.taken == 1
    del second
    gc.collect()
    assert quota.taken == 0


class _InACycle:
    """Is freed, with its charge, by the garbage collector."""

    def __init__(self, quota: Quota) -> None:
        self.itself = self
        self.charge = quota.charge()


def test_garbage_collector_may_give_a_charge_back_in_the_middle_of_another() -> None:
    quota, refused = Quota("things", 3), 0

    def take() -> None:
        nonlocal refused
        for _ in range(3000):
            try:
                _InACycle(quota)
            except ResourceExhausted:
                refused += 1

    before = gc.get_threshold()
    gc.set_threshold(1)
    try:
        taking = threading.Thread(target=take, daemon=True)
        taking.start()
        taking.join(30)
    finally:
        gc.set_threshold(*before)
    assert not taking.is_alive()
    assert refused
    gc.collect()
    assert quota.taken == 0


class _Amount(int):
    """Calls a function whenever a quota adds it up, since the collector may run at any instruction."""

    happens: Callable[[], object]

    def __radd__(self, other: int) -> int:
        self.happens()
        return other + int(self)


def test_charge_that_comes_back_between_any_two_steps_of_another_is_counted_once() -> None:
    quota = Quota("things", 5)
    first, amount = quota.charge(2), _Amount(1)
    amount.happens = first.close
    taking = threading.Thread(target=quota.charge, args=[amount], daemon=True)
    taking.start()
    taking.join(30)
    assert not taking.is_alive()
    gc.collect()
    assert quota.taken == 0


@pytest.fixture
def few_pools(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[], int]]:
    """Allow two more pools than exist; returns a function for the number that is in use."""
    gc.collect()
    before = POOLS.taken
    monkeypatch.setattr(POOLS, "limit", before + 2)
    yield lambda: POOLS.taken - before
    gc.collect()


def test_pool_beyond_the_quota_is_refused_and_leaves_no_descriptor(
    few_pools: Callable[[], int],
) -> None:
    pools = [Pool(SharedMemory.create(8)) for _ in range(2)]
    memory = SharedMemory.create(8)
    with pytest.raises(ResourceExhausted, match="more pools"):
        Pool(memory)
    assert memory.closed
    for pool in pools:
        pool.close()
    assert few_pools() == 0


def test_slots_are_pools_until_they_are_freed(few_pools: Callable[[], int]) -> None:
    slots = SlotCache(lambda wanted, _: [SharedMemory.create(8) for _ in wanted])
    slots.resolve([1, 2])
    with pytest.raises(ResourceExhausted):
        slots.resolve([1, 2, 3])
    slots.release(1)
    slots.resolve([2, 3])
    assert few_pools() == 2
    slots.close()
    assert few_pools() == 0


def test_buffers_and_pools_share_one_quota_of_bytes(monkeypatch: pytest.MonkeyPatch) -> None:
    gc.collect()
    before = SHARED_BYTES.taken
    monkeypatch.setattr(SHARED_BYTES, "limit", before + 100)
    pool, room = Pool(SharedMemory.create(60)), Room(40)
    views = [pool.readable, pool.writable]
    other = Pool(SharedMemory.create(1))
    for make in (lambda: other.readable, lambda: Room(1)):
        with pytest.raises(ResourceExhausted, match="bytes of pools, rings and buffers"):
            make()
    pool.close()
    del room
    gc.collect()
    assert SHARED_BYTES.taken == before + 60  # as long as a view of it lives
    del views
    gc.collect()
    assert SHARED_BYTES.taken == before


def test_room_is_zeroed_and_a_page_behind_it_can_be_read() -> None:
    room = Room(3 * 4096 + 5)
    assert not any(room.input(None))
    assert room.input(None).readonly
    assert address_of(room.output(None)) % 4096 == 0


def test_pool_of_more_than_the_machine_has_is_refused_and_the_driver_goes_on(
    model: Model,
) -> None:
    ones = np.ones((2, 3), np.float32)
    with connect_to("reference") as device, device.prepare(model) as prepared:
        with device.allocate(machine_memory() + 4096) as memory:
            far = memory.array(np.float32, (2, 3))
            with pytest.raises(ResourceExhausted, match="bytes of pools"):
                prepared.execute([far, ones])
        assert np.all(prepared.execute([ones, ones]).outputs[0] == 2)


def test_bursts_beyond_the_quota_are_refused_and_the_others_work(model: Model) -> None:
    ones = np.ones((2, 3), np.float32)
    with connect_to("reference") as device, device.prepare(model) as prepared:
        bursts = [prepared.open_burst(channel_length=64, spin_window=0) for _ in range(MAX_BURSTS)]
        with pytest.raises(ResourceExhausted, match="256 objects of class") as caught:
            prepared.open_burst()
        assert caught.value.status == PERSISTENT
        assert np.all(bursts[-1].execute([ones, ones]).outputs[0] == 2)
        bursts.pop().close()
        with prepared.open_burst() as burst:
            assert np.all(burst.execute([ones, ones]).outputs[0] == 2)
        for burst in bursts:
            burst.close()


def test_buffers_beyond_the_quota_are_refused(raw: Any, model: Model) -> None:
    raw.introduce()
    handle = raw.prepare(model)
    message = Allocate(BufferDesc(), (handle,), (BufferRole(0, 0),))
    held = [raw.call(message).result for _ in range(MAX_BUFFERS)]
    reply = raw.call(message)
    assert (reply.status, reply.result) == (PERSISTENT, None)
    assert "1024 objects of class DeviceBuffer" in reply.message
    last = held[-1]
    assert isinstance(last, Allocated)
    assert raw.call(Release(last.handle)).status == ErrorStatus.NONE
    again = raw.call(message).result
    assert again.token == last.token


def test_buffer_larger_than_the_quota_is_refused(raw: Any) -> None:
    raw.introduce()
    builder = nnburst.ModelBuilder()
    x = builder.input(nnburst.OperandType.TENSOR_FLOAT32, (0, 0))
    y = builder.output(nnburst.OperandType.TENSOR_FLOAT32, (0, 0))
    builder.operation(nnburst.OperationType.RELU, [x], [y])
    handle = raw.prepare(builder.build())
    for dimensions in ((2**32 - 1, 2**32 - 1), (machine_memory(), 1)):
        extents = tuple(min(d, 2**32 - 1) for d in dimensions)
        reply = raw.call(Allocate(BufferDesc(extents), (handle,), (BufferRole(0, 0),)))
        assert reply.status in (TRANSIENT, PERSISTENT), reply.message
    assert raw.call(Ping()).status == ErrorStatus.NONE


def test_fences_beyond_the_quota_are_refused_and_those_within_still_signal(model: Model) -> None:
    ones = np.ones((2, 3), np.float32)
    with connect_to("reference") as device, device.prepare(model) as prepared:
        start, signaller = SyncFence.create()
        waiting: list[FencedExecution] = []
        with start:
            fences = [start] * 60
            with pytest.raises(ResourceExhausted, match="descriptors of fences") as caught:
                waiting.extend(
                    execute_fenced(prepared, [ones, ones], wait_for=fences) for _ in range(100)
                )
            assert caught.value.status == TRANSIENT
            assert len(waiting) == MAX_HELD_FDS // 60
            assert np.all(prepared.execute([ones, ones]).outputs[0] == 2)
            signaller.signal()
            for execution in waiting:
                assert np.all(execution.result(30).outputs[0] == 2)
                execution.close()
            with execute_fenced(prepared, [ones, ones], wait_for=fences) as again:
                assert np.all(again.result(30).outputs[0] == 2)


def test_cache_files_are_counted_until_they_are_closed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(HELD_FDS, "limit", HELD_FDS.taken + 2)
    files = CacheFiles(Fds(os.pipe()), 0, 1, 1)
    more = Fds(os.pipe())
    with pytest.raises(ResourceExhausted, match="cache files"):
        CacheFiles(more, 0, 1, 1)
    files.close()
    CacheFiles(more, 0, 1, 1).close()


def test_ring_larger_than_the_quota_is_refused(raw: Any, model: Model) -> None:
    raw.introduce()
    handle = raw.prepare(model)
    results = MessageQueue.create(RESULT_DATUM, 64)
    huge = SharedMemory.create(machine_memory() + 4096)
    encoded = [
        msgspec.Raw(msgspec.msgpack.encode(q.descriptor))
        for q in (MessageQueue.create(REQUEST_DATUM, 64), results)
    ]
    message = OpenBurst(handle, 1, *encoded)
    reply = raw.call(message, [huge.fd, results.memories[0].fd])
    assert reply.status == TRANSIENT
    assert "rings" in reply.message
    huge.close()
    results.close()
    assert raw.call(Ping()).status == ErrorStatus.NONE


PAGE = Path(__file__).parents[2] / "docs" / "quotas.md"
ROWS = re.findall(r"^\|[^|]*\| ([\d,]+) \| `(\w+)` \|", PAGE.read_text(), re.MULTILINE)


@pytest.mark.parametrize(("number", "constant"), ROWS)
def test_quotas_are_those_that_the_documents_say(number: str, constant: str) -> None:
    assert getattr(channel, constant) == int(number.replace(",", ""))


def test_documents_say_the_quotas() -> None:
    assert {constant for _, constant in ROWS} > {"MAX_MODELS", "MAX_POOLS", "MAX_CALL_BYTES"}
