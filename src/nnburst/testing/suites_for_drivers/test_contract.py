"""Tests the promises that every driver makes to its clients, independent of its executor."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import replace
from functools import cache

import numpy as np
import pytest

from nnburst.client.connect import connect
from nnburst.client.device import Device
from nnburst.control.channel import Fds
from nnburst.control.messages import Executed, ExecuteSynchronously
from nnburst.hal.enums import ErrorStatus, FeatureLevel
from nnburst.hal.errors import InvalidArgument, MissedDeadline
from nnburst.hal.model import DataLocation, MemoryPool, Model
from nnburst.hal.types import Request, RequestArgument
from nnburst.hal.validation.values import validate_device_type, validate_timing
from nnburst.testing.conformance.runners import BurstRunner, ExecuteRunner, allocate_pools
from nnburst.testing.conformance.vectors import build
from nnburst.testing.driver_under_test import DriverUnderTest
from nnburst.testing.faults.activities import check_sum, sum_model, summands
from nnburst.testing.faults.footprint import footprint, settle
from nnburst.testing.models.random_graphs import PRIMARY, generate
from nnburst.testing.models.random_graphs.graphs import as_vector
from nnburst.testing.models.small_models import SmallModel, all_models, some_per_operation

#: Threads that a worker may keep after calls.
_MOST_THREADS = 64
#: Seconds that a worker may take to release closed objects.
_PATIENCE = 10.0
#: Random graphs of each class to try before a driver counts as supporting no operation.
_SEEDS = 40


@cache
def small_models() -> dict[str, SmallModel]:
    """A small model of every operation."""
    return {model.name: model for model in some_per_operation(all_models())}


def test_driver_reports_what_it_is(nnburst_device: Device) -> None:
    assert nnburst_device.name
    assert nnburst_device.version_string
    assert nnburst_device.feature_level >= FeatureLevel.V1_2
    assert nnburst_device.is_alive
    validate_device_type(nnburst_device.type, nnburst_device.feature_level)


def test_driver_supports_something(nnburst_device: Device) -> None:
    # Unsupported operations are skipped: a driver that refuses all models would pass untested.
    assert any(any(nnburst_device.supported_operations(model)) for model in _asked())


def _asked() -> Iterator[Model]:
    """Models of every operation, in ever more forms."""
    yield sum_model()
    yield from (small.model for small in all_models() if not small.pools)
    for seed in range(_SEEDS):
        for kind in PRIMARY["large"]:
            yield build(as_vector(generate("large", kind, seed))).model


@pytest.mark.parametrize("name", list(small_models()))
def test_what_is_supported_is_prepared_and_executed_and_the_rest_refused(
    nnburst_address: str, name: str
) -> None:
    small = small_models()[name]
    runners = [kind.over(connect(nnburst_address)) for kind in (ExecuteRunner, BurstRunner)]
    try:
        supported = _supported(nnburst_address, small)
        for runner in runners:
            if not all(supported):
                with pytest.raises(InvalidArgument):
                    runner.prepare(small.model, small.pools)
                continue
            prepared = runner.prepare(small.model, small.pools)
            result = prepared.run(small.inputs, small.output_sizes)
            assert result.status == ErrorStatus.NONE, result.message
            prepared.close()
    finally:
        for runner in runners:
            runner.close()


def _supported(address: str, small: SmallModel) -> list[bool]:
    """The driver's report on support, operation by operation."""
    with connect(address) as device:
        pools = allocate_pools(device, small.pools)
        return device.supported_operations(small.model, pools=pools)


@pytest.mark.nnburst_values
@pytest.mark.usefixtures("nnburst_adds")
def test_executions_over_socket_and_burst_give_the_sum(nnburst_device: Device) -> None:
    with nnburst_device.prepare(sum_model()) as prepared, prepared.open_burst() as burst:
        bound = burst.bind()
        for number in range(100):
            check_sum(prepared.execute(summands(number)).outputs[0], number)
            for array, value in zip(bound.inputs, summands(number), strict=True):
                array[...] = value
            bound.outputs[0][...] = np.nan  # earlier objects must not leave resources
            check_sum(bound.run().outputs[0], number)
        validate_timing(prepared.execute(summands(0), measure=True).timing)
        validate_timing(burst.execute(summands(0), measure=True).timing)


@pytest.mark.usefixtures("nnburst_adds")
def test_deadline_that_has_passed_is_missed_for_good(nnburst_device: Device) -> None:
    at = [RequestArgument(location=DataLocation(0, offset, 512)) for offset in (0, 512, 1024)]
    request = Request((at[0], at[1]), (at[2],), (MemoryPool(4096),))
    with (
        nnburst_device.prepare(sum_model()) as prepared,
        nnburst_device.allocate(4096) as memory,
        Fds([memory.duplicate()]) as fds,
    ):
        message = ExecuteSynchronously(
            prepared._prepared.handle,
            request,
            deadline_ns=time.clock_gettime_ns(time.CLOCK_BOOTTIME) - 1,
        )
        with pytest.raises(MissedDeadline) as missed:
            nnburst_device._session.connection.call(message, Executed, list(fds), timeout=30)
    assert missed.value.status == ErrorStatus.MISSED_DEADLINE_PERSISTENT


@pytest.mark.usefixtures("nnburst_adds")
def test_what_is_closed_is_given_back(
    nnburst_device: Device, nnburst_driver: DriverUnderTest
) -> None:
    if nnburst_driver.pid is None:
        pytest.skip("what a driver holds that was there before is its own business")
    _use_and_close(nnburst_device)
    baseline = footprint(nnburst_device.pid)
    for _ in range(10):
        _use_and_close(nnburst_device)
    settle(nnburst_device.pid, replace(baseline, threads=_MOST_THREADS), _PATIENCE)


def _use_and_close(device: Device) -> None:
    with device.prepare(sum_model()) as prepared, prepared.open_burst() as burst:
        burst.bind().run()
        prepared.execute(summands(1))
