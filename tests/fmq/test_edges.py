"""Queues at their edges: signals, forks, odd arguments, and layouts with several regions."""

from __future__ import annotations

import asyncio
import signal
import threading
import time
from typing import Any

import numpy as np
import pytest

from fmq.queues import ELEMENT, counter, create, numbers, other_end
from nnburst._native import lib
from nnburst.fmq import cores
from nnburst.fmq.event_flag import EventFlag, timeout_ns
from nnburst.fmq.message_queue import MessageQueue
from nnburst.fmq.shared_memory import Flavor, GrantorDescriptor, MQDescriptor, SharedMemory
from nnburst.hal.errors import InvalidArgument
from programs import run_program

# --- waiting ---


def test_signal_does_not_cut_a_wait_short() -> None:
    queue, handled = create(4), threading.Event()
    before = signal.signal(signal.SIGUSR1, lambda *_: handled.set())
    main = threading.main_thread().ident or 0

    def disturb_then_write() -> None:
        while not handled.is_set():
            signal.pthread_kill(main, signal.SIGUSR1)
            handled.wait(0.001)
        other_end(queue).write(numbers(0, 1), timeout=20)

    thread = threading.Thread(target=disturb_then_write)
    try:
        thread.start()
        assert queue.read(1, timeout=20) is not None
        thread.join()
    finally:
        signal.signal(signal.SIGUSR1, before)


def test_interrupted_wait_on_a_flag_still_lasts_its_time(monkeypatch: pytest.MonkeyPatch) -> None:
    flag = EventFlag(SharedMemory.create(64).map(writable=True), 0)
    real, calls = lib.nnb_event_flag_wait_unlocked, []

    class Interrupting:
        def __getattr__(self, name: str) -> Any:
            return getattr(lib, name)

        def nnb_event_flag_wait_unlocked(self, *arguments: Any) -> int:
            calls.append(arguments)
            return lib.NNB_EVENT_FLAG_INTERRUPTED if len(calls) < 3 else real(*arguments)

    monkeypatch.setattr("nnburst.fmq.event_flag.lib", Interrupting())
    began = time.monotonic()
    assert flag.wait(1, timeout=0.02) == 0
    assert time.monotonic() - began >= 0.02
    assert len(calls) == 3


def test_blocking_calls_of_zero_elements_return_at_once() -> None:
    queue = create(4)
    found = queue.read(0, timeout=3600)
    assert found is not None
    assert len(found) == 0
    assert queue.write(numbers(0, 0), timeout=3600)


def test_blocking_read_of_more_than_the_capacity_fails_at_once() -> None:
    assert create(4).read(5, timeout=3600) is None


def test_longest_waits_are_taken_and_nonsense_is_refused() -> None:
    assert timeout_ns(1e300) == timeout_ns(10**400) == 2**62
    assert timeout_ns(np.float16(3)) == timeout_ns(np.int8(3)) == 3 * 10**9  # type: ignore[arg-type]
    for nonsense in ("1", None, float("inf"), float("nan"), 0):
        with pytest.raises(InvalidArgument, match="timeout"):
            timeout_ns(nonsense)  # type: ignore[arg-type]


# --- arguments ---


@pytest.mark.parametrize("elements", [[1, 2], 7, "text", None, {1: 2}])
def test_what_is_neither_an_array_nor_a_buffer_is_refused(elements: Any) -> None:
    with pytest.raises(InvalidArgument, match="elements"):
        create(4).write(elements)


@pytest.mark.parametrize("dtype", ["<i4", "<f4", ">u4"])
def test_elements_of_another_kind_are_refused(dtype: str) -> None:
    with pytest.raises(InvalidArgument, match="dtype"):
        create(4).write(np.zeros(1, dtype))


def test_raw_bytes_and_buffers_are_taken_as_elements() -> None:
    queue = create(8)
    for elements in (b"\1\0\0\0", bytearray(4), np.zeros(1, "V4"), numbers(5, 2)[::1], b""):
        assert queue.write(elements)  # type: ignore[arg-type]
    found = queue.read(5)
    assert found is not None
    assert found.tolist() == [1, 0, 0, 5, 6]


def test_array_with_gaps_is_written_as_it_reads() -> None:
    queue = create(8)
    assert queue.write(numbers(0, 8)[::2])
    found = queue.read(4)
    assert found is not None
    assert found.tolist() == [0, 2, 4, 6]


@pytest.mark.parametrize("count", [-1, 2**64, 1.5, "1", None])
def test_count_that_is_not_a_u64_is_refused_everywhere(count: Any) -> None:
    queue = create(4)
    calls = (
        queue.read,
        queue.begin_read,
        queue.begin_write,
        queue.commit_read,
        queue.commit_write,
        lambda n: queue.read(n, timeout=1),
        lambda n: queue.writing(n).__enter__(),
        lambda n: queue.reading(n).__enter__(),
        lambda n: asyncio.run(queue.read_async(n)),
    )
    for call in calls:
        with pytest.raises(InvalidArgument, match="count"):
            call(count)


def test_numpy_counts_are_counts() -> None:
    queue = MessageQueue.create(ELEMENT, 4)
    one: Any = np.int64(1)
    with queue.writing(one) as place:
        place[:] = 7
    assert queue.begin_write(one) is not None
    assert queue.commit_write(one)
    assert asyncio.run(queue.read_async(one)) is not None
    assert queue.begin_read(one) is not None
    assert queue.commit_read(one)
    assert queue.read(one) is None
    queue.fileno()
    assert queue.read(one) is None


# --- regions and quotas ---


def test_parts_may_lie_in_memories_of_their_own() -> None:
    sizes = (8, 8, 64, 4)
    memories = [SharedMemory.create(size) for size in sizes]
    grantors = tuple(GrantorDescriptor(0, i, 0, size) for i, size in enumerate(sizes))
    ends = [
        MessageQueue.open(
            MQDescriptor(grantors, 4, 1), [m.duplicate() for m in memories], ELEMENT, fresh=True
        )
        for _ in range(2)
    ]
    for start in range(0, 60, 10):
        claim = ends[0].begin_write(10)
        assert claim is not None
        claim.first[:] = numbers(start, len(claim.first))
        claim.second[:] = numbers(start + len(claim.first), len(claim.second))
        assert ends[0].commit_write(10)
        found = ends[1].read(10, timeout=1)
        assert found is not None
        assert found.tolist() == list(range(start, start + 10))


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("max 100000\n", float("inf")),
        ("150000 100000\n", 1.5),
        ("5 0\n", float("inf")),
        ("what\n", float("inf")),
        ("a b\n", float("inf")),
    ],
)
def test_quota_of_a_cgroup_is_read_or_ignored(
    text: str, expected: float, tmp_path: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "cpu.max").write_text(text)
    monkeypatch.setattr(cores, "_cgroups", lambda: [tmp_path, tmp_path / "absent"])
    assert cores.cpu_quota() == expected


# --- fork ---

FORK = """
import ctypes, gc, os
from fmq.queues import create, numbers
from nnburst.hal.errors import Closed

queue = create(4)
view = queue.memories[0].map(writable=True)
address, size = view.ctypes.data, len(view)
libc = ctypes.CDLL(None, use_errno=True)
libc.mmap.restype = ctypes.c_void_p
libc.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t] + [ctypes.c_int] * 3 + [ctypes.c_long]
if (pid := os.fork()) == 0:
    refused = 0
    flag = queue.event_flag
    for call in (
        lambda: queue.write(numbers(0, 1)),
        lambda: queue.read(1),
        queue.statistics,
        lambda: flag.wake(1),
        lambda: flag.wait(1, 0.01),
    ):
        try:
            call()
        except Closed as error:
            refused += "forked" in str(error)
    # Something of the child's own comes to lie where the parent has its mapping.
    mine = libc.mmap(address, size, 3, 0x100022, -1, 0)  # FIXED_NOREPLACE | ANONYMOUS | PRIVATE
    assert mine == address, hex(mine)
    word = ctypes.c_uint8.from_address(address)
    word.value = 7
    del view
    gc.collect()
    os._exit(refused if word.value == 7 else 99)
print(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))
assert queue.write(numbers(0, 1))
"""


def test_forked_child_is_refused_and_unmaps_nothing_of_its_own() -> None:
    assert run_program(FORK) == "5\n"


def test_reader_that_was_overtaken_while_the_counters_wrapped_goes_on_in_its_place() -> None:
    queue = create(6, Flavor.UNSYNCHRONIZED_WRITE)  # 24 bytes, which 2**64 is no multiple of
    for grantor in (0, 1):
        counter(queue, grantor)[0] = 2**64 - 4
    writer, reader = other_end(queue), other_end(queue)
    writer.write(numbers(0, 6))
    writer.write(numbers(6, 1))
    assert reader.read(1) is None, "what was not read is lost"
    writer.write(numbers(7, 2))
    found = reader.read(2)
    assert found is not None
    assert found.tolist() == [7, 8]


def test_record_with_a_field_that_occurs_twice_is_refused() -> None:
    with pytest.raises(InvalidArgument, match=r"dtype is .*occurs more than once"):
        MessageQueue.create([("a", "<u4"), ("a", "<u4")], 8)
