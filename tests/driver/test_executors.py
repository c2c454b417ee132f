from __future__ import annotations

import importlib.metadata
from importlib.metadata import EntryPoint

import pytest

from nnburst.driver import executors
from nnburst.driver.executors import find_executor
from nnburst.executor.base import Executor
from nnburst.hal.errors import DeviceUnavailable


@pytest.mark.parametrize("name", ["null", "reference"])
def test_built_in_executor_is_found_by_name(name: str) -> None:
    executor: Executor = find_executor(name)()
    assert executor.name == name


def test_executor_is_found_by_entry_point(monkeypatch: pytest.MonkeyPatch) -> None:
    point = EntryPoint("mine", "nnburst.executor.null:NullExecutor", executors.GROUP)
    monkeypatch.setattr(importlib.metadata, "entry_points", lambda **_: [point])
    assert find_executor("mine")().name == "null"


def test_executor_is_found_by_module_and_attribute() -> None:
    assert find_executor("nnburst.executor.null:NullExecutor")().name == "null"


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("nonesuch", "'nonesuch' is not known; known are .*null, .*reference"),
        ("no.such.module:X", "cannot be imported: No module named 'no'"),
        ("nnburst.executor.null:X", "cannot be imported: .*no attribute 'X'"),
    ],
)
def test_executor_that_is_not_there_is_named(name: str, message: str) -> None:
    with pytest.raises(DeviceUnavailable, match=message):
        find_executor(name)
