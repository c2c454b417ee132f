"""A client of a driver that broke the rules of its channel can close, and go on elsewhere."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from typing import NoReturn

import numpy as np
import pytest

import nnburst
from nnburst import Closed, Device, ExecutionResult
from nnburst.client.hal import create_reusable_execution, open_aidl_burst
from nnburst.client.session.recovery import Recovery
from nnburst.control import connection
from nnburst.control.channel import ProtocolError
from nnburst.control.messages import Nothing, Ping
from shared_drivers import connect_to
from waiting import wait_for

X = [np.ones((2, 3), np.float32)] * 2


def break_the_rules(device: Device) -> None:
    """Make the next answer of a driver arrive as none."""

    def spoiled(_body: bytes) -> NoReturn:
        raise ValueError("no reply")

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(connection, "decode_reply", spoiled)
        with pytest.raises(ProtocolError):
            device._session.connection.call(Ping(), Nothing, timeout=20)


def test_everything_of_a_driver_that_broke_the_rules_closes(
    make_model: Callable[..., nnburst.Model],
) -> None:
    with connect_to("null") as device:
        prepared = device.prepare(make_model())
        objects = [
            prepared.open_burst(),
            open_aidl_burst(prepared),
            create_reusable_execution(prepared, X),
            device.allocate_buffer(inputs=[(prepared, 0)]),
            prepared,
        ]
        break_the_rules(device)
        for opened in objects:
            opened.close()


def test_a_driver_that_broke_the_rules_is_replaced(
    make_model: Callable[..., nnburst.Model],
) -> None:
    with connect_to("null", recover=True) as device:
        bound = device.prepare(make_model()).open_burst().bind()
        bound.run()
        break_the_rules(device)
        bound.run()
        assert device.recoveries == 1


def test_what_a_closed_recovering_device_made_is_closed(
    make_model: Callable[..., nnburst.Model],
) -> None:
    with connect_to("null", recover=True) as device:
        prepared = device.prepare(make_model())
        bound = prepared.open_burst().bind()

    def execute() -> ExecutionResult:
        return prepared.execute(X)

    for use in (execute, bound.run):
        with pytest.raises(Closed, match="closed"):
            use()


def test_closing_the_dead_cannot_fail_a_recovery(caplog: pytest.LogCaptureFixture) -> None:
    class Thing:
        is_alive = True
        closed = False

        def _renew(self) -> Callable[[], None]:
            self.is_alive = True
            return self.refuse

        def refuse(self) -> None:
            raise ProtocolError("it broke the rules")

    thing, recovery = Thing(), Recovery(True)
    recovery.add(thing)
    thing.is_alive = False
    with caplog.at_level(logging.INFO):
        recovery.reach(thing, time.monotonic_ns() + 30_000_000_000)
        wait_for(lambda: "the new one goes on" in caplog.text)
    assert thing.is_alive
