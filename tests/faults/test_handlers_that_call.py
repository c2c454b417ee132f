"""A signal handler that uses the object whose call it interrupts neither waits for ever nor breaks it."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import suppress

import pytest

import nnburst
from faults.roads import INTERRUPTIBLE
from interrupting import handled_at, interrupted_at
from nnburst import Device, MissedDeadline
from nnburst.client.hal import execute_fenced
from nnburst.client.memory import Memory
from nnburst.runtime.devices.manager import Manager
from nnburst.runtime.execution.background import Background
from nnburst.testing.faults.activities import check_sum, sum_model, summands
from programs import environ_of_tests


@pytest.mark.every_day("plan")
@pytest.mark.parametrize("road", INTERRUPTIBLE)
def test_no_plain_lock_is_held_where_a_signal_handler_may_run(road: str) -> None:
    command = [sys.executable, "-m", "faults.held_locks", road]
    done = subprocess.run(
        command, env=environ_of_tests(), capture_output=True, text=True, timeout=120, check=False
    )
    assert done.returncode == 0, done.stderr[-4000:]
    assert done.stdout.split("\n") == ["", ""]


@pytest.fixture(scope="module")
def device() -> Iterator[Device]:
    with nnburst.launch("reference") as launched:
        yield launched


def test_handler_that_asks_for_the_result_which_its_call_takes_gets_an_error_and_the_call_the_result(
    device: Device,
) -> None:
    with device.prepare(sum_model()) as prepared:
        for start in (
            lambda: prepared.execute_async(summands(3)),
            lambda: execute_fenced(prepared, summands(3)),
        ):
            refused = places = 0
            while True:
                pending, results = start(), []

                def ask(pending: object = pending) -> None:
                    nonlocal refused
                    try:
                        check_sum(pending.result(20).outputs[0], 3)  # type: ignore[attr-defined]
                    except MissedDeadline:
                        refused += 1

                def take(pending: object = pending, results: list[object] = results) -> None:
                    results.append(pending.result(20))  # type: ignore[attr-defined]

                if not handled_at(places + 1, take, ask):
                    break
                places += 1
                check_sum(results[0].outputs[0], 3)  # type: ignore[attr-defined]
                check_sum(pending.result().outputs[0], 3)
            assert 0 < refused < places


def test_handler_that_waits_for_an_errand_while_its_call_begins_one_gets_it_done() -> None:
    places = 0
    while True:
        background, done = Background(), list[str]()

        def begin(key: str, background: Background = background, done: list[str] = done) -> None:
            background.begin(key, "an errand", lambda: done.append(key)).wait(None)

        if not handled_at(places + 1, lambda: begin("outer"), lambda: begin("inner")):
            break
        places += 1
        assert sorted(done) == ["inner", "outer"]
    assert places > 5


def test_handler_that_compiles_while_the_manager_of_the_process_is_made_gets_the_same_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(Manager, "_one", None)
    found: list[Manager] = []

    def of_process() -> None:
        found.append(Manager.of_process())

    refresh = Manager.refresh

    def interrupted(manager: Manager) -> object:
        monkeypatch.setattr(Manager, "refresh", refresh)
        of_process()  # as a handler would
        return refresh(manager)

    monkeypatch.setattr(Manager, "refresh", interrupted)
    of_process()
    of_process()
    with found[0]:
        assert found[0] is found[1] is found[2]


def test_pool_whose_close_was_interrupted_anywhere_is_closed_by_the_next_close() -> None:
    def check(close: Callable[[Memory], None]) -> None:
        pool, told = Memory(64), list[int]()
        pool._on_close(told.append)
        close(pool)
        with suppress(nnburst.Closed):
            pool.close()
        assert pool._state.shared._fd == -1
        assert {*told} == {pool._number}

    check(Memory.close)
    places = 0
    was_interrupted = True
    while was_interrupted:
        places += 1

        def close(pool: Memory) -> None:
            nonlocal was_interrupted
            was_interrupted = interrupted_at(places, pool.close)  # noqa: B023 - now

        check(close)
    assert places > 3
