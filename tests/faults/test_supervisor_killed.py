"""`kill -9` of a supervisor: its workers end, its clients notice at once, its name is free at once."""

from __future__ import annotations

import os
import socket
import threading
import time
from collections.abc import Callable
from itertools import cycle, islice
from pathlib import Path

import pytest

import nnburst
from faults.processes import (
    HANG,
    KILLS,
    PROMISED_DEAD_OBJECT,
    STRICT,
    Ending,
    Row,
    Supervisor,
    check_p99,
    wait_until_gone,
)
from nnburst import DeadObject
from nnburst.control.address import Listener
from nnburst.testing.faults.activities import ACTIVITIES
from nnburst.testing.faults.footprint import children, spares

#: Milliseconds from the start of a supervisor until a client is let in, and waits for the rest of it.
PROMISED_ACCEPTED = 100.0
#: Milliseconds until it serves that client.
PROMISED_SERVED = 1000.0


class Visitor:
    """Connects to a driver's socket repeatedly until it is accepted."""

    def __init__(self, address: Path) -> None:
        self._address = str(address)
        self._at = 0.0
        self._thread = threading.Thread(target=self._knock, daemon=True)
        self._thread.start()

    def _knock(self) -> None:
        while not self._at:
            with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as visiting:
                try:
                    visiting.connect(self._address)
                except OSError:
                    threading.Event().wait(0.001)
                else:
                    self._at = time.monotonic()

    def wait(self) -> float:
        """Wait for the connection; its time."""
        self._thread.join(HANG)
        return self._at


@pytest.mark.campaign
def test_killed_supervisor_takes_its_workers_along_and_can_be_started_again_at_once(
    serve: Callable[..., Supervisor], row: Row
) -> None:
    told, gone, accepted, restarted, kills = [], [], [], [], max(KILLS // 2, 5)
    supervisor = serve()
    address = nnburst.devices()[0].address
    for activity in islice(cycle(ACTIVITIES), kills):
        with nnburst.connect("cam") as device:
            steps = ACTIVITIES[activity](device)
            next(steps)
            ending = Ending(steps)
            workers = children(supervisor.pid) + spares(supervisor.pid)
            killed = time.monotonic()
            supervisor.kill()
            assert isinstance(ending.wait(), DeadObject)
            told.append(ending.at_ns / 1e6 - killed * 1e3)
            assert device.pid in workers
            gone += [wait_until_gone(worker, killed) for worker in workers]
        began = time.monotonic()
        visitor = Visitor(address)
        supervisor = serve()
        accepted.append((visitor.wait() - began) * 1e3)
        with nnburst.connect("cam") as device:
            assert device.is_alive
        restarted.append((time.monotonic() - began) * 1e3)
    row(
        "supervisor killed",
        kills,
        dead_object=told,
        workers_gone=gone,
        accepts_again=accepted,
        serves_again=restarted,
    )
    # The kernel kills the workers when it has taken the supervisor apart; what is promised includes that.
    check_p99("DeadObject", told, PROMISED_DEAD_OBJECT)
    check_p99("accepts again", accepted, PROMISED_ACCEPTED)
    if STRICT:
        assert max(restarted) <= PROMISED_SERVED


def test_name_of_a_killed_supervisor_is_free_the_moment_it_is_gone(
    serve: Callable[..., Supervisor],
) -> None:
    for _ in range(3):
        supervisor = serve()
        path = nnburst.devices()[0].address
        supervisor.kill()
        Listener.claim(path).close()
        assert not path.exists()
        assert os.listdir(path.parent) == [f"{path.name}.lock"]
