"""Signal handlers that raise at any moment, even two at once, leave a burst usable in every way."""

from __future__ import annotations

import contextlib
import random
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from functools import partial
from types import FrameType
from typing import Any

import pytest

import nnburst
from client.burst_helpers import standing_still
from faults.processes import KILLS
from interrupting import Handlers, Interruption, interrupted_at
from nnburst import Burst
from nnburst.client.burst import bound_request
from nnburst.client.burst.event_loop import waiter_of
from nnburst.testing.faults.activities import check_sum, sum_model, summands, write_summands
from waiting import wait_for

# A finalizer that a handler interrupts cannot pass the exception on: Python reports it and goes on.
pytestmark = pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")


@pytest.fixture
def handlers(chance: random.Random) -> Iterator[Handlers]:
    with Handlers(chance).installed() as installed:
        yield installed


@pytest.fixture(scope="module")
def device() -> Iterator[nnburst.Device]:
    with nnburst.launch("reference") as launched:
        yield launched


@pytest.fixture
def burst(device: nnburst.Device) -> Iterator[Burst]:
    with device.prepare(sum_model()) as prepared, prepared.open_burst(max_in_flight=2) as opened:
        yield opened


def collect_all(burst: Burst) -> None:
    """Collect results until no request is pending, whatever the outcomes are."""
    while burst._core.pending:
        with contextlib.suppress(nnburst.GeneralFailure):
            burst._core.pending[0].result(20)


def submitted(request: Any) -> Any:
    """Submit after the driver has finished the requests of an interrupted call, which count in the limit."""
    taken: list[Any] = []

    def is_taken() -> bool:
        with contextlib.suppress(nnburst.BurstBusy):
            taken.append(request.submit())
        return bool(taken)

    wait_for(is_taken)
    return taken[0]


@pytest.mark.parametrize("more", [0, 1, 3])
def test_interrupted_executions_leave_a_burst_usable(
    burst: Burst, handlers: Handlers, more: int
) -> None:
    for number in range(100 * KILLS):
        number %= 1000
        handlers.around(partial(burst.execute, summands(number)), more, 300e-6)
        check_sum(burst.execute(summands(number)).outputs[0], number)
    assert handlers.interrupted


@pytest.mark.parametrize("more", [0, 1, 3])
def test_interrupted_submissions_leave_results_with_their_requests(
    burst: Burst, handlers: Handlers, more: int
) -> None:
    bound = [burst.bind(), burst.bind()]

    def both() -> None:
        for one in [request.submit() for request in bound]:
            one.result(20)

    for number in range(100 * KILLS):
        numbers = (number % 1000, 1000 + number % 1000)
        collect_all(burst)
        for request, value in zip(bound, numbers, strict=True):
            for array, summand in zip(request.inputs, summands(value), strict=True):
                array[...] = summand
        handlers.around(both, more, 600e-6)
        collect_all(burst)
        assert burst._core.client.in_flight == burst._core.client.overdue
        for request in bound:
            request.outputs[0][...] = -1
        pending = [submitted(request) for request in bound]
        for one, value in zip(pending, numbers, strict=True):
            check_sum(one.result(20).outputs[0], value)
        assert not burst._core.pending
    assert handlers.interrupted


def test_a_submission_that_is_interrupted_anywhere_can_be_made_again(burst: Burst) -> None:
    bound, places = burst.bind(), 0
    write_summands(bound, 5)
    while interrupted_at(places + 1, bound.submit):
        places += 1
        check_sum(bound.submit().result(20).outputs[0], 5)
    assert places > 3
    collect_all(burst)


@pytest.mark.parametrize("more", [0, 1, 3])
def test_interrupted_looks_of_an_event_loop_leave_results_with_their_requests(
    burst: Burst, handlers: Handlers, more: int
) -> None:
    bound = burst.bind()
    for number in range(100 * KILLS):
        number %= 1000
        write_summands(bound, number)
        pending = bound.submit()
        # What an event loop calls with each byte; the loop's own machinery is not ours to interrupt.
        handlers.around(waiter_of(burst._core)._take, more, 100e-6)
        with contextlib.suppress(nnburst.GeneralFailure):  # the interruption took it
            check_sum(pending.result(20).outputs[0], number)
        collect_all(burst)
        check_sum(bound.run().outputs[0], number)
    assert handlers.interrupted


@pytest.fixture
def two_at_once(burst: Burst) -> Iterator[threading.Thread]:
    """Once started, sends two signals as soon as the main thread waits; the handlers of both raise."""
    last_wait = burst._core.client.waits_from_ns

    def raise_it(*_: object) -> None:
        raise Interruption

    def send() -> None:
        wait_for(lambda: burst._core.client.waits_from_ns != last_wait)
        # The main thread comes back with both pending: it gets both itself, and cannot take the interpreter
        # in between, however long this thread waits for a core.
        sys.setswitchinterval(1000)
        for number in both:
            signal.pthread_kill(threading.main_thread().ident or 0, number)
        sys.setswitchinterval(switches)

    both = (signal.SIGUSR1, signal.SIGUSR2)
    switches = sys.getswitchinterval()
    before = [signal.signal(number, raise_it) for number in both]
    yield threading.Thread(target=send)
    for number, handler in zip(both, before, strict=True):
        signal.signal(number, handler)


@pytest.mark.parametrize("how", ["run", "execute", "submit"])
def test_two_handlers_that_raise_at_once_leave_a_burst_usable(
    device: nnburst.Device, burst: Burst, two_at_once: threading.Thread, how: str
) -> None:
    bound, other = burst.bind(), burst.bind()
    for request, number in ((bound, 1), (other, 2)):
        for array, value in zip(request.inputs, summands(number), strict=True):
            array[...] = value
    uses: dict[str, Callable[[], object]] = {
        "run": partial(bound.run, 20),
        "execute": partial(burst.execute, summands(3), timeout=20),
        "submit": lambda: bound.submit().result(20),
    }
    with standing_still(device):
        two_at_once.start()
        with pytest.raises(Interruption) as raised:
            uses[how]()
        two_at_once.join()
    assert isinstance(raised.value.__context__, Interruption), "the second came behind the first"
    collect_all(burst)
    for number, request in enumerate((bound, other), start=1):
        check_sum(request.run(20).outputs[0], number)
    check_sum(burst.execute(summands(4)).outputs[0], 4)
    check_sum(bound.submit().result(20).outputs[0], 1)


def test_interrupted_first_result_is_read_by_the_next_run(
    burst: Burst, monkeypatch: pytest.MonkeyPatch
) -> None:
    bound = burst.bind()
    real = bound_request._run

    def interrupted(request: Any) -> int:
        real(request)  # the result is there, and Python has not read it
        sys.setprofile(entered)
        raise Interruption

    def entered(frame: FrameType, event: str, _what: object) -> None:
        sys.setprofile(None)  # the first function of Python's, in which the second handler can come
        if event == "call" and "nnburst" in frame.f_code.co_filename:
            raise Interruption

    monkeypatch.setattr(bound_request, "_run", interrupted)
    with pytest.raises(Interruption):
        bound.run()
    sys.setprofile(None)
    monkeypatch.setattr(bound_request, "_run", real)
    for _ in range(2):
        assert bound.run().outputs[0].shape == bound.outputs[0].shape
