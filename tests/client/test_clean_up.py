"""Unreferenced objects are freed: on the client by counting references, in the driver by their release."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

import nnburst
from nnburst import Device, Model
from nnburst.control.channel import MAX_MODELS
from waiting import wait_for

#: Supports operations only while no model of it lives, and so shows through the protocol whether one does.
_COUNTING = """
from nnburst.executor.null import NullExecutor, NullPrepared

LIVE = set()


class Prepared(NullPrepared):
    def __init__(self, model):
        super().__init__(model)
        LIVE.add(id(self))

    def close(self):
        LIVE.discard(id(self))


class Executor(NullExecutor):
    def supported(self, model):
        return [not LIVE] * len(model.main.operations)

    def prepare(self, model, *arguments, **more):
        return Prepared(model)
"""


@pytest.fixture
def counting(make_module: Callable[[str, str], None]) -> Iterator[Device]:
    """A driver that shows whether it has prepared models."""
    make_module("counting", _COUNTING)
    with nnburst.launch("counting:Executor") as device:
        yield device


def wait_until_gone(reference: weakref.ref[Any]) -> None:
    """Another thread, on its way out of notifying this one, may hold it a moment longer."""
    wait_for(lambda: reference() is None)


def is_free(device: Device, model: Model) -> bool:
    """Whether the driver has no prepared model."""
    return all(device.supported_operations(model))


def wait_until_free(device: Device, model: Model) -> None:
    """A release and the question after it run on two threads of the driver, in any order."""
    wait_for(lambda: is_free(device, model))


def test_a_forgotten_prepared_model_is_freed_at_once_on_both_sides(
    counting: Device, make_model: Callable[..., Model]
) -> None:
    model = make_model()
    gc.disable()  # references are counted; no cycle keeps it
    try:
        prepared = counting.prepare(model)
        result = prepared.execute([np.zeros((2, 3), np.float32)] * 2)
        with prepared.open_burst() as burst:
            burst.execute([np.zeros((2, 3), np.float32)] * 2)
        closed = weakref.ref(burst)
        del burst
        wait_until_gone(closed)
        assert not is_free(counting, model)
        gone = weakref.ref(prepared)
        del prepared
        wait_until_gone(gone)
        wait_until_free(counting, model)
        assert result.outputs[0].shape == (2, 3)
    finally:
        gc.enable()


def test_a_released_model_is_freed_in_the_driver_with_its_last_user(
    counting: Device, make_model: Callable[..., Model]
) -> None:
    model = make_model()
    prepared = counting.prepare(model)
    burst = prepared.open_burst()
    prepared.close()
    assert not is_free(counting, model), "the burst uses it"
    burst.close()
    wait_until_free(counting, model)


def test_forgotten_prepared_models_do_not_count(
    own_device: Device, make_model: Callable[..., Model]
) -> None:
    model = make_model((1,))
    for _ in range(MAX_MODELS + 1):
        own_device.prepare(model)
    assert own_device.is_alive


def test_burst_whose_close_was_interrupted_is_freed_with_its_last_user(
    counting: Device, make_model: Callable[..., Model], monkeypatch: pytest.MonkeyPatch
) -> None:
    class Interrupted(BaseException):
        pass

    def interrupted() -> None:
        raise Interrupted

    prepared = counting.prepare(make_model())
    burst = prepared.open_burst()
    with monkeypatch.context() as patch, pytest.raises(Interrupted):
        patch.setattr(burst._core, "_stop", interrupted)
        burst.close()
    prepared.close()
    del burst, prepared
    gc.collect()
    wait_for(lambda: is_free(counting, make_model()))
