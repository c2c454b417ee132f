"""Every error of the package goes to another process and comes out the same."""

from __future__ import annotations

import contextlib
import copy
import importlib
import os
import pickle
import pkgutil
import signal
import threading
from collections.abc import Callable, Iterator

import pytest

import nnburst
from nnburst import DeadObject, ErrorStatus, NnburstError
from nnburst.client.session.process import DriverDied
from nnburst.hal.errors import MalformedPacket
from nnburst.hal.types import OutputShape
from nnburst.hal.validation.values import Broken
from shared_drivers import connect_to

#: How errors are made that want more than a message.
SPECIAL: dict[type[BaseException], Callable[[], BaseException]] = {
    Broken: lambda: Broken("R1", "inputs[0] is missing"),
    DriverDied: lambda: DriverDied(lambda: "the driver (pid 7) was killed by SIGKILL"),
    MalformedPacket: lambda: MalformedPacket("count is 9", index=3, rule="D4"),
}


def package_modules() -> Iterator[str]:
    """All that is no program and no test."""
    for module in pkgutil.walk_packages(nnburst.__path__, "nnburst."):
        if not {"__main__", "suites_for_drivers"} & set(module.name.split(".")):
            yield module.name


def error_classes() -> list[type[BaseException]]:
    """The exceptions that the package defines."""
    found: dict[str, type[BaseException]] = {}
    for name in package_modules():
        with contextlib.suppress(ModuleNotFoundError):  # of an extra
            for value in vars(importlib.import_module(name)).values():
                is_error = isinstance(value, type) and issubclass(value, BaseException)
                if is_error and value.__module__.startswith("nnburst."):
                    found[f"{value.__module__}.{value.__qualname__}"] = value
    return [found[name] for name in sorted(found)]


def facts(error: BaseException) -> dict[str, object]:
    """All that a handler can ask an error."""
    state = {name: value for name, value in vars(error).items() if name != "_how"}
    code = error.code if isinstance(error, NnburstError) else None
    return {"type": type(error), "text": str(error), "code": code, **state}


def made(kind: type[BaseException]) -> BaseException:
    error = SPECIAL[kind]() if kind in SPECIAL else kind("inputs[0]: something is wrong")
    error.add_note("while executing")
    if isinstance(error, NnburstError):
        error.status = ErrorStatus.MISSED_DEADLINE_PERSISTENT
        error.output_shapes = (OutputShape((2, 3), False),)
    return error


def test_every_error_of_the_package_survives_pickling_and_copying() -> None:
    kinds = error_classes()
    assert set(SPECIAL) <= set(kinds)
    for kind in kinds:
        error = made(kind)
        for protocol in range(2, pickle.HIGHEST_PROTOCOL + 1):
            assert facts(pickle.loads(pickle.dumps(error, protocol))) == facts(error), kind
        assert facts(copy.copy(error)) == facts(error), kind


def test_pickled_error_has_the_death_of_its_driver() -> None:
    with connect_to("null") as device:
        noticed = threading.Event()
        device.on_death(noticed.set)
        os.kill(device.pid, signal.SIGKILL)
        assert noticed.wait(60)
        with pytest.raises(DeadObject, match="SIGKILL") as caught:
            device.prepare(nnburst.ModelBuilder().build())
    again = pickle.loads(pickle.dumps(caught.value))
    assert type(again) is type(caught.value)
    assert str(again) == str(caught.value)


@pytest.mark.parametrize("twice", [False, True])
def test_error_that_was_restored_can_be_pickled_again(twice: bool) -> None:
    error = SPECIAL[DriverDied]()
    for _ in range(1 + twice):
        error = pickle.loads(pickle.dumps(error))
    assert str(error) == "the driver (pid 7) was killed by SIGKILL"
