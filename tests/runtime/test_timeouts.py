"""Every way to execute accepts the same timeouts and refuses the same ones."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

import nnburst
import nnburst.hal
from nnburst import InvalidArgument
from nnburst.runtime import Manager
from runtime.half_drivers import two_halves
from runtime.test_bound_plans import BOTH, X, chain
from shared_drivers import connect_to

Roads = dict[str, Callable[[Any], object]]


def result(pending: Any, timeout: Any) -> None:
    """Wait with a timeout, and in any case until nothing is under way."""
    try:
        pending.result(timeout)
    finally:
        pending.result(30)


@pytest.fixture(scope="module")
def drivers() -> Iterator[Manager]:
    with two_halves() as manager:
        yield manager


@pytest.fixture
def roads(drivers: Manager) -> Iterator[Roads]:
    from nnburst.testing.faults.activities import sum_model, summands

    given = summands(3)
    with (
        nnburst.compile(chain(), BOTH, manager=drivers) as compiled,
        compiled.open_burst() as plan_burst,
        connect_to("reference") as device,
        device.prepare(sum_model()) as prepared,
        prepared.open_burst() as burst,
    ):
        request, bound = plan_burst.bind(), burst.bind()
        signalled, signaller = nnburst.hal.SyncFence.create()
        signaller.signal()
        yield {
            "launch": lambda t: nnburst.launch("null", timeout=t).close(),
            "prepare": lambda t: device.prepare(sum_model(), timeout=t).close(),
            "execute": lambda t: prepared.execute(given, timeout=t),
            "burst execute": lambda t: burst.execute(given, timeout=t),
            "run": lambda t: bound.run(t),
            "result": lambda t: result(bound.submit(), t),
            "function": lambda t: burst.function(timeout=t)(*given),
            "compile": lambda t: nnburst.compile(chain(), BOTH, manager=drivers, timeout=t).close(),
            "plan execute": lambda t: compiled.execute([X], timeout=t),
            "plan burst execute": lambda t: [plan_burst.execute([X], timeout=t) for _ in range(4)],
            "plan run": lambda t: request.run(t),
            "plan submit": lambda t: request.submit(t).result(),
            "plan result": lambda t: result(request.submit(), t),
            "fence": lambda t: signalled.wait(t),
        }
        signalled.close()


def test_every_road_takes_a_timeout_however_long(roads: Roads) -> None:
    for timeout in (1e300, 10**400, 4e9, 1e10):
        for road in roads.values():
            road(timeout)


def test_every_road_refuses_what_is_no_time_to_wait(roads: Roads) -> None:
    for timeout in (float("inf"), float("nan"), -1.0, 0, -np.inf, "1", True):
        for name, road in roads.items():
            with pytest.raises(InvalidArgument, match="timeout"):
                road(timeout)
                pytest.fail(f"{name} takes {timeout}")
