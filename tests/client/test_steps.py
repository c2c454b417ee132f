"""Requests of several bursts that run by one C call: in order, in one time, one run at a time."""

from __future__ import annotations

import os
import random
import signal
import sys
import threading
import time
from collections.abc import Iterator
from types import FrameType

import numpy as np
import pytest

from client.burst_helpers import standing_still
from nnburst import BurstBusy, Closed, DeadObject, Device, ExecutionResult, Memory, MissedDeadline
from nnburst._native import ffi, lib
from nnburst.client.burst.interface import Burst
from nnburst.client.burst.steps import BoundSteps, run_steps
from nnburst.client.session.gate import Gate, entries, leave
from nnburst.hal.enums import OperandType, OperationType
from nnburst.hal.model import Model
from nnburst.hal.model_builder import ModelBuilder
from shared_drivers import connect_to
from waiting import wait_for

X = np.array([1.0, 2.0, 3.0], np.float32)
FLOATS = OperandType.TENSOR_FLOAT32


def doubling() -> Model:
    builder = ModelBuilder()
    x, y = builder.input(FLOATS, (3,)), builder.output(FLOATS, (3,))
    builder.operation(OperationType.ADD, [x, x, builder.scalar(0)], [y])
    return builder.build()


class Chain:
    """Doubles three numbers once for each burst, in memory that lies in one pool."""

    def __init__(self, bursts: list[Burst], gate: Gate | None = None) -> None:
        self.memory = Memory(64 * (len(bursts) + 1))
        places = [self.memory.array("f4", (3,), 64 * n) for n in range(len(bursts) + 1)]
        self.given, self.taken = places[0], places[-1]
        self.steps = BoundSteps(
            [b.bind([places[n]], [places[n + 1]]) for n, b in enumerate(bursts)],
            gate or Gate(),
            60.0,
        )
        self.accepted: list[int] = []

    def run(self, x: np.ndarray = X) -> np.ndarray:
        self.given[...] = x
        code = run_steps(self.steps.struct)
        if code:
            self.steps.conclude(code, self._accept)
        return self.taken

    def _accept(self, at: int, _result: ExecutionResult) -> bool:
        self.accepted.append(at)
        return True


@pytest.fixture(scope="module")
def devices() -> Iterator[list[Device]]:
    made = [connect_to("reference") for _ in range(2)]
    yield made
    for device in made:
        device.close()


@pytest.fixture
def bursts(devices: list[Device]) -> Iterator[list[Burst]]:
    prepared = [device.prepare(doubling()) for device in devices]
    opened = [one.open_burst() for one in prepared]
    yield opened
    for burst in opened:
        burst.close()
    for one in prepared:
        one.close()


def test_steps_run_in_order_and_come_back_only_for_what_is_new(bursts: list[Burst]) -> None:
    chain = Chain([*bursts, bursts[0]])
    for round_ in range(50):
        assert chain.run(X + round_).tolist() == (8 * (X + round_)).tolist()
    assert chain.accepted == [0, 1, 2], "each result was looked at once: the first"


def test_nothing_of_python_is_called_between_steps(bursts: list[Burst]) -> None:
    long, short = Chain([*bursts] * 4), Chain(bursts[:1])
    counts = []
    for chain in (long, short):
        chain.run()
        events: list[str] = []

        def note(_frame: FrameType, event: str, _arg: object, seen: list[str] = events) -> None:
            seen.append(event)

        sys.setprofile(note)
        try:
            chain.run()
        finally:
            sys.setprofile(None)
        counts.append(len(events))
    assert counts[0] == counts[1]


@pytest.mark.parametrize("stopped", [0, 1])
def test_a_step_that_takes_too_long_ends_the_run_and_its_late_result_is_dropped(
    devices: list[Device], bursts: list[Burst], stopped: int
) -> None:
    chain = Chain(bursts)
    chain.run()
    chain.steps.set_timeout(500_000_000)
    with standing_still(devices[stopped]):
        with pytest.raises(MissedDeadline):
            chain.run(X + 1)
        assert chain.steps.at == stopped
    chain.steps.set_timeout(60_000_000_000)
    for round_ in range(3):
        assert chain.run(X + round_).tolist() == (4 * (X + round_)).tolist()
    assert bursts[stopped].statistics()["dropped"] == 1


@pytest.mark.parametrize("name", ["nnb_bench_steps", "nnb_bench_runs"])
def test_benches_wait_on_through_slices_of_a_long_run(
    devices: list[Device], bursts: list[Burst], name: str
) -> None:
    chain = Chain(bursts)
    chain.run()

    def let_go() -> None:
        wait_for(lambda: bursts[1]._core.client.in_flight > 0)
        threading.Event().wait(0.25)  # of 0.05 s slices
        os.kill(devices[1].pid, signal.SIGCONT)

    going = threading.Thread(target=let_go)
    with standing_still(devices[1]):
        going.start()
        took = getattr(lib, name)(chain.steps.struct, 3, ffi.NULL)
    going.join()
    assert took >= 200_000_000
    assert chain.run(X + 1).tolist() == (4 * (X + 1)).tolist()


def test_one_time_is_for_all_steps(devices: list[Device], bursts: list[Burst]) -> None:
    chain = Chain(bursts)
    chain.run()
    chain.steps.set_timeout(1)  # over when the second step would begin, however quick the first was
    for _ in range(20):
        with pytest.raises(MissedDeadline):
            chain.run()
    chain.steps.set_timeout(60_000_000_000)
    assert chain.run().tolist() == (4 * X).tolist()


class Interruption(BaseException):
    """An exception that no code expects, like Ctrl-C."""


def test_a_run_interrupted_at_any_moment_leaves_the_next_one_right(bursts: list[Burst]) -> None:
    chain = Chain(bursts)

    def interrupt(_number: int, _frame: object) -> None:
        raise Interruption

    def run(x: np.ndarray) -> None:
        code = 0
        try:
            chain.given[...] = x
            code = run_steps(chain.steps.struct)
            if code:
                chain.steps.conclude(code, lambda _at, _result: True)
        except BaseException:
            chain.steps.abandon()
            raise

    moments = random.Random(7)
    before = signal.signal(signal.SIGALRM, interrupt)
    interrupted = 0
    try:
        for round_ in range(300):
            try:
                signal.setitimer(signal.ITIMER_REAL, moments.uniform(1e-6, 3e-4))
                while True:
                    run(X)
            except Interruption:
                interrupted += 1
            run(X + round_)
            assert chain.taken.tolist() == (4 * (X + round_)).tolist()
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
    assert interrupted == 300


def test_a_second_run_over_the_same_bursts_is_refused_and_changes_nothing(
    devices: list[Device], bursts: list[Burst]
) -> None:
    gate = Gate()
    first, second = Chain(bursts, gate), Chain(bursts, gate)
    first.run()
    second.run()
    found: list[list[float]] = []
    thread = threading.Thread(target=lambda: found.append(first.run(X + 1).tolist()))
    with standing_still(devices[1]):
        thread.start()
        with pytest.raises(BurstBusy):
            while thread.is_alive():
                me = next(entries)
                try:
                    gate.enter(me)
                finally:
                    leave(gate.struct, me)
        with pytest.raises(BurstBusy):
            second.run()
    thread.join()
    assert found == [(4 * (X + 1)).tolist()]
    assert second.run().tolist() == (4 * X).tolist()


def test_a_gate_lets_one_holder_in_and_only_that_one_opens_it() -> None:
    gate = Gate("one at a time")
    one, other = next(entries), next(entries)
    gate.enter(one)
    for _ in range(2):
        with pytest.raises(BurstBusy, match="one at a time"):
            gate.enter(other)
        leave(gate.struct, other)
    leave(gate.struct, one)
    gate.enter(other)


def test_a_dead_driver_is_reported_with_its_step(bursts: list[Burst]) -> None:
    device = connect_to("reference")
    with device, device.prepare(doubling()) as prepared, prepared.open_burst() as mortal:
        chain = Chain([bursts[0], mortal])
        chain.run()
        os.kill(device.pid, signal.SIGKILL)
        with pytest.raises(DeadObject):
            deadline = time.monotonic() + 60
            while time.monotonic() < deadline:  # it dies in a moment
                chain.run()
        assert chain.steps.at == 1
        again = Chain(bursts)
        assert again.run().tolist() == (4 * X).tolist()


def test_closed_bursts_and_pools_are_refused(bursts: list[Burst], devices: list[Device]) -> None:
    with devices[1].prepare(doubling()) as prepared:
        burst = prepared.open_burst()
        chain = Chain([bursts[0], burst])
        chain.run()
        burst.close()
        with pytest.raises(Closed):
            chain.run()
    other = Chain(bursts)
    other.run()
    other.memory.close()
    with pytest.raises(Closed):
        other.run()
    assert Chain(bursts).run().tolist() == (4 * X).tolist()
