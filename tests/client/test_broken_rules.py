"""What is left to do once a driver has broken the rules of its channel: closing, and going on elsewhere."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import NoReturn

import numpy as np
import pytest

import nnburst
from nnburst import Closed, Device, ExecutionResult, ResilientDevice
from nnburst.client.resilient.recovery import Recoverable
from nnburst.control import connection as connection_module
from nnburst.control import received_reply
from nnburst.control.channel import ProtocolError
from nnburst.control.messages.session import Nothing, Ping

X = [np.ones((2, 3), np.float32)] * 2


def break_the_rules(device: Device) -> None:
    """Make the next answer of a driver arrive as none."""

    def spoiled(_body: bytes) -> NoReturn:
        raise ValueError("no reply")

    with pytest.MonkeyPatch.context() as patch:
        for reader in (connection_module, received_reply):
            patch.setattr(reader, "decode_reply", spoiled)
        with pytest.raises(ProtocolError):
            device._session.connection.call(Ping(), Nothing, timeout=20)


def test_everything_of_a_driver_that_broke_the_rules_closes(
    make_model: Callable[..., nnburst.Model],
) -> None:
    with nnburst.launch("null") as device:
        prepared = device.prepare(make_model())
        objects = [
            prepared.open_burst(),
            prepared.open_aidl_burst(),
            prepared.create_reusable_execution(X),
            device.allocate_buffer(inputs=[(prepared, 0)]),
            prepared,
        ]
        break_the_rules(device)
        for opened in objects:
            opened.close()


def test_a_driver_that_broke_the_rules_is_replaced(
    make_model: Callable[..., nnburst.Model],
) -> None:
    with ResilientDevice(lambda: nnburst.launch("null")) as device:
        bound = device.prepare(make_model()).open_burst().bind()
        bound.run()
        break_the_rules(device.current)
        bound.run()
        assert device.recoveries == 1


def test_what_a_closed_resilient_device_made_is_closed(
    make_model: Callable[..., nnburst.Model],
) -> None:
    with ResilientDevice(lambda: nnburst.launch("null")) as device:
        prepared = device.prepare(make_model())
        bound = prepared.open_burst().bind()

    def execute() -> ExecutionResult:
        return prepared.execute(X)

    for use in (execute, bound.run):
        with pytest.raises(Closed, match="closed"):
            use()


def test_closing_the_dead_cannot_fail_a_recovery() -> None:
    class Dead:
        is_alive = False

        def close(self) -> None:
            raise ProtocolError("it broke the rules")

    class Alive(Dead):
        is_alive = True

        def close(self) -> None:
            pass

    recoverable = Recoverable[Dead](Dead(), lambda _: Alive())
    with contextlib.closing(recoverable):
        assert recoverable.get().is_alive
