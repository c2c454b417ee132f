"""The tools of the fault tests: conditions for a kill, and the times that are asserted."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from typing import Any

import pytest

from faults import processes
from faults.processes import Client, Supervisor, check_p99, check_undisturbed, figures


def lap(p99: float, rounds: int = 100, error: str = "") -> dict[str, Any]:
    return {"rounds": rounds, "error": error, "median_us": p99 / 2, "p99_us": p99}


def on(monkeypatch: pytest.MonkeyPatch, *, strict: bool, cores: int) -> None:
    monkeypatch.setattr(processes, "STRICT", strict)
    monkeypatch.setattr(os, "sched_getaffinity", lambda _pid: set(range(cores)))


@pytest.mark.campaign
def test_client_at_work_counts_as_killed(
    serve: Callable[..., Supervisor], client: Callable[[str, str], Client]
) -> None:
    serve()
    client("cam", "burst_runs").kill()


@pytest.mark.campaign
def test_client_that_had_died_of_its_own_error_does_not_count_as_killed(
    serve: Callable[..., Supervisor], client: Callable[[str, str], Client]
) -> None:
    serve()
    victim = client("cam", "burst_runs")
    os.kill(victim.worker, signal.SIGKILL)
    os.waitid(os.P_PID, victim.pid, os.WEXITED | os.WNOWAIT)
    with pytest.raises(AssertionError, match="had ended with 1 before it was killed"):
        victim.kill()
    assert victim.close() == 1


def test_p99_of_a_client_beside_faults_is_asserted_on_four_quiet_cores(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    on(monkeypatch, strict=True, cores=4)
    check_undisturbed(lap(10), lap(20))
    assert figures(lap(20), lap(10)).endswith("2.0 x quiet (at most 2: asserted)")
    with pytest.raises(AssertionError):
        check_undisturbed(lap(10), lap(21))


@pytest.mark.parametrize(
    ("strict", "cores", "why"), [(True, 2, "2 cores"), (False, 4, "not strict")]
)
def test_row_has_the_reason_why_a_p99_is_not_asserted(
    monkeypatch: pytest.MonkeyPatch, strict: bool, cores: int, why: str
) -> None:
    on(monkeypatch, strict=strict, cores=cores)
    check_undisturbed(lap(10), lap(99))
    assert figures(lap(99), lap(10)).endswith(f"9.9 x quiet (at most 2: not asserted: {why})")


@pytest.mark.parametrize("meanwhile", [lap(10, rounds=0), lap(10, error="DeadObject")])
def test_client_that_stands_still_or_fails_is_disturbed_on_any_machine(
    meanwhile: dict[str, Any],
) -> None:
    with pytest.raises(AssertionError):
        check_undisturbed(lap(10), meanwhile)


def test_two_of_a_hundred_that_are_late_break_a_promise_and_one_does_not(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(processes, "STRICT", True)
    check_p99("it", [1.0] * 99 + [50.0], 10.0)
    with pytest.raises(AssertionError, match=r"it: p99 of 100 is 50.0 ms"):
        check_p99("it", [1.0] * 98 + [50.0] * 2, 10.0)
    monkeypatch.setattr(processes, "STRICT", False)
    check_p99("it", [50.0], 10.0)
