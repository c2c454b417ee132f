"""Whether spinning helps: both sides must be able to run at the same moment."""

from __future__ import annotations

import os
import threading
from pathlib import Path

import pytest

from nnburst.fmq import cores
from nnburst.fmq.cores import (
    allowed_cores,
    cpu_quota,
    each_may_spin,
    may_spin,
    performance_cores,
    prefer_performance_cores,
    thread_budget,
)


def test_allowed_cores_are_those_of_the_scheduler() -> None:
    assert set(allowed_cores()) == os.sched_getaffinity(0)


def test_allowed_cores_are_those_of_the_calling_thread() -> None:
    found = []

    def look() -> None:
        os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
        found.append(allowed_cores())

    before = allowed_cores()
    thread = threading.Thread(target=look)
    thread.start()
    thread.join()
    assert found == [before[:1]]
    assert allowed_cores() == before


def test_quota_is_positive() -> None:
    assert cpu_quota() > 0


def test_tightest_quota_of_all_cgroups_counts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    limits = {"a": "150000 100000", "b": "50000 100000", "c": "max 100000", "d": "400000 100000"}
    for name, limit in limits.items():
        (tmp_path / name).mkdir()
        (tmp_path / name / "cpu.max").write_text(limit)
    folders = [str(tmp_path / name) for name in ("absent", *limits)]
    monkeypatch.setattr(cores, "_cgroups", lambda: folders)
    assert cpu_quota() == 0.5


@pytest.mark.parametrize(
    ("capacities", "fast"),
    [
        ({}, [0, 1, 2, 3, 4, 5]),
        ({0: 446, 1: 446, 2: 446, 3: 446, 4: 1024, 5: 1024}, [4, 5]),
        ({0: 250, 1: 250, 2: 871, 3: 871, 4: 871, 5: 1024}, [2, 3, 4, 5]),
        ({0: 512, 1: 512, 2: 512, 3: 512, 4: 1024, 5: 1024}, [0, 1, 2, 3, 4, 5]),
        ({0: 446, 1: 446, 2: 446, 3: 446, 4: 446, 5: 446}, [0, 1, 2, 3, 4, 5]),
        ({0: 300, 4: "garbage"}, [1, 2, 3, 4, 5]),
    ],
)
def test_slow_cores_are_left_out(
    capacities: dict[int, object],
    fast: list[int],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for core, capacity in capacities.items():
        (tmp_path / f"cpu{core}").mkdir()
        (tmp_path / f"cpu{core}" / "cpu_capacity").write_text(f"{capacity}\n")
    monkeypatch.setattr(cores, "_CPUS", tmp_path)
    monkeypatch.setattr(cores, "allowed_cores", lambda: tuple(range(6)))
    monkeypatch.setattr(cores, "cpu_quota", lambda: float("inf"))
    assert list(performance_cores()) == fast
    assert thread_budget() == len(fast)


def test_quota_limits_what_performance_cores_could_do(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cores, "allowed_cores", lambda: tuple(range(6)))
    monkeypatch.setattr(cores, "cpu_quota", lambda: 2.5)
    assert thread_budget() == 2


def test_thread_is_kept_to_fast_cores(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before = allowed_cores()
    slow = before[0]
    (tmp_path / f"cpu{slow}").mkdir()
    (tmp_path / f"cpu{slow}" / "cpu_capacity").write_text("100")
    monkeypatch.setattr(cores, "_CPUS", tmp_path)
    found = []

    def narrow() -> None:
        prefer_performance_cores()
        found.append(allowed_cores())

    thread = threading.Thread(target=narrow)
    thread.start()
    thread.join()
    assert found == [before[1:] or before]
    assert allowed_cores() == before


@pytest.mark.parametrize(
    ("text", "folders"),
    [
        ("0::/a/b\n", ["a/b", "a", ""]),
        ("12:cpu,cpuacct:/old\n0::/new\n", ["new", ""]),
        ("0::/\n", [""]),
        ("12:cpu:/old\n", []),
        ("", []),
        (None, []),
    ],
)
def test_cgroups_are_that_of_the_process_and_those_above_it(
    text: str | None, folders: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def read(path: str) -> str:
        assert path == "/proc/self/cgroup"
        if text is None:
            raise FileNotFoundError(path)
        return text

    monkeypatch.setattr(cores, "_read", read)
    found = [Path(folder) for folder in cores._cgroups()]
    assert found == [Path("/sys/fs/cgroup", folder) for folder in folders]


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


@pytest.mark.parametrize(
    ("mine", "theirs", "expected"),
    [
        ({0}, {5: {1}}, True),
        ({0}, {5: {1}, 6: {1}}, False),
        ({0}, {5: {1}, 6: {2}}, True),
        ({0, 1}, {5: {0, 1}, 6: {0, 1}}, False),
        ({0, 1, 2}, {5: {0, 1, 2}, 6: {0, 1, 2}}, True),
        ({0, 1}, {}, True),
    ],
)
def test_each_process_of_several_spins_only_on_a_core_of_its_own(
    mine: set[int], theirs: dict[int, set[int]], expected: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cores, "cpu_quota", lambda: float("inf"))
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: {0: mine, **theirs}[pid])
    assert each_may_spin(theirs) is expected


def test_process_that_has_ended_brings_no_cores(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cores, "allowed_cores", lambda: (0, 1))
    assert not each_may_spin([2**22 + 1, 2**22 + 2])
