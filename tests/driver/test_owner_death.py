"""A worker detects the end of the device's owner by the owner's death word, and by no other sign."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from client.conftest import add_model
from nnburst.control.channel import Fds
from nnburst.control.death_word import DeathWatch
from nnburst.control.messages import PROTOCOL_VERSION, Hello
from nnburst.driver.executors import make_executor
from nnburst.driver.model.device import Device
from nnburst.driver.owner_client import OwnedExecutor
from nnburst.driver.owner_server import USER_BYTES, FairTurns, OwnedWorker
from nnburst.driver.service import worker as worker_module
from nnburst.hal.enums import FeatureLevel
from nnburst.hal.errors import DeadObject, DeviceUnavailable
from nnburst.hal.utils import driver_environment

PATIENCE = 30.0
OWNER = """
import socket, sys
from nnburst.driver.owner_server import own_device
own_device(socket.socket(fileno=int(sys.argv[1])), "reference")
"""


class Owner:
    """An owner in a process of its own, and one worker's connection to it in this process."""

    def __init__(self, stack: ExitStack) -> None:
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self.process = stack.enter_context(
            subprocess.Popen(
                [sys.executable, "-c", OWNER, str(theirs.fileno())],
                pass_fds=[theirs.fileno()],
                env=driver_environment(),
            )
        )
        stack.callback(self.process.kill)
        stack.callback(ours.close)
        theirs.close()
        workers, self.owners_end = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        stack.callback(self.owners_end.close)  # open in this process, too: the socket does not end
        user = os.geteuid().to_bytes(USER_BYTES, "little")
        socket.send_fds(ours, [user], [self.owners_end.fileno()])
        self.ended = threading.Event()
        self.executor = OwnedExecutor(workers, self.ended.set)
        stack.callback(self.executor.close)


@pytest.fixture
def owner() -> Iterator[Owner]:
    with ExitStack() as stack:
        yield Owner(stack)


def test_worker_learns_of_the_owners_death_before_its_socket_ends(owner: Owner) -> None:
    assert owner.executor.is_alive
    owner.process.kill()
    assert owner.ended.wait(PATIENCE), "the socket has not ended, and nothing else was looked at"


def test_worker_whose_owner_dies_before_its_client_is_answered_ends_so_that_the_client_comes_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    ends: list[object] = []
    monkeypatch.setattr(worker_module, "_end", ends.append)
    worker = worker_module.Worker("reference", "shared", is_owned=True)
    worker.owner, owners_end = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    worker.has_client = True
    owners_end.close()
    upcalls, clients_end = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with clients_end, Fds([upcalls.detach()]) as fds, pytest.raises(DeviceUnavailable):
        worker.handle(Hello(PROTOCOL_VERSION, FeatureLevel.V1_2), fds)
    assert ends
    assert isinstance(ends[0], ConnectionResetError)


def test_worker_whose_owner_dies_shows_its_client_its_own_death_before_it_ends(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    shown = threading.Event()
    shown_at_the_end: list[bool] = []
    monkeypatch.setattr(
        worker_module, "_end", lambda _: shown_at_the_end.append(shown.wait(PATIENCE))
    )
    worker = worker_module.Worker("reference", "shared", is_owned=True)
    worker.has_client = True
    with worker._liveness.fds() as fds:
        watch = DeathWatch(fds.take(1), shown.set)
        worker._owner_ended()
        watch.close()
    assert shown_at_the_end == [True]


def test_rehearsal_of_a_worker_whose_owner_has_died_is_refused_with_the_reason() -> None:
    worker = worker_module.Worker("reference", "shared", is_owned=True)
    worker.owner, owners_end = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    owners_end.close()
    with Fds([]) as fds, pytest.raises(DeviceUnavailable, match="the device's owner has ended"):
        worker.handle(Hello(PROTOCOL_VERSION, FeatureLevel.V1_2), fds)


def test_call_that_waits_ends_with_the_owner_though_its_socket_does_not(owner: Owner) -> None:
    owner.process.send_signal(signal.SIGSTOP)
    outcome: list[BaseException] = []

    def call() -> None:
        try:
            owner.executor.prepare(add_model(), [])
        except BaseException as error:
            outcome.append(error)

    thread = threading.Thread(target=call)
    thread.start()
    owner.process.kill()
    thread.join(PATIENCE)
    assert not thread.is_alive()
    assert [type(error) for error in outcome] == [DeadObject]
    assert owner.ended.is_set()


def threads() -> int:
    """All threads of this process, those without a name in Python, too."""
    return len(list(Path("/proc/self/task").iterdir()))


def test_workers_that_leave_in_peace_take_their_death_words_along() -> None:
    device, turns = Device("shared", make_executor("reference")), FairTurns()
    before, rounds = threads(), 10
    for _ in range(rounds):
        workers, owners = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        served = OwnedWorker(owners, device, turns.join(0))
        thread = threading.Thread(target=served.serve)
        thread.start()
        ended = threading.Event()
        executor = OwnedExecutor(workers, ended.set)
        executor.close()
        thread.join(PATIENCE)
        assert not thread.is_alive()
        assert not ended.is_set()
    deadline = time.monotonic() + PATIENCE
    while threads() > before + rounds // 2:  # some of before, or of other tests, may be there yet
        assert time.monotonic() < deadline, "threads stay"
        threading.Event().wait(0.01)
