"""A forked child is refused what it may not do; it does not crash and does not wait."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable
from functools import partial

import numpy as np
import pytest

from client.burst_helpers import copy_model
from nnburst import Buffer, Closed, Device, PreparedModel
from nnburst.client.device import allocate_buffer
from nnburst.client.hal import create_reusable_execution, execute_fenced, open_aidl_burst
from nnburst.hal import SyncFence
from shared_drivers import connect_to


def refused_in_child(use: Callable[[], object]) -> bool:
    """Whether a forked child that does this gets an error."""
    child = os.fork()
    if child == 0:
        try:
            use()
        except Closed as error:
            os._exit(0 if "which forked" in str(error) else 2)
        except BaseException:
            os._exit(3)
        os._exit(4)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


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
