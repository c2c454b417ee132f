"""Whether spinning helps: both sides must be able to run at the same moment."""

from __future__ import annotations

import os

import pytest

from nnburst.fmq import cores
from nnburst.fmq.cores import allowed_cores, cpu_quota, may_spin, thread_budget


def test_allowed_cores_are_those_of_the_scheduler() -> None:
    assert set(allowed_cores()) == os.sched_getaffinity(0)


def test_quota_is_positive() -> None:
    assert cpu_quota() > 0


@pytest.mark.parametrize(
    ("ours", "theirs", "quota", "expected"),
    [
        ((0,), (0,), float("inf"), False),
        ((0,), (1,), float("inf"), True),
        ((0, 1), (0, 1), float("inf"), True),
        ((0, 1), (0, 1), 1.5, False),
        ((0, 1), (2, 3), 2.0, True),
    ],
)
def test_spinning_needs_two_cores_between_the_sides(
    ours: tuple[int, ...],
    theirs: tuple[int, ...],
    quota: float,
    expected: bool,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(cores, "allowed_cores", lambda: ours)
    monkeypatch.setattr(cores, "cpu_quota", lambda: quota)
    assert may_spin(theirs) is expected


@pytest.mark.parametrize(
    ("cores_allowed", "quota", "expected"),
    [
        ((0, 1), float("inf"), 2),
        ((5,), float("inf"), 1),
        ((0, 1, 2, 3), 2.5, 2),
        ((0, 1), 8.0, 2),
        ((0, 1), 0.3, 1),
    ],
)
def test_thread_budget_is_what_can_run_at_once(
    cores_allowed: tuple[int, ...],
    quota: float,
    expected: int,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(cores, "allowed_cores", lambda: cores_allowed)
    monkeypatch.setattr(cores, "cpu_quota", lambda: quota)
    assert thread_budget() == expected
