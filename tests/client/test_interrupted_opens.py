"""An object of the driver whose opening is interrupted anywhere leaves the driver."""

from __future__ import annotations

import gc
import os
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from client import scripted_driver
from client.scripted_driver import ScriptedDriver
from interrupting import interrupted_at
from nnburst import Model, PreparedModel, hal
from nnburst.driver.service.worker import Worker
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


def open_descriptors() -> int:
    return len(os.listdir("/proc/self/fd"))


@pytest.mark.every_day("anew")
@pytest.mark.parametrize("way", ["anew", "to a cache", "from a cache"])
def test_preparation_that_is_interrupted_anywhere_leaves_nothing(
    make_model: Callable[..., Model], way: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.setattr(scripted_driver, "Worker", lambda *_: Worker("null", "null"))
    # pytest's keeps the exception, and with it what the interrupted call had made.
    monkeypatch.setattr(sys, "unraisablehook", lambda _: None)
    folder = None if way == "anew" else tmp_path / "cache"
    model, kept = make_model(), list[PreparedModel]()
    with ScriptedDriver() as driver:

        def prepare() -> None:
            if folder is not None and way == "to a cache" and folder.exists():
                for file in folder.iterdir():
                    file.unlink()
            kept.append(driver.device.prepare(model, cache_dir=folder))

        def left() -> tuple[int, int, int]:
            driver.device.supported_operations(model)  # what is released later goes with this call
            gc.collect()
            assert driver.worker._session is not None
            return (
                len(driver.worker._session.objects),
                len(driver.session.callbacks._callbacks),
                len(driver.session.own_bursts._notes),
            )

        prepare()
        kept.pop().close()
        places, lost = 0, 0
        wait_for(lambda: left() == (0, 0, 0))
        descriptors = open_descriptors()
        while interrupted_at(places + 1, prepare):
            places += 1
            while kept:  # a finalizer may have got the interruption
                kept.pop().close()
            most = descriptors + 1  # one may have been returned and not stored yet
            wait_for(lambda most=most: left() == (0, 0, 0) and open_descriptors() <= most)
            lost += open_descriptors() > descriptors
            descriptors = open_descriptors()
        assert lost <= 4
        assert kept.pop().from_cache == (way == "from a cache")
    assert places > 50
