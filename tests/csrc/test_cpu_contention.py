"""A waiter stops spinning if cores are scarce, which it finds by the kernel's counts."""

from __future__ import annotations

from typing import Any

import pytest

from nnburst._native import ffi, lib

MS = 1_000_000
ME = 7


class Counted:
    """A thread whose times on a core, and without one, the test sets."""

    def __init__(self) -> None:
        self.contention: Any = ffi.new("struct nnb_cpu_contention *")
        self.now = 1000 * MS
        self.run = self.delay = 0
        self.look(0, 0)

    def look(self, run: int, delay: int, thread: int = ME) -> None:
        self.now += 10 * MS
        self.run += run
        self.delay += delay
        lib.nnb_cpu_contention_update(self.contention, self.now, thread, self.run, self.delay)

    @property
    def pause(self) -> int:
        """Nanoseconds from now for which it does not spin."""
        return max(0, self.contention.until_ns - self.now)


def test_thread_that_gets_its_core_at_once_spins_on() -> None:
    counted = Counted()
    for _ in range(10):
        counted.look(run=MS, delay=MS // 20)
        assert counted.pause == 0
    assert counted.contention.pauses == 0


def test_thread_that_waits_for_a_core_stops_to_spin_for_longer_and_longer() -> None:
    counted, pauses = Counted(), []
    for _ in range(9):
        counted.look(run=MS, delay=MS)
        pauses.append(counted.pause // MS)
    assert pauses == [4, 8, 16, 32, 64, 128, 256, 256, 256]
    assert counted.contention.pauses == 9


def test_spinning_begins_again_with_the_first_look_that_finds_a_core_free() -> None:
    counted = Counted()
    for _ in range(9):
        counted.look(run=MS, delay=MS)
    counted.look(run=MS, delay=0)
    assert counted.pause == 0
    counted.look(run=MS, delay=MS)
    assert counted.pause == 256 * MS  # cores were scarce a moment ago
    for _ in range(9):
        counted.look(run=MS, delay=0)
    counted.look(run=MS, delay=MS)
    assert counted.pause == 4 * MS


def test_delay_of_a_single_wake_up_does_not_make_cores_scarce() -> None:
    counted = Counted()
    counted.look(run=10_000, delay=40_000)
    assert counted.pause == 0


@pytest.mark.parametrize("thread", [ME, ME + 1])
def test_counts_of_another_thread_are_compared_with_nothing(thread: int) -> None:
    counted = Counted()
    counted.look(run=MS, delay=0)
    counted.run, counted.delay = (0, 0) if thread == ME else (50 * MS, 50 * MS)
    counted.look(0, 0, thread)
    assert counted.pause == 0
