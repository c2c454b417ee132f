"""Tests that hostile messages are refused with the right status, and that the driver keeps running."""

from __future__ import annotations

import pytest

from nnburst.client.device import Device
from nnburst.control.messages import Executed, ExecuteSynchronously
from nnburst.hal.errors import InvalidArgument
from nnburst.hal.model import DataLocation, MemoryPool
from nnburst.hal.types import Request, RequestArgument
from nnburst.testing.faults.activities import sum_model, summands
from nnburst.testing.faults.bad_descriptors import bad_descriptors
from nnburst.testing.fuzzing.model_fuzzer import fuzz
from nnburst.testing.fuzzing.packet_fuzzer import fuzz_packets
from nnburst.testing.models.small_models import all_models, some_per_operation

_PACKETS = 5000
#: Bytes by which hostile messages may make a driver grow.
_GROWTH = 16 << 20
_MODELS = 10
_SIZE = 8192


@pytest.mark.usefixtures("nnburst_adds")
def test_mutated_packets_are_answered_and_the_burst_goes_on(nnburst_device: Device) -> None:
    report = fuzz_packets(nnburst_device, _PACKETS, seed=0)
    assert report.failures == []
    assert report.packets == _PACKETS
    assert report.rss_growth <= _GROWTH
    assert nnburst_device.is_alive


def test_mutated_models_and_requests_are_refused(nnburst_device: Device) -> None:
    models = [
        small
        for small in some_per_operation(all_models())
        if not small.pools and all(nnburst_device.supported_operations(small.model))
    ]
    if not models:
        pytest.skip("the driver supports none of the small models")
    report = fuzz(nnburst_device, models[:_MODELS])
    assert [failure._asdict() for failure in report.failures] == []
    assert report.total
    assert nnburst_device.is_alive


@pytest.mark.usefixtures("nnburst_adds")
def test_descriptor_that_is_not_sealed_memory_is_refused(nnburst_device: Device) -> None:
    at = [RequestArgument(location=DataLocation(0, offset, 512)) for offset in (0, 512, 1024)]
    request = Request((at[0], at[1]), (at[2],), (MemoryPool(_SIZE),))
    with nnburst_device.prepare(sum_model()) as prepared, bad_descriptors(_SIZE) as bad:
        message = ExecuteSynchronously(prepared._prepared.handle, request)
        for kind, fd in bad.items():
            try:
                nnburst_device._session.connection.call(message, Executed, [fd], timeout=30)
            except InvalidArgument:
                continue
            pytest.fail(f"a descriptor that is not memory was accepted: {kind}")
        prepared.execute(summands(1))
