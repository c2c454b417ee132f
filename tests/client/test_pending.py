"""Outcomes by themselves: how often they are delivered, for how long they are waited for, when they go."""

from __future__ import annotations

import gc
import threading
import traceback
import weakref
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

import nnburst
from nnburst import Closed, Device, DeviceUnavailable, GeneralFailure, MissedDeadline, PreparedModel
from nnburst.client.session.pending import CallbackThread, Pending

HANG = 20.0


@pytest.fixture
def pending() -> Pending[int]:
    return Pending("the answer", CallbackThread())


def test_interruption_that_takes_a_result_is_raised_once(pending: Pending[int]) -> None:
    def interrupted(_pending: object) -> int:
        raise KeyboardInterrupt

    pending._complete(interrupted)
    with pytest.raises(KeyboardInterrupt):
        pending.result(HANG)
    for _ in range(2):
        with pytest.raises(GeneralFailure, match="interruption"):
            pending.result(HANG)


def test_error_raised_again_and_again_does_not_grow(pending: Pending[int]) -> None:
    pending._complete(MissedDeadline("too late"))
    lengths = set()
    for _ in range(50):
        with pytest.raises(MissedDeadline, match="too late") as caught:
            pending.result(HANG)
        lengths.add(len(traceback.extract_tb(caught.value.__traceback__)))
    assert len(lengths) == 1


def test_error_that_a_result_ends_with_is_raised_again(pending: Pending[int]) -> None:
    def fail(_pending: object) -> int:
        raise nnburst.OutputInsufficientSize("too small", output_shapes=())

    pending._complete(fail)
    for _ in range(3):
        with pytest.raises(nnburst.OutputInsufficientSize, match="too small") as caught:
            pending.result(HANG)
        assert caught.value.status == nnburst.OutputInsufficientSize.default_status


@pytest.mark.parametrize("timeout", [1e7, 1e10, 1e300])
def test_outcome_can_be_waited_for_for_any_time(pending: Pending[int], timeout: float) -> None:
    thread = threading.Timer(0.02, lambda: pending._complete(lambda _pending: 7))
    thread.start()
    assert pending.result(timeout) == 7
    thread.join(HANG)


@pytest.mark.parametrize("timeout", [1e7, 1e12])
def test_connect_takes_any_timeout(timeout: float) -> None:
    with pytest.raises(DeviceUnavailable):
        nnburst.connect("/nonexistent/socket", timeout=timeout)


@pytest.fixture
def no_collector() -> Iterator[None]:
    gc.collect()
    gc.disable()
    yield
    gc.enable()


@pytest.mark.usefixtures("no_collector")
@pytest.mark.parametrize("kind", ["execution", "preparation", "cancelled", "failed"])
def test_outcome_that_is_not_fetched_goes_without_the_collector(
    device: Device,
    prepared: PreparedModel,
    pair: list[np.ndarray],
    make_model: Callable[..., nnburst.Model],
    kind: str,
) -> None:
    done = threading.Event()

    def heard(_pending: object) -> None:
        done.set()

    made: Any
    if kind == "preparation":
        made = device.prepare_async(make_model(), callback=heard)
    else:
        made = prepared.execute_async(
            pair, callback=heard, deadline_ns=0 if kind == "failed" else None
        )
    cancelled = kind == "cancelled" and made.cancel()
    assert done.wait(HANG)
    if cancelled:
        with pytest.raises(Closed):
            made.result(HANG)
    if kind == "failed":
        with pytest.raises(MissedDeadline):
            made.result(HANG)
    gone = threading.Event()
    weakref.finalize(made, gone.set)
    del made
    assert gone.wait(HANG)
