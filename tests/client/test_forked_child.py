"""A forked child is refused what it may not do; it does not crash and does not wait."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from functools import partial

import numpy as np
import pytest

import nnburst
from client.burst_helpers import SUM, accumulating, copy_model
from forked_child import refused_in_child, true_in_child
from nnburst import Buffer, CompiledModel, Device, Memory, Model, PreparedModel
from nnburst.client.device import allocate_buffer
from nnburst.client.hal import create_reusable_execution, execute_fenced, open_aidl_burst
from nnburst.hal import SyncFence
from nnburst.runtime import Manager
from nnburst.runtime.devices.driver_device import DriverDevice
from shared_drivers import connect_to

X = np.ones(2, np.float32)


@contextmanager
def prepared_by_a_driver(model: Model, *, recover: bool = False) -> Iterator[PreparedModel]:
    with connect_to("reference", recover=recover) as device, device.prepare(model) as prepared:
        yield prepared


@contextmanager
def compiled_for(model: Model, *, driver: bool) -> Iterator[CompiledModel]:
    device = DriverDevice(lambda: connect_to("reference"), name="driver") if driver else None
    with Manager([] if device is None else [device]) as manager:
        yield nnburst.compile(model, ["driver"] if driver else None, manager=manager)


Make = Callable[[Model], AbstractContextManager[PreparedModel | CompiledModel]]
#: Ways to make a model with bursts.
MAKES: dict[str, Make] = {
    "a driver": prepared_by_a_driver,
    "a driver that recovers": partial(prepared_by_a_driver, recover=True),
    "a plan over a driver": partial(compiled_for, driver=True),
    "a plan on the CPU": partial(compiled_for, driver=False),
}
every_burst = pytest.mark.parametrize("make", MAKES.values(), ids=MAKES.keys())


@pytest.fixture
def used(device: Device, prepared: PreparedModel, pair: list[np.ndarray]) -> PreparedModel:
    """A model that has private memory to write to, which a child lacks."""
    prepared.execute(pair)
    return prepared


def test_forked_child_may_not_execute(used: PreparedModel, pair: list[np.ndarray]) -> None:
    ways: list[Callable[[list[np.ndarray]], object]] = [
        used.execute,
        used.execute_async,
        partial(execute_fenced, used),
    ]
    for way in ways:
        assert refused_in_child(partial(way, pair))
    used.execute(pair)


def test_forked_child_may_not_run_a_reusable_execution(
    used: PreparedModel, pair: list[np.ndarray]
) -> None:
    with create_reusable_execution(used, pair) as execution:
        execution.run()
        assert refused_in_child(execution.run)
        assert refused_in_child(execution.run_fenced)
        execution.run()


def test_forked_child_may_not_use_an_aidl_burst(
    used: PreparedModel, pair: list[np.ndarray]
) -> None:
    with open_aidl_burst(used) as burst:
        burst.execute(pair)
        assert refused_in_child(lambda: burst.execute(pair))
        burst.execute(pair)


def test_forked_child_may_not_fetch_what_its_parent_launched(
    used: PreparedModel, pair: list[np.ndarray]
) -> None:
    fence, signaller = SyncFence.create()
    with execute_fenced(used, pair, wait_for=[fence]) as fenced:
        assert refused_in_child(fenced.info)
        assert refused_in_child(lambda: fenced.result(0.1))
        signaller.signal()
        fenced.fence.wait()
        assert refused_in_child(fenced.result)
        np.testing.assert_array_equal(fenced.result().outputs[0], pair[0] + pair[1])


def test_forked_child_may_not_use_a_buffer(used: PreparedModel, pair: list[np.ndarray]) -> None:
    with allocate_buffer(used._prepared.session, [(used, 0)], (), (), 30.0) as buffer:
        buffer.copy_from(pair[0])

        def copy(buffer: Buffer = buffer) -> None:
            buffer.copy_from(pair[0])

        assert refused_in_child(copy)


def test_forked_child_may_not_await_what_its_parent_launched(
    used: PreparedModel, pair: list[np.ndarray]
) -> None:
    pending = used.execute_async(pair)

    assert refused_in_child(lambda: next(pending.__await__()))
    pending.result()


def test_forked_child_makes_no_driver_of_its_own_for_a_device_that_recovers() -> None:
    with connect_to("reference", recover=True) as device, device.prepare(copy_model()) as prepared:
        x = np.ones(2, np.float32)
        burst = prepared.open_burst()
        bound = burst.bind()
        bound.inputs[0][...] = x
        bound.run()
        ways: list[Callable[[], object]] = [
            bound.run,
            lambda: asyncio.run(bound.run_async()),
            lambda: prepared.execute([x]),
            lambda: burst.execute([x]),
            prepared.open_burst,
            lambda: device.prepare(copy_model()),
        ]
        for way in ways:
            assert refused_in_child(way)
        assert bound.run().outputs[0].tolist() == [1, 1]


@every_burst
def test_forked_child_may_not_call_a_function(make: Make) -> None:
    with make(copy_model()) as model, model.open_burst() as burst:
        bound, function = burst.bind(), burst.function()
        function(X)
        assert not bound.closed
        assert true_in_child(lambda: bound.closed)
        assert refused_in_child(lambda: function(X))
        assert function(X)[0].tolist() == [1, 1]


@every_burst
def test_forked_child_may_neither_reset_nor_get_states(make: Make) -> None:
    with make(accumulating()) as model, model.open_burst(states=[SUM]) as burst:
        bound, function = burst.bind(), burst.function()
        bound.inputs[0][...] = X
        bound.run()
        function(X)
        burst.execute([X])
        for user in (bound, function, burst):
            assert refused_in_child(user.reset)
            assert refused_in_child(partial(getattr, user, "states"))
            assert user.states["sum"].tolist() == [11, 21]
            user.reset()
            assert user.states["sum"].tolist() == [10, 20]


@every_burst
def test_forked_child_may_not_collect_what_its_parent_submitted(make: Make) -> None:
    with make(copy_model()) as model, model.open_burst() as burst:
        submitted = burst.bind().submit()
        assert refused_in_child(submitted.result)
        assert refused_in_child(lambda: asyncio.run(submitted.result_async()))
        submitted.result()


def test_forked_child_may_not_run_a_plan_that_copies_its_arguments() -> None:
    with compiled_for(copy_model(), driver=True) as model, model.open_burst() as burst:
        bound = burst.bind([X], [np.zeros(2, np.float32)])
        bound.run()
        assert refused_in_child(bound.run)
        assert bound.run().outputs[0].tolist() == [1, 1]


def test_forked_child_may_not_map_a_pool_of_its_parent_by_its_object() -> None:
    with Memory(16) as pool:
        pool.array(np.float32, (4,))[...] = 7
        ways: list[Callable[[], object]] = [
            lambda: pool.array(np.float32, (4,)),
            pool.view,
            pool.__dlpack__,
            lambda: np.asarray(pool),
            lambda: np.array(pool),
        ]
        for way in ways:
            assert refused_in_child(way)

        def mapped_anew() -> bool:
            fd = pool.duplicate()
            return Memory.from_fd(fd).array(np.float32, (4,)).tolist() == [7, 7, 7, 7]

        assert true_in_child(mapped_anew)
