"""The event flag's bits: set, consumed, and waited for with a deadline."""

from __future__ import annotations

import gc
import threading
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from nnburst._native import ffi, lib
from nnburst.fmq.event_flag import EventFlag, EventFlagBits, timeout_ns
from nnburst.fmq.message_queue import MessageQueue
from nnburst.fmq.shared_memory import Flavor, SharedMemory
from nnburst.hal.errors import InvalidArgument

BITS = st.integers(0, 2**32 - 1)


def flag() -> tuple[EventFlag, memoryview]:
    """A flag, and its word as the peer sees it."""
    view = SharedMemory.create(64).map(writable=True)
    return EventFlag(view, 8), memoryview(view[8:12]).cast("I")


@given(st.lists(BITS, max_size=5))
def test_wake_sets_bits_and_clears_no_others(wakes: list[int]) -> None:
    event_flag, word = flag()
    expected = 0
    for bits in wakes:
        event_flag.wake(bits)
        expected |= bits
        assert word[0] == expected


@given(BITS, BITS.filter(bool))
def test_wait_consumes_exactly_the_bits_it_returns(is_set: int, wanted: int) -> None:
    event_flag, word = flag()
    event_flag.wake(is_set)
    if is_set & wanted:
        assert event_flag.wait(wanted, timeout=10) == is_set & wanted
        assert word[0] == is_set & ~wanted


def test_wait_ends_at_its_timeout() -> None:
    event_flag, _ = flag()
    event_flag.wake(2)
    assert event_flag.wait(1, timeout=0.01) == 0
    assert event_flag.wait(2, timeout=0.01) == 2


@pytest.mark.parametrize("wakes_first", [False, True])
def test_wake_of_another_thread_is_not_lost(wakes_first: bool) -> None:
    event_flag, _ = flag()
    thread = threading.Thread(target=event_flag.wake, args=(4,))
    thread.start()
    if wakes_first:
        thread.join()
    assert event_flag.wait(4 | 8, timeout=10) == 4
    thread.join()


def test_every_waiter_of_a_bit_is_woken() -> None:
    event_flag, _ = flag()
    seen: list[int] = []

    def wait(bit: int) -> None:
        seen.append(event_flag.wait(bit, timeout=10))

    threads = [threading.Thread(target=wait, args=(1 << i,)) for i in range(3)]
    for thread in threads:
        thread.start()
    event_flag.wake(0b111)
    for thread in threads:
        thread.join()
    assert sorted(seen) == [1, 2, 4]


def test_waiting_for_no_bits_is_refused() -> None:
    with pytest.raises(InvalidArgument, match="at least one bit"):
        flag()[0].wait(0, timeout=1)


@pytest.mark.parametrize("bits", [1 << 32, -1, "a", 1.0, None])
def test_bits_that_are_not_in_the_word_are_refused(bits: Any) -> None:
    event_flag, _ = flag()
    for use in (event_flag.wake, lambda bits: event_flag.wait(bits, timeout=1)):
        with pytest.raises(InvalidArgument, match=r"^bits is .*, expected 0 to 4294967295"):
            use(bits)


@pytest.mark.parametrize("timeout", [0, -1.0, float("nan")])
def test_waiting_without_a_deadline_is_refused(timeout: float) -> None:
    with pytest.raises(InvalidArgument, match="timeout"):
        flag()[0].wait(1, timeout=timeout)


def test_bits_are_those_of_the_c_side() -> None:
    for name, bit in EventFlagBits.__members__.items():  # with those that would be two others
        assert getattr(lib, f"NNB_FMQ_{name}") == bit


@pytest.mark.parametrize(
    ("seconds", "expected"), [(1, 10**9), (2.5, 2_500_000_000), (1e-9, 1), (0.5, 500_000_000)]
)
def test_seconds_become_nanoseconds(seconds: float, expected: int) -> None:
    assert timeout_ns(seconds) == expected


def test_a_wait_on_a_broadcasts_flag_brings_no_word_back_that_a_reader_has_seen() -> None:
    queue = MessageQueue.create(np.uint8, 16, Flavor.UNSYNCHRONIZED_WRITE)
    event_flag = queue.event_flag
    assert event_flag is not None
    word = ffi.cast("uint32_t *", event_flag.word)
    not_empty = EventFlagBits.NOT_EMPTY
    seen = set()
    for _ in range(20):
        assert not word[0] & not_empty
        assert word[0] not in seen, "a reader that fell asleep on it now would sleep on"
        seen.add(word[0])
        queue.write(np.zeros(1, np.uint8))
        assert event_flag.wait(not_empty, timeout=10) == not_empty
    queue.close()


def test_bits_in_which_a_broadcast_counts_looks_are_refused() -> None:
    queue = MessageQueue.create(np.uint8, 16, Flavor.UNSYNCHRONIZED_WRITE)
    event_flag = queue.event_flag
    assert event_flag is not None
    for use in (event_flag.wake, lambda bits: event_flag.wait(bits, timeout=1)):
        with pytest.raises(InvalidArgument, match="bits is 0x10001, expected bits below 0x10000"):
            use(0x10001)
    queue.close()


def test_flag_keeps_its_word_mapped() -> None:
    memory = SharedMemory.create(64, "test-flag")
    event_flag = EventFlag(memory.map(writable=True), 8)
    memory.close()
    gc.collect()
    assert "/memfd:test-flag" in Path("/proc/self/maps").read_text()
    event_flag.wake(4)
    assert event_flag.wait(4, timeout=1) == 4


def test_interrupted_wait_goes_on_with_what_is_left_and_never_with_less_than_nothing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    event_flag, _ = flag()
    times, waited = iter([100, 100, 400, 2000]), []

    def wait(_word: Any, _bits: int, _among: bool, left: int, _seen: Any) -> int:
        waited.append(left)
        return int(lib.NNB_EVENT_FLAG_INTERRUPTED if len(waited) < 3 else 0)

    interrupting = SimpleNamespace(
        NNB_EVENT_FLAG_INTERRUPTED=lib.NNB_EVENT_FLAG_INTERRUPTED, nnb_event_flag_wait_unlocked=wait
    )
    clock = SimpleNamespace(monotonic_ns=lambda: next(times))
    monkeypatch.setattr("nnburst.fmq.event_flag.lib", interrupting)
    monkeypatch.setattr("nnburst.fmq.event_flag.time", clock)
    assert event_flag.wait(1, timeout=1e-6) == 0
    assert waited == [1000, 700, 0]
