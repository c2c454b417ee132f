"""A waiter spins on where most events come soon after its window, and its timed sleeps end on time."""

from __future__ import annotations

import ctypes
import platform
import re
import threading
import time
from typing import Any

import pytest

from nnburst._native import ffi, lib

US = 1_000
MS = 1_000_000
WINDOW = 50 * US
PR_SET_TIMERSLACK = 29


def new_waiter() -> Any:
    waiter: Any = ffi.new("struct nnb_waiter *")
    lib.nnb_waiter_init(waiter, 1, WINDOW)
    return waiter


def window_after(*waits: int) -> int:
    """The time that a waiter spins after waits of these durations."""
    waiter = new_waiter()
    for waited in waits:
        lib.nnb_waiter_note(waiter, waited)
    return lib.nnb_waiter_spin_window(waiter)


def test_events_that_come_soon_after_the_window_are_spun_for() -> None:
    assert window_after() == WINDOW
    assert window_after(*[70 * US] * 20) == 2 * WINDOW


def test_events_that_come_within_the_window_say_nothing_about_those_after_it() -> None:
    assert window_after(*[5 * US] * 20) == WINDOW
    assert window_after(*[70 * US, 5 * US, 20 * US] * 20) == 2 * WINDOW


def test_waiter_does_not_spin_longer_if_most_events_come_late() -> None:
    assert window_after(*[70 * US, 10 * MS, 120 * US] * 20) == WINDOW
    assert window_after(*[70 * US] * 20, *[10 * MS] * 20) == WINDOW


def test_window_that_descheduling_halved_stays_halved() -> None:
    waiter = new_waiter()
    for _ in range(20):
        lib.nnb_waiter_note(waiter, 70 * US)
    waiter.window_now_ns = WINDOW // 2
    assert lib.nnb_waiter_spin_window(waiter) == WINDOW


def has_futex_waitv() -> bool:
    found = re.match(r"(\d+)\.(\d+)", platform.release())
    return found is not None and (int(found[1]), int(found[2])) >= (5, 16)


@pytest.mark.skipif(not has_futex_waitv(), reason="futex_waitv came with Linux 5.16")
def test_planned_sleep_ends_without_the_timer_slack_of_its_thread() -> None:
    """It ends just before an event, and a slack of 50 us would make the waiter miss events."""
    data, counters = ffi.new("uint8_t[8]"), ffi.new("uint64_t[3]")
    read, written = (ffi.cast("nnb_atomic_u64 *", counters + at) for at in range(2))
    flag = ffi.cast("nnb_atomic_u32 *", counters + 2)
    ring: Any = ffi.new("struct nnb_ring *")
    assert lib.nnb_ring_init(ring, data, read, written, 8, 8, 1) == lib.NNB_RING_OK
    waiter = new_waiter()
    took: list[float] = []

    def sleep() -> None:
        process = ctypes.CDLL(None, use_errno=True)
        slack = ctypes.c_ulong(3_000_000_000)
        assert process.prctl(PR_SET_TIMERSLACK, slack, 0, 0, 0) == 0  # of this thread
        now = time.clock_gettime_ns(time.CLOCK_MONOTONIC)
        for beat in reversed(range(10)):
            event = now - beat * 1000 * MS
            lib.nnb_rhythm_event(ffi.addressof(waiter, "rhythm"), event, lib.NNB_CAUGHT_SPINNING)
        status = lib.nnb_wait_readable(waiter, ring, flag, now + 20 * MS)
        took.append((time.clock_gettime_ns(time.CLOCK_MONOTONIC) - now) / MS)
        assert (status, waiter.sleeps) == (lib.NNB_WAIT_TIMED_OUT, 1)

    thread = threading.Thread(target=sleep)
    thread.start()
    thread.join(20)
    assert 20 <= took[0] < 1500  # a busy machine included; with the slack it takes 3 s
