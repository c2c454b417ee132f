"""Several requests under way at once: order, limits, and what happens when one goes wrong."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
import threading
from collections.abc import Iterator

import numpy as np
import pytest

from client.burst_helpers import copy_model, numbered_requests, standing_still
from client.conftest import add_model
from nnburst import BurstBusy, Closed, DeadObject, Device, MissedDeadline, PreparedModel
from nnburst.client.burst.interface import Burst
from nnburst.hal.errors import GeneralFailure
from nnburst.hal.types import OutputShape
from waiting import wait_for

LIMIT = 4


@pytest.fixture
def burst(still: Device) -> Iterator[Burst]:
    with (
        still.prepare(copy_model()) as prepared,
        prepared.open_burst(max_in_flight=LIMIT) as opened,
    ):
        yield opened


def test_results_come_in_order_and_belong_to_their_requests(burst: Burst) -> None:
    bound = numbered_requests(burst, LIMIT)
    for _ in range(50):
        pending = [request.submit() for request in bound]
        for number, one in enumerate(pending):
            assert one.result().outputs[0].tolist() == [number, number]


def test_asking_for_a_later_result_collects_the_earlier_ones(burst: Burst) -> None:
    pending = [request.submit() for request in numbered_requests(burst, LIMIT)]
    assert pending[-1].result().outputs[0].tolist() == [LIMIT - 1] * 2
    assert not burst._core.pending
    for number, one in enumerate(pending):
        for _ in range(2):
            assert one.result().outputs[0].tolist() == [number, number]


def test_all_requests_are_out_at_once(still: Device, burst: Burst) -> None:
    bound = numbered_requests(burst, LIMIT)
    with standing_still(still):
        pending = [request.submit() for request in bound]
        assert burst._core.client.in_flight == LIMIT
    assert [one.result().outputs[0][0] for one in pending] == list(range(LIMIT))


def test_submission_beyond_the_limit_is_refused_and_nothing_is_sent(
    still: Device, burst: Burst
) -> None:
    bound = numbered_requests(burst, LIMIT + 1)
    with standing_still(still):
        pending = [request.submit() for request in bound[:LIMIT]]
        with pytest.raises(BurstBusy, match=f"{LIMIT} requests are under way"):
            bound[LIMIT].submit()
        assert len(burst._core.pending) == burst._core.client.in_flight == LIMIT
    pending[0].result()
    assert bound[LIMIT].submit().result().outputs[0].tolist() == [LIMIT, LIMIT]


def test_request_that_is_under_way_cannot_be_submitted_again(still: Device, burst: Burst) -> None:
    (bound,) = numbered_requests(burst, 1)
    with standing_still(still):
        pending = bound.submit()
        for call in (bound.submit, bound.run):
            with pytest.raises(BurstBusy, match="its memory is in use"):
                call()
    pending.result()
    assert bound.run()


@pytest.mark.parametrize("end", ["the driver is killed", "the burst is closed"])
def test_request_that_is_under_way_cannot_be_submitted_once_the_burst_has_ended(
    own_device: Device, end: str
) -> None:
    with own_device.prepare(copy_model()) as prepared, prepared.open_burst() as burst:
        under_way, other = numbered_requests(burst, 2)
        under_way.submit()  # and stays so, since nothing collects its result
        if end == "the driver is killed":
            noticed = threading.Event()
            own_device.on_death(noticed.set)
            os.kill(own_device.pid, signal.SIGKILL)
            assert noticed.wait(60)
        else:
            burst.close()
        expected = DeadObject if end == "the driver is killed" else Closed
        for request in (under_way, other):
            for call in (request.submit, request.run, lambda r=request: asyncio.run(r.run_async())):
                with pytest.raises(expected):
                    call()


@pytest.mark.parametrize("out", [1, LIMIT - 1, LIMIT])
def test_run_beside_submissions_gets_its_own_result(burst: Burst, out: int) -> None:
    bound = numbered_requests(burst, out + 1)
    for _ in range(3):
        pending = [request.submit() for request in bound[:out]]
        assert bound[out].run().outputs[0].tolist() == [out, out]
        for number, one in enumerate(pending):
            assert one.result().outputs[0].tolist() == [number, number]


def test_submission_that_is_waited_for_too_shortly_stays_out(still: Device, burst: Burst) -> None:
    bound = numbered_requests(burst, 2)
    with standing_still(still):
        pending = [request.submit() for request in bound]
        for one in reversed(pending):
            with pytest.raises(MissedDeadline):
                one.result(timeout=0.01)
    for number, one in enumerate(pending):
        assert one.result().outputs[0].tolist() == [number, number]


def test_overdue_run_and_later_submissions_are_distinguished(still: Device, burst: Burst) -> None:
    bound = numbered_requests(burst, 4)
    with standing_still(still):
        with pytest.raises(MissedDeadline):
            bound[3].run(timeout=0.01)
        pending = [request.submit() for request in bound[:2]]
        with pytest.raises(MissedDeadline):
            bound[2].run(timeout=0.01)
    for number, one in enumerate(pending):
        assert one.result().outputs[0].tolist() == [number, number]
    assert bound[2].run().outputs[0].tolist() == [2, 2]


def test_submit_after_an_overdue_run_waits_for_nothing(still: Device) -> None:
    with still.prepare(copy_model()) as prepared, prepared.open_burst() as burst:
        first, second = numbered_requests(burst, 2)
        with standing_still(still):
            with pytest.raises(MissedDeadline):
                first.run(timeout=0.01)
            with pytest.raises(BurstBusy):
                second.submit()
        results = burst._core.channels.results
        wait_for(lambda: results.available_to_read() > 0)
        assert second.submit().result().outputs[0].tolist() == [1, 1]
        assert burst.statistics()["dropped"] == 1


def test_failure_of_one_request_belongs_to_that_request(burst: Burst) -> None:
    bound = numbered_requests(burst, 3)
    bound[1]._packet.view("u1").reshape(-1, 24)[1, 0] = 6  # ill-formed, at its right length
    pending = [request.submit() for request in bound]
    assert pending[2].result().outputs[0].tolist() == [2, 2]
    with pytest.raises(GeneralFailure, match="GENERAL_FAILURE"):
        pending[1].result()
    assert pending[0].result().outputs[0].tolist() == [0, 0]


def test_lost_boundary_ends_the_burst_and_every_outstanding_request_raises(
    still: Device, burst: Burst
) -> None:
    bound = numbered_requests(burst, LIMIT)
    bound[1]._packet.view("<u4").reshape(-1, 6)[0, 1] = 2**31
    with standing_still(still):
        pending = [request.submit() for request in bound]
    assert pending[0].result().outputs[0].tolist() == [0, 0]
    with pytest.raises(GeneralFailure, match="answered GENERAL_FAILURE"):
        pending[1].result()
    for one in pending[2:]:
        with pytest.raises(GeneralFailure, match="boundary was lost"):
            one.result()
    for call in (bound[0].run, bound[0].submit, burst.bind):
        with pytest.raises(GeneralFailure, match="boundary was lost"):
            call()


def test_close_ends_outstanding_requests(still: Device) -> None:
    with still.prepare(copy_model()) as prepared:
        burst = prepared.open_burst(max_in_flight=2)
        (bound,) = numbered_requests(burst, 1)
        pending = bound.submit()
        burst.close()
        with pytest.raises(Closed):
            pending.result()


def test_result_without_a_request_closes_the_burst(still: Device) -> None:
    with still.prepare(copy_model()) as prepared, prepared.open_burst() as burst:
        (bound,) = numbered_requests(burst, 1)
        bound.run()
        # The driver's end of the result ring, as a hostile driver would use it.
        results = burst._core.channels.results
        part = results.descriptor.grantors[1]
        words = results.memories[0].map(writable=True)[part.offset : part.offset + 8].view("<u8")
        words += np.uint64(48)
        with pytest.raises(GeneralFailure, match="a result without a request"):
            bound.run()
        with pytest.raises(GeneralFailure, match="a result without a request"):
            burst.bind()


@pytest.mark.parametrize(("queue", "grantor"), [("results", 1), ("requests", 0)])
def test_hostile_driver_ends_that_burst_and_no_other(
    still: Device, queue: str, grantor: int
) -> None:
    with still.prepare(copy_model()) as prepared, prepared.open_burst() as bystander:
        with prepared.open_burst(channel_length=6, max_in_flight=2) as burst:
            bound = numbered_requests(burst, 2)
            bound[0].run()
            channel = getattr(burst._core.channels, queue)
            part = channel.descriptor.grantors[grantor]
            region = channel.memories[0].map(writable=True)
            words = region[part.offset : part.offset + 8].view("<u8")
            with standing_still(still):
                words[0] = 2**63
                with pytest.raises(GeneralFailure):
                    bound[1].run(timeout=5)
            with pytest.raises(GeneralFailure):
                bound[0].run()
        assert bystander.execute([np.ones(2, np.float32)]).outputs[0].tolist() == [1, 1]


def test_request_that_does_not_fit_takes_the_ordinary_path_also_behind_a_submission(
    relu: PreparedModel, still: Device
) -> None:
    with relu.open_burst(max_in_flight=2, channel_length=5, result_channel_length=64) as burst:
        small = burst.bind()
        pools = [still.allocate(64) for _ in range(2)]
        big = burst.bind([pools[0].array("f4", (2,))], [pools[1].array("f4", (2,))])
        small.inputs[0][:], big.inputs[0][:] = 1, 2
        assert big.run().outputs[0].tolist() == [2, 2]
        pending = small.submit()
        assert big.run().outputs[0].tolist() == [2, 2]
        assert pending.result().outputs[0].tolist() == [1, 1]


def test_exception_of_a_signal_handler_does_not_settle_the_request(
    still: Device, burst: Burst
) -> None:
    def handler(*_: object) -> None:
        raise ValueError("a handler's own")

    first, second = numbered_requests(burst, 2)
    before = signal.signal(signal.SIGALRM, handler)
    try:
        with standing_still(still):
            one, two = first.submit(), second.submit()
            signal.setitimer(signal.ITIMER_REAL, 0.05)
            with pytest.raises(ValueError, match="a handler's own"):
                one.result()
            assert len(burst._core.pending) == burst._core.client.in_flight == 2
    finally:
        signal.signal(signal.SIGALRM, before)
    assert two.result().outputs[0].tolist() == [1, 1]
    assert one.result().outputs[0].tolist() == [0, 0]


def test_result_may_be_waited_for_for_any_time(burst: Burst) -> None:
    (bound,) = numbered_requests(burst, 1)
    assert bound.submit().result(sys.maxsize).outputs[0].tolist() == [0, 0]


def test_run_that_is_overdue_among_submissions_may_be_repeated(still: Device, burst: Burst) -> None:
    first, second = numbered_requests(burst, 2)
    with standing_still(still):
        submitted = first.submit()
        with pytest.raises(MissedDeadline):
            second.run(timeout=0.02)
    assert submitted.result().outputs[0].tolist() == [0, 0]
    for _ in range(3):
        assert second.run().outputs[0].tolist() == [1, 1]


def test_abandoned_request_has_no_result(burst: Burst) -> None:
    bound = numbered_requests(burst, 2)
    submitted = bound[0].submit()
    submitted.abandon()
    with pytest.raises(Closed, match="was abandoned"):
        submitted.result()
    assert bound[1].run().outputs[0].tolist() == [1, 1]


def test_reported_shape_that_does_not_fit_its_memory_is_the_drivers_failure(still: Device) -> None:
    with still.prepare(add_model((2,), output=(0,))) as prepared, prepared.open_burst() as burst:
        bound = burst.bind(output_bytes=[8])
        with pytest.raises(GeneralFailure, match=r"of shape \(1000,\) in 2 elements"):
            bound._shaped([OutputShape((1000,), True)])
