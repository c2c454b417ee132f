"""Waits that end early: timeouts, signals, a second thread, close, fork. The burst survives them."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import threading
import time
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import nnburst
from client.burst_helpers import copy_model, standing_still
from nnburst import BurstBusy, Closed, Device, MissedDeadline
from nnburst._native import lib
from nnburst.client.burst import bound_request
from nnburst.client.burst import burst as burst_module
from nnburst.client.burst.bound_request import RingRequest
from nnburst.client.burst.interface import BoundRequest, Burst
from nnburst.hal.errors import GeneralFailure, InvalidArgument
from programs import run_program
from waiting import wait_for


@pytest.fixture
def burst(still: Device) -> Iterator[Burst]:
    with still.prepare(copy_model()) as prepared, prepared.open_burst() as opened:
        yield opened


@pytest.fixture
def bound(burst: Burst) -> BoundRequest:
    request = burst.bind()
    request.inputs[0][:] = [3, -1]
    return request


def in_a_thread(call: Any) -> tuple[threading.Thread, list[BaseException | object]]:
    """Start `call` on a thread; its outcome lands in the list."""
    outcome: list[BaseException | object] = []

    def run() -> None:
        try:
            outcome.append(call())
        except BaseException as error:
            outcome.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    return thread, outcome


def test_overdue_result_is_dropped_before_the_next_one(
    still: Device, burst: Burst, bound: BoundRequest
) -> None:
    with standing_still(still), pytest.raises(MissedDeadline, match="timeout"):
        bound.run(timeout=0.01)
    other = burst.bind()
    other.inputs[0][:] = [7, 8]
    assert other.run().outputs[0].tolist() == [7, 8]
    assert burst.statistics()["dropped"] == 1
    assert burst._core.client.in_flight == burst._core.client.overdue == 0


def test_next_run_waits_for_an_overdue_result_only_within_its_own_time(
    still: Device, burst: Burst, bound: BoundRequest
) -> None:
    with standing_still(still):
        for timeout in (0.01, 0.02, 0.12):
            with pytest.raises(MissedDeadline):
                bound.run(timeout=timeout)
        assert burst._core.client.in_flight == 1, "nothing is sent while a result is overdue"
    assert bound.run().outputs[0].tolist() == [3, 0]


def test_timeout_is_counted_once_however_often_the_wait_is_cut(
    still: Device, bound: BoundRequest, monkeypatch: pytest.MonkeyPatch
) -> None:
    left: list[int] = []

    class Watched:
        def __getattr__(self, name: str) -> Any:
            return getattr(lib, name)

        def nnb_client_resume(self, request: Any, timeout_ns: int) -> int:
            left.append(timeout_ns)
            return int(lib.nnb_client_resume(request, timeout_ns))

    monkeypatch.setattr(bound_request, "lib", Watched())
    began = time.monotonic()
    with standing_still(still), pytest.raises(MissedDeadline):
        bound.run(timeout=0.12)
    assert time.monotonic() - began >= 0.12
    # Waits are cut every 50 ms, so that much has passed whenever one is resumed.
    assert all(rest <= 120_000_000 - 50_000_000 * cut for cut, rest in enumerate(left, start=1))


@pytest.mark.parametrize("timeout", [1e18, 1e-12])
def test_extreme_timeouts_are_taken(bound: BoundRequest, timeout: float) -> None:
    with contextlib.suppress(MissedDeadline):  # a result may be there at once
        bound.run(timeout=timeout)
    assert bound.run().outputs[0].tolist() == [3, 0]


class Interrupted(BaseException):
    """Stands for KeyboardInterrupt, which pytest itself listens to."""


@pytest.fixture
def interrupt(burst: Burst) -> Iterator[threading.Thread]:
    """Once started, interrupts the main thread as soon as it waits for a result."""
    last_wait = burst._core.client.waits_from_ns

    def raise_it(*_: object) -> None:
        raise Interrupted

    def send() -> None:
        wait_for(lambda: burst._core.client.waits_from_ns != last_wait)
        signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGUSR1)

    before = signal.signal(signal.SIGUSR1, raise_it)
    yield threading.Thread(target=send)
    signal.signal(signal.SIGUSR1, before)


def test_interrupt_during_a_run_leaves_the_burst_usable(
    still: Device, burst: Burst, bound: BoundRequest, interrupt: threading.Thread
) -> None:
    with standing_still(still), pytest.raises(Interrupted):
        interrupt.start()
        bound.run(timeout=20)
    interrupt.join()
    assert bound.run().outputs[0].tolist() == [3, 0]
    assert burst.statistics()["dropped"] == 1


def test_interrupt_during_a_wait_for_a_submission_leaves_it_out(
    still: Device, burst: Burst, bound: BoundRequest, interrupt: threading.Thread
) -> None:
    with standing_still(still):
        pending = bound.submit()
        interrupt.start()
        with pytest.raises(Interrupted):
            pending.result(timeout=20)
    interrupt.join()
    assert pending.result().outputs[0].tolist() == [3, 0]
    assert not burst._core.pending


def test_interrupt_right_after_a_result_came_does_not_lose_the_next(
    bound: BoundRequest, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = bound_request._run

    def interrupted(request: Any) -> int:
        real(request)
        raise Interrupted

    monkeypatch.setattr(bound_request, "_run", interrupted)
    with pytest.raises(Interrupted):
        bound.run()
    monkeypatch.setattr(bound_request, "_run", real)
    for _ in range(2):
        assert bound.run().outputs[0].tolist() == [3, 0]


class InterruptedLibrary:
    """The C side, but one of its functions is interrupted right after it did its work."""

    def __init__(self, library: Any, name: str) -> None:
        self._library, self._name = library, name

    def __getattr__(self, name: str) -> Any:
        function = getattr(self._library, name)
        if name != self._name:
            return function

        def interrupted(*arguments: Any) -> None:
            function(*arguments)
            raise Interrupted

        return interrupted


@pytest.mark.parametrize("name", ["nnb_client_submit", "nnb_client_collect"])
def test_interrupt_right_after_a_submission_step_keeps_results_in_order(
    still: Device, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with still.prepare(copy_model()) as prepared, prepared.open_burst(max_in_flight=2) as burst:
        first, second = burst.bind(), burst.bind()
        first.inputs[0][:], second.inputs[0][:] = 1, 2
        with monkeypatch.context() as patch, pytest.raises(Interrupted):
            patch.setattr(bound_request, "lib", InterruptedLibrary(bound_request.lib, name))
            first.submit().result()
        assert second.submit().result().outputs[0].tolist() == [2, 2]
        assert first.run().outputs[0].tolist() == [1, 1]
        assert not burst._core.pending
        assert burst._core.client.in_flight == 0


@pytest.mark.parametrize("answered", [True, False])
def test_interrupt_right_after_a_run_in_a_loop_keeps_results_in_order(
    still: Device, answered: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = bound_request._run_at_once

    def interrupted(request: Any) -> None:
        with contextlib.nullcontext() if answered else standing_still(still):
            real(request)
        raise Interrupted

    with still.prepare(copy_model()) as prepared, prepared.open_burst(max_in_flight=2) as burst:
        first, second = burst.bind(), burst.bind()
        first.inputs[0][:], second.inputs[0][:] = 1, 2
        for _ in range(5):
            with monkeypatch.context() as patch, pytest.raises(Interrupted):
                patch.setattr(bound_request, "_run_at_once", interrupted)
                asyncio.run(first.run_async())  # type: ignore[arg-type]
            assert asyncio.run(second.run_async()).outputs[0].tolist() == [2, 2]  # type: ignore[arg-type, attr-defined]
            assert first.run().outputs[0].tolist() == [1, 1]
            assert not burst._core.pending
            assert burst._core.client.in_flight == 0


def test_second_thread_is_refused_while_the_burst_is_in_use(
    still: Device, burst: Burst, bound: BoundRequest
) -> None:
    other = burst.bind()
    with standing_still(still):
        thread, outcome = in_a_thread(lambda: bound.run(timeout=20))
        wait_for(lambda: burst._core.client.in_flight == 1)
        for call in (other.run, other.submit, bound.run):
            with pytest.raises(BurstBusy, match="another thread"):
                call()
    thread.join()
    assert outcome[0].outputs[0].tolist() == [3, 0]  # type: ignore[union-attr]
    assert other.run().outputs[0].tolist() == [0, 0]


def test_second_execute_does_not_touch_the_inputs_of_the_first(still: Device, burst: Burst) -> None:
    first = np.array([1, 2], np.float32)
    burst.execute([first])
    with standing_still(still):
        thread, outcome = in_a_thread(lambda: burst.execute([first], timeout=20))
        wait_for(lambda: burst._core.client.in_flight == 1)
        with pytest.raises(BurstBusy):
            burst.execute([np.array([8, 9], np.float32)])
    thread.join()
    assert outcome[0].outputs[0].tolist() == [1, 2]  # type: ignore[union-attr]


def test_close_ends_a_run_of_another_thread(still: Device) -> None:
    with still.prepare(copy_model()) as prepared:
        burst = prepared.open_burst()
        bound = burst.bind()
        with standing_still(still):
            thread, outcome = in_a_thread(lambda: bound.run(timeout=20))
            wait_for(lambda: burst._core.client.in_flight == 1)
            closer, _ = in_a_thread(burst.close)
            thread.join()
        closer.join()
        assert isinstance(outcome[0], Closed)
        assert "closed while it ran" in str(outcome[0])
        with pytest.raises(Closed):
            bound.run()


def test_pool_closed_under_a_submission_does_not_take_its_result(
    still: Device, burst: Burst
) -> None:
    memory = burst._core.prepared.session.allocate(64)
    bound = burst.bind([memory.array("f4", (2,))], [memory.array("f4", (2,), 32)])
    bound.inputs[0][:] = [4, 5]
    with standing_still(still):
        pending = bound.submit()
        memory.close()
    # The driver may have been asked to release the slot before it saw the request.
    try:
        assert pending.result().outputs[0].tolist() == [4, 5]
    except nnburst.InvalidArgument:
        pass
    with pytest.raises(Closed, match="pool"):
        bound.run()
    assert burst.bind().run()


def test_pool_closed_during_a_run_does_not_disturb_it(still: Device, burst: Burst) -> None:
    memory = burst._core.prepared.session.allocate(64)
    bound = burst.bind([memory.array("f4", (2,))], [memory.array("f4", (2,), 32)])
    bound.run()
    with standing_still(still):
        thread, outcome = in_a_thread(lambda: bound.run(timeout=20))
        wait_for(lambda: burst._core.client.in_flight == 1)
        memory.close()
    thread.join()
    assert not isinstance(outcome[0], BaseException) or isinstance(
        outcome[0], nnburst.InvalidArgument
    )
    assert burst.bind().run()


FORK = """
import gc, os, sys, warnings
import numpy as np, nnburst
from client.burst_helpers import copy_model
warnings.simplefilter("ignore", DeprecationWarning)  # that a process with threads forks is the point
with nnburst.launch("null") as device:
    burst = device.prepare(copy_model()).open_burst()
    bound = burst.bind()
    bound.run()
    if (pid := os.fork()) == 0:
        refused = 0
        for use in (bound.run, bound.submit, burst.bind, lambda: burst.execute([bound.inputs[0]])):
            try:
                use()
            except nnburst.Closed as error:
                refused += "forked" in str(error)
        burst.close()
        spare = [bytearray(1 << 20) for _ in range(20)]
        del bound, burst, use
        gc.collect()
        assert not any(map(any, spare))
        os._exit(refused)
    print(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]), len(bound.run().outputs))
"""


def test_forked_child_is_refused_and_the_parent_goes_on() -> None:
    assert run_program(FORK) == "4 1\n"


FORK_WITH_A_SUBMISSION = """
import asyncio, os, warnings
import nnburst
from client.burst_helpers import copy_model
warnings.simplefilter("ignore", DeprecationWarning)  # that a process with threads forks is the point
with nnburst.launch("null") as device:
    burst = device.prepare(copy_model()).open_burst(max_in_flight=2)
    pending = burst.bind().submit()
    later = burst.bind().submit()
    if (pid := os.fork()) == 0:
        refused = 0
        for use in (lambda: asyncio.run(later.result_async()), pending.result):
            try:
                use()
            except nnburst.Closed as error:
                refused += "forked" in str(error)
        later.abandon()
        burst._core.fail("told so")
        os._exit(refused)
    print(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]), len(later.result().outputs))
"""


def test_forked_child_gets_no_result_of_what_its_parent_submitted() -> None:
    assert run_program(FORK_WITH_A_SUBMISSION) == "2 1\n"


def test_burst_that_was_ended_gives_the_reason_in_every_later_call(
    burst: Burst, bound: BoundRequest
) -> None:
    burst._core.fail("told so")
    for call in (bound.run, bound.submit, burst.bind):
        with pytest.raises(GeneralFailure, match="told so"):
            call()


def test_close_inside_a_signal_handler_ends_the_run_that_it_interrupts(still: Device) -> None:
    with still.prepare(copy_model()) as prepared:
        burst = prepared.open_burst()
        bound = burst.bind()
        last_wait = burst._core.client.waits_from_ns
        main = threading.main_thread().ident or 0

        def stop_and_close(*_: object) -> None:
            os.kill(still.pid, signal.SIGCONT)  # the driver answers the release
            burst.close()

        def send() -> None:
            wait_for(lambda: burst._core.client.waits_from_ns != last_wait)
            signal.pthread_kill(main, signal.SIGUSR1)

        before = signal.signal(signal.SIGUSR1, stop_and_close)
        sender = threading.Thread(target=send)
        try:
            with standing_still(still):
                sender.start()
                began = time.monotonic()
                with contextlib.suppress(Closed):  # its result may have come just before
                    bound.run(timeout=25)
            sender.join()
        finally:
            signal.signal(signal.SIGUSR1, before)
        assert time.monotonic() - began < 20, "close waited for the run that it was called from"
        with pytest.raises(Closed):
            bound.run()


def test_burst_used_inside_a_signal_handler_does_not_disturb_the_run(
    still: Device, burst: Burst, bound: BoundRequest
) -> None:
    other, refused = burst.bind(), []
    last_wait = burst._core.client.waits_from_ns

    def use(*_: object) -> None:
        for call in (other.run, other.submit):
            with pytest.raises(BurstBusy) as error:
                call()
            refused.append(error.value)
        os.kill(still.pid, signal.SIGCONT)

    def send() -> None:
        wait_for(lambda: burst._core.client.waits_from_ns != last_wait)
        signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGUSR1)

    before = signal.signal(signal.SIGUSR1, use)
    sender = threading.Thread(target=send)
    try:
        with standing_still(still):
            sender.start()
            assert bound.run(timeout=20).outputs[0].tolist() == [3, 0]
        sender.join()
    finally:
        signal.signal(signal.SIGUSR1, before)
    assert len(refused) == 2
    assert other.run()


def test_result_that_cannot_be_is_not_remembered(
    bound: BoundRequest, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> None:
        raise GeneralFailure("the driver reports a shape that cannot be")

    with monkeypatch.context() as patch:
        patch.setattr(RingRequest, "_shaped", refuse)
        for _ in range(3):
            with pytest.raises(GeneralFailure, match="cannot be"):
                bound.run()
    assert bound.run().outputs[0].tolist() == [3, 0]


def test_refused_thread_does_not_touch_the_run_that_it_came_upon(
    still: Device, bound: BoundRequest
) -> None:
    before = bound.run()
    with standing_still(still):
        thread, outcome = in_a_thread(lambda: bound.run(timeout=20))
        wait_for(lambda: bound._core.client.in_flight == 1)
        with pytest.raises(BurstBusy):
            bound.run()
    thread.join()
    assert outcome[0] is before, "the same result is no new one"


def test_wait_for_an_overdue_result_counts_from_its_beginning(
    still: Device, bound: BoundRequest, monkeypatch: pytest.MonkeyPatch
) -> None:
    left: list[int] = []
    real = bound_request._run

    def watched(request: Any) -> int:
        left.append(request.timeout_ns)
        return int(real(request))

    with standing_still(still):
        with pytest.raises(MissedDeadline):
            bound.run(timeout=0.01)
        monkeypatch.setattr(bound_request, "_run", watched)
        began = time.monotonic()
        with pytest.raises(MissedDeadline):
            bound.run(timeout=0.12)
        assert time.monotonic() - began >= 0.12
    assert len(left) > 1
    # The wait for the overdue result is cut every 50 ms, the first time in the first call already.
    assert all(rest <= 120_000_000 - 50_000_000 * cut for cut, rest in enumerate(left))


def test_how_a_burst_waited_is_counted(burst: Burst, bound: BoundRequest) -> None:
    for _ in range(50):
        bound.run()
    found = burst.statistics()
    assert found["executions"] == 50
    assert 0 <= found["met_awake"] + found["met_asleep"] <= 50
    assert found["rhythm_lost"] <= found["rhythm_found"]
    assert found["outliers"] >= 0
    assert found["crowded"] >= 0


@pytest.mark.parametrize(("window", "accepted"), [("0", True), ("59999999", True), ("-1", False)])
def test_switch_sets_how_long_bursts_spin_by_default(
    monkeypatch: pytest.MonkeyPatch, window: str, accepted: bool
) -> None:
    monkeypatch.setenv("NNBURST_BURST_CONTROLLER_POLLING_WINDOW", window)
    fresh = burst_module._default_spin_window.__wrapped__
    if accepted:
        assert fresh() == pytest.approx(int(window) * 1e-6)
    else:
        with pytest.raises(InvalidArgument, match="NNBURST_BURST_CONTROLLER_POLLING_WINDOW"):
            fresh()
