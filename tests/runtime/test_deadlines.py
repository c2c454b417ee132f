"""Timeouts hold: no work behind a call delays it, whatever happens to drivers."""

from __future__ import annotations

import asyncio
import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import pytest

import nnburst
from client.burst_helpers import standing_still
from nnburst import DeadObject, GeneralFailure, MissedDeadline, ModelBuilder, OperandType
from nnburst.client.device import Device as ClientDevice
from nnburst.hal.enums import OperationType, ResultCode
from nnburst.hal.errors import InvalidArgument, NnburstError
from nnburst.runtime import Compilation, Manager
from nnburst.runtime.argument import Outcome
from nnburst.runtime.devices.device import Device
from nnburst.runtime.devices.driver_device import DriverDevice
from nnburst.testing.partitioning.run import uniform
from runtime.computing_device import ComputingDevice
from runtime.half_drivers import two_halves
from runtime.test_bound_plans import X, chain
from shared_drivers import connect_to
from waiting import wait_for

#: Seconds that a call with a short timeout takes at most on a busy machine, and what is waited for at most.
SOON, PATIENCE = 5.0, 60.0
SHORT = 0.02
RIGHT = (2 * X * X).tolist()

Ways = dict[str, Callable[[float], Any]]


class Adder(DriverDevice):
    """A driver for ADD that comes back only when it may.

    Attributes:
        may_return: whether a driver is started; cleared by a test that looks at what goes on until then.
        starts: how many were.
    """

    def __init__(self) -> None:
        self.may_return = threading.Event()
        self.may_return.set()
        self.starts = 0
        super().__init__(self._start, name="adder")
        self.capabilities = uniform(0.5)

    def _start(self) -> ClientDevice:
        self.starts += 1
        assert self.may_return.wait(PATIENCE)
        return connect_to("reference")

    def die(self) -> None:
        """Kill the driver and wait until that is noticed; another one starts once `may_return` is set."""
        self.may_return.clear()
        client = self._driver
        os.kill(client.pid, signal.SIGKILL)
        until = time.monotonic() + PATIENCE
        while client.is_alive:
            assert time.monotonic() < until, "the death is never noticed"
            time.sleep(0.001)


@pytest.fixture
def adder() -> Iterator[Adder]:
    device = Adder()
    yield device
    device.may_return.set()
    device.close()


@pytest.fixture(scope="module")
def drivers() -> Iterator[Manager]:
    with two_halves() as manager:
        yield manager


def doubled() -> nnburst.Model:
    """x + x."""
    builder = ModelBuilder()
    x = builder.input(OperandType.TENSOR_FLOAT32, (1, 3))
    y = builder.output(OperandType.TENSOR_FLOAT32, (1, 3))
    builder.operation(OperationType.ADD, [x, x, builder.scalar(0)], [y])
    return builder.build()


@contextmanager
def ways_of(model: nnburst.Model, manager: Manager, **options: Any) -> Iterator[Ways]:
    """Every way to execute, by name; each has executed once."""
    with (
        nnburst.compile(model, manager=manager, **options) as compiled,
        compiled.open_burst(max_in_flight=2) as burst,
    ):
        bound, copied, submitted = burst.bind(), burst.bind([X]), burst.bind()
        for request in (bound, submitted):
            request.inputs[0][...] = X
        ways: Ways = {
            "bound": bound.run,
            "copied": copied.run,
            "arrays": lambda t: burst.execute([X], timeout=t),
            "socket": lambda t: compiled.execute([X], timeout=t),
            "submitted": lambda t: submitted.submit(t).result(t),
        }
        for way in ways.values():
            for _ in range(4):
                way(PATIENCE)
        yield ways


def raises_soon(way: Callable[[float], Any], *kinds: type[NnburstError]) -> None:
    began = time.monotonic()
    with pytest.raises(kinds):
        way(SHORT)
    assert time.monotonic() - began < SOON


def result(way: Callable[[float], Any]) -> Any:
    return way(PATIENCE).outputs[0].tolist()


@pytest.mark.parametrize("stopped", ["first", "second"])
def test_the_cpu_never_stands_in_for_a_stopped_driver_after_the_deadline(
    drivers: Manager, stopped: str
) -> None:
    with ways_of(chain(), drivers) as ways:
        for name, way in ways.items():
            with standing_still(drivers.device(stopped)):  # type: ignore[arg-type]
                raises_soon(way, MissedDeadline)
            until = time.monotonic() + PATIENCE
            while name == "submitted":  # until its request is free again
                try:
                    assert result(way) == RIGHT
                    break
                except nnburst.BurstBusy:
                    assert time.monotonic() < until
            assert result(way) == RIGHT, name


def test_calls_that_a_stopped_driver_lets_miss_their_deadlines_cost_no_memory_each(
    drivers: Manager,
) -> None:
    # Each had temporaries of its own, which the driver was to forget; a new call waited 30 s for that.
    with (
        nnburst.compile(chain(), manager=drivers) as compiled,
        compiled.open_burst() as burst,
    ):
        request = burst.bind()
        request.inputs[0][...] = X
        ways = (request.run, lambda t: burst.execute([X], timeout=t))
        for way in ways:
            for _ in range(4):
                way(PATIENCE)
        bound = request._bound
        with standing_still(drivers.device("second")):  # type: ignore[arg-type]
            for way in ways:
                began = time.monotonic()
                for _ in range(100):
                    with pytest.raises(MissedDeadline):
                        way(0.001)
                assert time.monotonic() - began < 4 * SOON
        for value in range(3):
            request.inputs[0][...] = value
            assert request.run().outputs[0].tolist() == [[2.0 * value * value] * 3]
            assert burst.execute([X + value]).outputs[0].tolist() == (2 * (X + value) ** 2).tolist()
        assert request._bound is bound


def test_calls_wait_for_a_driver_that_is_started_again_as_long_as_they_may(adder: Adder) -> None:
    with Manager([adder]) as manager, ways_of(doubled(), manager) as ways:
        adder.die()
        for way in ways.values():
            raises_soon(way, MissedDeadline)
        assert adder.starts == 2, "it is started once again, whatever many calls ask"
        threading.Timer(0.05, adder.may_return.set).start()
        for name, way in ways.items():
            assert result(way) == (X + X).tolist(), name
        assert adder.starts == 2


@pytest.mark.parametrize("is_async", [False, True])
def test_a_cancelled_run_that_waits_for_a_driver_is_waited_for_by_the_next(
    adder: Adder, is_async: bool
) -> None:
    async def main(request: nnburst.BoundRequest) -> None:
        task = asyncio.create_task(request.run_async(PATIENCE))
        await asyncio.to_thread(wait_for, lambda: adder.starts == 2)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        following = asyncio.ensure_future(
            request.run_async(PATIENCE) if is_async else asyncio.to_thread(request.run, PATIENCE)
        )
        done, _ = await asyncio.wait([following], timeout=0.05)
        adder.may_return.set()
        assert not done
        assert (await following).outputs[0].tolist() == (X + X).tolist()

    with (
        Manager([adder]) as manager,
        nnburst.compile(doubled(), manager=manager) as compiled,
        compiled.open_burst() as burst,
    ):
        request = burst.bind()
        request.inputs[0][...] = X
        request.run()
        adder.die()
        asyncio.run(main(request))


def test_calls_that_do_not_wait_are_the_cpus_at_once(adder: Adder) -> None:
    with Manager([adder]) as manager, ways_of(doubled(), manager, recover="raise") as ways:
        adder.die()
        for name, way in ways.items():
            assert result(way) == (X + X).tolist(), name
        assert not adder.may_return.is_set()
        until = time.monotonic() + PATIENCE
        while adder.starts < 2:  # it is started by a thread of its own
            assert time.monotonic() < until
            time.sleep(0.001)
        assert adder.starts == 2
        adder.may_return.set()  # closing waits for what is under way


@pytest.mark.parametrize("listed", [False, True])
def test_without_fallback_calls_that_do_not_wait_are_dead_objects_at_once(
    adder: Adder, listed: bool
) -> None:
    options: dict[str, Any] = {"devices": [adder]} if listed else {"fallback": False}
    with (
        Manager([adder]) as manager,
        ways_of(doubled(), manager, recover="raise", **options) as ways,
    ):
        adder.die()
        for way in ways.values():
            raises_soon(way, DeadObject)
        assert not adder.may_return.is_set()
        adder.may_return.set()
        until = time.monotonic() + PATIENCE
        for way in ways.values():
            while True:
                try:
                    assert result(way) == (X + X).tolist()
                    break
                except DeadObject:
                    assert time.monotonic() < until
                    time.sleep(0.001)
        assert adder.starts == 2


def test_a_failing_device_without_fallback_raises_its_error() -> None:
    device = ComputingDevice("adder", lambda _operation, _model: True)
    with Manager([device]) as manager, ways_of(doubled(), manager, fallback=False) as ways:
        device.on_execute = lambda _model: Outcome(ResultCode.OP_FAILED, message="on purpose")
        for way in ways.values():
            with pytest.raises(GeneralFailure, match="on purpose"):
                way(PATIENCE)
        device.on_execute = lambda _model: None
        device.on_prepare = lambda _model: GeneralFailure("not today")
        with pytest.raises(GeneralFailure, match="not today"):
            nnburst.compile(doubled(), manager=manager, fallback=False)


def test_compile_ends_with_its_timeout_and_closes_what_comes_later(
    drivers: Manager, monkeypatch: pytest.MonkeyPatch
) -> None:
    closed: list[Compilation] = []
    close = Compilation.close
    monkeypatch.setattr(Compilation, "close", lambda self: closed.append(self) or close(self))  # type: ignore[func-returns-value]
    with standing_still(drivers.device("first")):  # type: ignore[arg-type]
        began = time.monotonic()
        with pytest.raises(MissedDeadline, match=r"timeout: 0\.02 s"):
            nnburst.compile(chain(), manager=drivers, timeout=SHORT)
        assert time.monotonic() - began < SOON
        assert not closed
    wait_for(lambda: closed)
    nnburst.compile(chain(), manager=drivers).close()


def test_compile_looks_for_devices_no_longer_than_its_timeout(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    may_find, refresh = threading.Event(), Manager.refresh

    def slowly(manager: Manager) -> list[Device]:
        assert may_find.wait(PATIENCE)
        return refresh(manager)

    monkeypatch.setattr(Manager, "refresh", slowly)
    monkeypatch.setattr(Manager, "_one", None)
    monkeypatch.setenv("NNBURST_CPUONLY", "1")
    for _ in range(2):
        raises_soon(lambda timeout: nnburst.compile(doubled(), timeout=timeout), MissedDeadline)
    may_find.set()
    with nnburst.compile(doubled()) as compiled, Manager.of_process():
        assert compiled.execute([X]).outputs[0].tolist() == (X + X).tolist()


def test_recover_takes_two_words() -> None:
    with pytest.raises(InvalidArgument, match="recover"):
        nnburst.compile(doubled(), manager=Manager([]), recover="never")  # type: ignore[arg-type]


def test_the_cpu_prepares_behind_the_call_and_once(monkeypatch: pytest.MonkeyPatch) -> None:
    device = ComputingDevice("adder", lambda _operation, _model: True)
    may_prepare, prepared = threading.Event(), 0
    with Manager([device]) as manager, ways_of(doubled(), manager) as ways:
        prepare = manager.cpu.prepare

        def slowly(*args: Any) -> Any:
            nonlocal prepared
            prepared += 1
            assert may_prepare.wait(PATIENCE)
            return prepare(*args)

        monkeypatch.setattr(manager.cpu, "prepare", slowly)
        device.on_execute = lambda _model: Outcome(ResultCode.OP_FAILED)
        for way in ways.values():
            raises_soon(way, MissedDeadline)
        assert prepared == 1
        may_prepare.set()
        for way in ways.values():
            assert result(way) == (X + X).tolist()
        assert prepared == 1


def endless() -> nnburst.Model:
    """x, doubled until it is less than 0, which it never is: a loop for its time limit of two seconds."""
    kind = OperandType.TENSOR_FLOAT32
    builder = ModelBuilder()
    number, condition = builder.add_subgraph()
    x, is_true = condition.input(kind, (1,)), condition.output(OperandType.TENSOR_BOOL8, (1,))
    zero = condition.constant(kind, np.zeros(1, np.float32))
    condition.operation(OperationType.GREATER_EQUAL, [x, zero], [is_true])
    body_number, body = builder.add_subgraph()
    value, twice = body.input(kind, (1,)), body.output(kind, (1,))
    body.operation(OperationType.ADD, [value, value, body.scalar(0)], [twice])
    given, out = builder.input(kind, (1,)), builder.output(kind, (1,))
    subgraphs = [builder.subgraph(number), builder.subgraph(body_number)]
    builder.operation(OperationType.WHILE, [*subgraphs, given], [out])
    return builder.build()


def test_the_cpu_looks_at_the_deadline_between_the_iterations_of_a_loop() -> None:
    device = ComputingDevice("looper", lambda _operation, _model: True)
    device.on_execute = lambda _model: Outcome(ResultCode.OP_FAILED)
    one = np.ones(1, np.float32)
    with (
        Manager([device]) as manager,
        nnburst.compile(endless(), manager=manager) as compiled,
    ):
        with pytest.raises(MissedDeadline):  # by its time limit, and then it is prepared
            compiled.execute([one], timeout=PATIENCE)
        began = time.monotonic()
        with pytest.raises(MissedDeadline):
            compiled.execute([one], timeout=0.1)
        assert time.monotonic() - began < 1.5, "it ran until the loop's own time limit"


def test_a_submission_that_waits_behind_others_does_not_outlive_its_time(drivers: Manager) -> None:
    with (
        nnburst.compile(chain(), manager=drivers) as compiled,
        compiled.open_burst(max_in_flight=2) as burst,
    ):
        first, second = burst.bind(), burst.bind()
        for request in (first, second):
            request.inputs[0][...] = X
            request.run()
        with standing_still(drivers.device("first")):  # type: ignore[arg-type]
            before = first.submit(PATIENCE)
            behind = second.submit(SHORT)
            began = time.monotonic()
            with pytest.raises(MissedDeadline):
                behind.result(PATIENCE)
            assert time.monotonic() - began < SOON
        assert before.result(PATIENCE).outputs[0].tolist() == RIGHT
