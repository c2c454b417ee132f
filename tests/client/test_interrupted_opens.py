"""An object of the driver whose opening is interrupted anywhere leaves the driver."""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

from client.scripted_driver import ScriptedDriver
from interrupting import interrupted_at
from nnburst import Model, PreparedModel, hal
from waiting import wait_for

# An exception that a handler raises within a generator's end is lost: Python reports it.
pytestmark = pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")

ARRAYS = [np.ones((2, 3), np.float32), np.ones((2, 3), np.float32)]
OPENINGS: dict[str, Callable[[ScriptedDriver, PreparedModel], Any]] = {
    "burst": lambda _, prepared: prepared.open_burst(),
    "AIDL burst": lambda _, prepared: hal.open_aidl_burst(prepared),
    "buffer": lambda driver, prepared: driver.device.allocate_buffer([(prepared, 0)]),
    "reusable execution": lambda _, prepared: hal.create_reusable_execution(prepared, ARRAYS),
    "fenced execution": lambda _, prepared: hal.execute_fenced(prepared, ARRAYS),
}


@pytest.fixture
def driver() -> Iterator[ScriptedDriver]:
    with ScriptedDriver() as made:
        yield made


@pytest.mark.every_day("burst", "fenced execution")
@pytest.mark.parametrize("opening", OPENINGS)
def test_object_whose_opening_is_interrupted_anywhere_leaves_the_driver(
    driver: ScriptedDriver, make_model: Callable[..., Model], opening: str
) -> None:
    model = make_model()
    prepared = driver.device.prepare(model, bursts=False)
    kept: list[Any] = []

    def open_it() -> None:
        kept.append(OPENINGS[opening](driver, prepared))

    def objects() -> int:
        driver.device.supported_operations(model)  # what is released later goes with this call
        assert driver.worker._session is not None
        return len(driver.worker._session.objects)

    before, places = objects(), 0
    while interrupted_at(places + 1, open_it):
        places += 1
        while kept:  # a finalizer may have got the interruption
            kept.pop().close()
        # A traceback may refer to what was made.
        wait_for(lambda: objects() <= before or gc.collect() < 0, 20.0)
    assert places > 10
    kept.pop().close()
