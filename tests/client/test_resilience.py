from __future__ import annotations

import asyncio
import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import nnburst
from descriptors import descriptors_with, inode_of
from nnburst.client.arguments import Array
from nnburst.client.burst.burst import RingBurst
from nnburst.client.burst.recovering import RecoveringBurst
from nnburst.client.device import Device, recovering_device
from nnburst.client.execution.prepared import Prepared
from nnburst.client.prepared_model import PreparedModel
from nnburst.client.session.recovery import InvalidDevice
from nnburst.hal.enums import OperandLifeTime, OperandType, OperationType
from nnburst.hal.extensions import Extension
from nnburst.hal.model import DataLocation, Model, Operand
from nnburst.hal.types import Capabilities, PerformanceInfo
from shared_drivers import address_of, connect_to
from waiting import wait_for

F32 = OperandType.TENSOR_FLOAT32
X = np.arange(4, dtype=np.float32)


def model() -> Model:
    """x + x."""
    builder = nnburst.ModelBuilder()
    x, y = builder.input(F32, (4,)), builder.output(F32, (4,))
    builder.operation(OperationType.ADD, [x, x, builder.scalar(0)], [y])
    return builder.build()


def kill(device: Device) -> None:
    """Kill the driver and wait until the client has noticed."""
    noticed = threading.Event()
    device.on_death(noticed.set)
    os.kill(device.pid, signal.SIGKILL)
    assert noticed.wait(30)


@pytest.fixture
def device() -> Iterator[Device]:
    with connect_to("reference", recover=True) as recovering:
        yield recovering


def test_an_execution_after_a_death_runs_on_a_new_driver(device: Device) -> None:
    with device.prepare(model()) as prepared:
        pid = device.pid
        kill(device)
        assert prepared.execute([X]).outputs[0].tolist() == (X + X).tolist()
        assert device.pid != pid
        assert device.recoveries == 1


def test_a_bound_request_keeps_its_arrays(device: Device) -> None:
    with device.prepare(model()) as prepared, prepared.open_burst() as burst:
        bound = burst.bind(measure=True)
        inputs, outputs = bound.inputs, bound.outputs
        bound.inputs[0][...] = X
        for _ in range(3):
            assert np.shares_memory(bound.run().outputs[0], outputs[0])
            assert outputs[0].tolist() == (X + X).tolist()
            outputs[0][...] = 0
            kill(device)
        result = bound.run()
        assert result.timing.measured
        assert bound.inputs is inputs
        assert outputs[0].tolist() == (X + X).tolist()


def test_framework_waits_for_no_driver_that_died_during_its_call(device: Device) -> None:
    with device.prepare(model()) as prepared, prepared.open_burst() as burst:
        assert isinstance(burst, RecoveringBurst)
        began_ns = time.monotonic_ns()
        kill(device)
        for mortal in (prepared, burst):
            with pytest.raises(nnburst.DeadObject, match="has died meanwhile"):
                mortal._revive(None, began_ns)
        burst._revive(None, time.monotonic_ns())
        prepared._revive(None, began_ns)  # what is there needs nothing
        assert device.recoveries == 1


def test_an_event_loop_runs_a_bound_request_on_a_new_driver(device: Device) -> None:
    with device.prepare(model()) as prepared, prepared.open_burst() as burst:
        bound = burst.bind()
        bound.inputs[0][...] = X
        for _ in range(2):
            bound.outputs[0][...] = 0
            assert asyncio.run(bound.run_async(timeout=60)).outputs[0].tolist() == (X + X).tolist()
            kill(device)
        assert device.recoveries == 1


def test_arrays_are_executed_on_after_a_death(device: Device) -> None:
    with device.prepare(model()) as prepared, prepared.open_burst() as burst:
        shared = device.allocate(16).array(np.float32, (4,))
        shared[...] = X
        for x in (X, shared):
            kill(device)
            assert burst.execute([x]).outputs[0].tolist() == (X + X).tolist()


def product() -> Model:
    """x * w, with w in a pool."""
    builder = nnburst.ModelBuilder()
    x, y = builder.input(F32, (4,)), builder.output(F32, (4,))
    w = builder.operand(
        Operand(
            type=F32,
            dimensions=(4,),
            lifetime=OperandLifeTime.CONSTANT_REFERENCE,
            location=DataLocation(0, 0, 16),
        )
    )
    builder.operation(OperationType.MUL, [x, w, builder.scalar(0)], [y])
    return builder.build()


def weights() -> nnburst.Memory:
    """A pool with the weights of `product`."""
    pool = nnburst.Memory(16)
    pool.array(np.float32, (4,))[...] = 3
    return pool


def test_weights_in_pools_are_prepared_again_after_the_pools_were_closed(device: Device) -> None:
    pools = [weights()]
    pool = inode_of(pools[0])
    prepared = device.prepare(product(), pools=pools)
    pools.pop().close()
    burst = prepared.open_burst()
    for _ in range(2):
        kill(device)
        assert prepared.execute([X]).outputs[0].tolist() == (3 * X).tolist()
        assert burst.execute([X]).outputs[0].tolist() == (3 * X).tolist()
    prepared.close()
    burst.close()
    wait_for(lambda: not descriptors_with(pool))


def test_bursts_of_a_closed_model_go_on_with_each_next_driver(device: Device) -> None:
    pool = weights()
    inode = inode_of(pool)
    with device.prepare(product(), pools=[pool]) as prepared:
        pool.close()
        first, second = prepared.open_burst(), prepared.open_burst()
        bound = first.bind()
        bound.inputs[0][...] = X
    for deaths in range(1, 3):
        kill(device)
        assert bound.run().outputs[0].tolist() == (3 * X).tolist()
        assert second.execute([X]).outputs[0].tolist() == (3 * X).tolist()
        assert asyncio.run(bound.run_async(60)).outputs[0].tolist() == (3 * X).tolist()
        assert device.recoveries == deaths
    for call in (lambda: prepared.execute([X]), prepared.open_burst):
        with pytest.raises(nnburst.Closed, match="the prepared model is released"):
            call()
    first.close()
    second.close()
    with pytest.raises(nnburst.Closed, match="the burst is closed"):
        bound.run()
    wait_for(lambda: not descriptors_with(inode))


def test_a_burst_is_opened_again_even_if_its_model_is_closed_meanwhile(
    device: Device, monkeypatch: pytest.MonkeyPatch
) -> None:
    prepared = device.prepare(model())
    burst = prepared.open_burst()
    open_ring = RingBurst._open

    def open_after_closing(of: Prepared, **options: Any) -> RingBurst:
        prepared.close()
        return open_ring(of, **options)

    monkeypatch.setattr(RingBurst, "_open", open_after_closing)
    kill(device)
    assert burst.execute([X]).outputs[0].tolist() == (X + X).tolist()
    burst.close()


def test_a_model_that_is_never_prepared_again_keeps_no_pool() -> None:
    pool = weights()
    inode = inode_of(pool)
    with connect_to("reference") as device, device.prepare(product(), pools=[pool]):
        pool.close()
        assert not descriptors_with(inode)


def test_pools_of_a_model_that_is_refused_are_not_kept(device: Device) -> None:
    pool = nnburst.Memory(8)  # too small
    inode = inode_of(pool)
    with pytest.raises(nnburst.InvalidArgument):
        device.prepare(product(), pools=[pool])
    pool.close()
    with pytest.raises(nnburst.Closed, match="the pool is closed"):
        device.prepare(product(), pools=[pool])
    assert not descriptors_with(inode)


#: Counts in its output the executions that have begun; one whose input begins with NaN has no end.
_COUNTING = """
import threading

import numpy as np

from nnburst.executor.base import Outcome, Prepared
from nnburst.testing.faults.executors import EndlessExecuting


class Counting:
    native = None

    def __init__(self, x, count):
        self._x, self._count = x.view(np.float32), count.view(np.float32)

    def run(self, *deadlines, **more):
        self._count[0] += 1
        if np.isnan(self._x[0]):
            threading.Event().wait()
        return Outcome()

    def close(self):
        pass


class PreparedCounting(Prepared):
    def bind(self, inputs, outputs):
        return Counting(inputs[0].buffer, outputs[0].buffer)

    def close(self):
        pass


class Executor(EndlessExecuting):
    def prepare(self, *arguments, **options):
        return PreparedCounting()
"""


def _way(prepared: PreparedModel, name: str, count: Array) -> Callable[[Array], Any]:
    """One way to execute on an input, with `count` for the output."""
    if name == "socket":
        return lambda x: prepared.execute([x], [count], timeout=60)
    burst = prepared.open_burst()
    if name == "burst":
        return lambda x: burst.execute([x], [count], timeout=60)
    bound = burst.bind(None, [count])

    def run(x: Array) -> Any:
        bound.inputs[0][...] = x
        return bound.run(60)

    return run


@pytest.mark.every_day("bound request")
@pytest.mark.parametrize("way", ["socket", "burst", "bound request"])
def test_an_execution_that_its_driver_died_of_is_not_repeated(
    way: str, make_module: Callable[[str, str], None]
) -> None:
    make_module("counting", _COUNTING)
    with (
        nnburst.launch("counting:Executor", recover=True) as device,
        device.prepare(model()) as prepared,
        device.allocate(16) as memory,
        ThreadPoolExecutor(1) as thread,
    ):
        count = memory.array(np.float32, (4,))
        execute = _way(prepared, way, count)
        for deaths in range(2):
            lasting = thread.submit(execute, X * np.float32("nan"))
            wait_for(lambda begun=2 * deaths: count[0] != begun)  # type: ignore[misc]
            os.kill(device.pid, signal.SIGKILL)
            assert isinstance(lasting.exception(60), nnburst.DeadObject)
            assert count[0] == 2 * deaths + 1
            execute(X)
            assert device.recoveries == deaths + 1
            assert count[0] == 2 * deaths + 2


def test_threads_that_find_one_driver_dead_recover_it_once(device: Device) -> None:
    with device.prepare(model()) as prepared:
        kill(device)
        barrier = threading.Barrier(8)
        results: list[Any] = []

        def execute() -> None:
            barrier.wait(30)
            results.append(prepared.execute([X]).outputs[0].tolist())

        threads = [threading.Thread(target=execute) for _ in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(60)
        assert results == [(X + X).tolist()] * 8
        assert device.recoveries == 1


def _different(change: Callable[[Device], None]) -> tuple[Device, Any]:
    launched: list[Device] = []

    def connect() -> Device:
        found = connect_to("reference")
        if launched:
            change(found)
        launched.append(found)
        return found

    return recovering_device(connect, "wait"), launched


def test_a_device_that_comes_back_different_is_refused_for_ever() -> None:
    executors = iter(["reference", "null", "reference"])
    with recovering_device(lambda: nnburst.launch(next(executors)), "wait") as device:
        prepared = device.prepare(model())
        kill(device)
        for _ in range(3):  # even if the right one would be back
            with pytest.raises(
                nnburst.GeneralFailure, match="came back different: its name was ref"
            ):
                prepared.execute([X])
        with pytest.raises(nnburst.GeneralFailure, match="came back different"):
            device.prepare(model())
        assert next(executors) == "reference"


SLOW = PerformanceInfo(9.0, 9.0)


def _set(device: Device, attribute: str, value: object) -> None:
    *path, last = attribute.split(".")
    owner: object = device
    for name in path:
        owner = getattr(owner, name)
    setattr(owner, last, value)


@pytest.mark.parametrize(
    ("name", "attribute", "value"),
    [
        ("extensions", "_session._extensions", (Extension("com.example.new"),)),
        ("capabilities", "_capabilities", Capabilities(SLOW, SLOW, (), SLOW, SLOW)),
        ("number_of_cache_files_needed", "_cache_files", (7, 7)),
    ],
)
def test_a_device_with_another_description_is_refused(
    name: str, attribute: str, value: object
) -> None:
    device, launched = _different(lambda found: _set(found, attribute, value))
    with device:
        kill(device)
        with pytest.raises(InvalidDevice, match=f"its {name} was"):
            device.prepare(model())
        assert not launched[1].is_alive


def test_a_service_that_is_not_back_yet_is_asked_again_at_the_next_call() -> None:
    answers: list[Callable[[], Device]] = [
        lambda: connect_to("reference"),
        lambda: nnburst.connect("nobody.serves.this"),
        lambda: connect_to("reference"),
    ]
    with recovering_device(lambda: answers.pop(0)(), "wait") as device:
        prepared = device.prepare(model())
        kill(device)
        with pytest.raises(nnburst.DeadObject, match="was not recovered: "):
            prepared.execute([X])
        assert prepared.execute([X]).outputs[0].tolist() == (X + X).tolist()


def test_a_relative_address_is_found_again_from_another_working_directory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    address = Path(address_of("reference"))
    monkeypatch.chdir(address.parent)
    with nnburst.connect(f"./{address.name}", recover=True) as device:
        prepared = device.prepare(model())
        monkeypatch.chdir(tmp_path)
        kill(device)
        assert prepared.execute([X]).outputs[0].tolist() == (X + X).tolist()


def test_a_relative_address_may_be_too_long_from_the_root_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    deep = tmp_path / ("a" * 60) / ("b" * 60)
    deep.mkdir(parents=True)
    (deep / "driver").symlink_to(address_of("reference"))
    monkeypatch.chdir(deep)
    with nnburst.connect("./driver", recover=True) as device:
        assert device.prepare(model()).execute([X]).outputs[0].tolist() == (X + X).tolist()


def test_a_relative_address_without_a_working_directory_is_an_error_of_ours(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    gone = tmp_path / "gone"
    gone.mkdir()
    monkeypatch.chdir(gone)
    gone.rmdir()
    with pytest.raises(nnburst.DeviceUnavailable, match="no driver serves"):
        nnburst.connect("./driver", recover=True)


def test_what_is_closed_does_not_come_back(device: Device) -> None:
    prepared = device.prepare(model())
    burst = prepared.open_burst()
    bound = burst.bind()
    for closable in (burst, prepared, device):
        closable.close()
        closable.close()
    for call in (bound.run, lambda: prepared.execute([X]), lambda: device.prepare(model())):
        with pytest.raises(nnburst.Closed):
            call()
    assert device.recoveries == 0


def test_calls_end_in_time_while_the_next_driver_does_not_come() -> None:
    go_on, made = threading.Event(), []

    def make() -> Device:
        if made:
            assert go_on.wait(60)
        made.append(connect_to("reference"))
        return made[-1]

    with (
        recovering_device(make, "wait") as device,
        device.prepare(model()) as prepared,
        prepared.open_burst() as burst,
    ):
        bound, work = burst.bind(), burst.function(timeout=0.02)
        bound.inputs[0][...] = X
        kill(device)
        turns = 0

        async def await_it() -> None:
            nonlocal turns
            task = asyncio.ensure_future(bound.run_async(0.05))
            while not task.done():
                turns += 1
                await asyncio.sleep(0.001)
            await task

        calls: list[Callable[[], object]] = [
            lambda: bound.run(0.02),
            lambda: burst.execute([X], timeout=0.02),
            lambda: work(X),
            lambda: bound.submit(0.02),
            lambda: prepared.execute([X], timeout=0.02),
            lambda: prepared.execute_async([X], timeout=0.02),
            lambda: device.prepare(model(), timeout=0.02),
            lambda: device.supported_operations(model(), timeout=0.02),
            lambda: asyncio.run(await_it()),
        ]
        for call in calls:
            with pytest.raises(nnburst.MissedDeadline, match="still being made again"):
                call()
        assert turns > 1, "the event loop stood still"
        assert len(made) == 1, "each call waited for the same recovery"
        go_on.set()
        assert bound.run(60).outputs[0].tolist() == (X + X).tolist()
        assert (device.recoveries, len(made)) == (1, 2)
