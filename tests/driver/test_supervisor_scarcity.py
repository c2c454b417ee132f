"""A supervisor to which the kernel refuses sockets or memory serves on."""

from __future__ import annotations

import contextlib
import errno
import os
import select
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NoReturn

import pytest

from nnburst.control.address import Listener
from nnburst.driver.service.child_supervisors import OwnerSupervisor, WeightsSupervisor
from nnburst.driver.service.supervisor import SpareWorker, Supervisor
from nnburst.driver.service.worker import Admission


@pytest.fixture
def supervisor(tmp_path: Path) -> Iterator[Supervisor]:
    listener = Listener.claim(tmp_path / "driver", any_user=False)
    yield Supervisor(listener, "null", "scarce")
    listener.close()


@pytest.fixture
def no_sockets(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> NoReturn:
        raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))

    monkeypatch.setattr(socket, "socketpair", refuse)
    monkeypatch.setattr(socket.socket, "dup", refuse)


class ScarceOnce(socket.socket):
    """A socket for which the kernel lacks memory at the first call."""

    is_short = True

    def recv(self, size: int, flags: int = 0, /) -> bytes:
        if self.is_short:
            self.is_short = False
            raise OSError(errno.ENOBUFS, os.strerror(errno.ENOBUFS))
        return super().recv(size, flags)


class Refusing:
    """A socket for which the kernel lacks memory."""

    def recv(self, _size: int) -> NoReturn:
        raise OSError(errno.ENOMEM, os.strerror(errno.ENOMEM))


@pytest.mark.usefixtures("no_sockets")
def test_spare_worker_for_which_there_is_no_socket_waits_for_the_next_client(
    supervisor: Supervisor,
) -> None:
    supervisor._fork_spare()
    assert supervisor._calm() is None  # no attempt after the other
    assert supervisor._spares == []


def test_wake_up_that_cannot_be_read_is_left_for_the_next_turn(supervisor: Supervisor) -> None:
    refusing: Any = Refusing()
    supervisor._receiver = refusing
    supervisor._drain()


def test_report_that_cannot_be_read_is_left_for_the_next_look(supervisor: Supervisor) -> None:
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    spare = SpareWorker(os.getpid(), ScarceOnce(fileno=ours.detach()))
    with theirs, contextlib.closing(spare):
        supervisor._spares.append(spare)
        theirs.send(b"no such file")
        supervisor._look_at_spare(spare.fileno(), select.POLLIN)
        assert (spare.is_ready, spare.has_executor) == (False, False)
        supervisor._look_at_spare(spare.fileno(), select.POLLIN)
        assert spare.has_executor
        assert supervisor._refusal == "no such file"


def test_worker_whose_report_was_never_read_ends_with_its_supervisor_without_a_word() -> None:
    program = """
import socket
from nnburst.driver.service.supervisor import await_client
ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
theirs.send(b"made")
await_client(theirs, ours)
"""
    ended = subprocess.run([sys.executable, "-c", program], capture_output=True, check=False)
    assert (ended.returncode, ended.stdout, ended.stderr) == (0, b"", b"")


def test_client_for_which_there_is_no_further_socket_does_without_the_process_beside(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    weights = WeightsSupervisor("litert")
    weights._pair, theirs = socket.socketpair()
    with theirs, monkeypatch.context() as context:
        context.setattr(socket, "socketpair", lambda *_: os.open("/nowhere", 0))
        assert weights.admit(os.geteuid()) is None
    weights.close()


@pytest.mark.parametrize("kind", [WeightsSupervisor, OwnerSupervisor])
def test_process_beside_for_which_there_is_no_socket_is_started_later(
    request: pytest.FixtureRequest, kind: type[WeightsSupervisor | OwnerSupervisor]
) -> None:
    side = kind("litert")
    assert side.patience is None
    request.getfixturevalue("no_sockets")
    side.start(lambda _become: 7)
    assert side.patience is not None
    assert side.pid == 0
    side.abandon_in_child()  # closes all ends


def test_client_whose_spare_has_ended_gets_a_worker_that_is_connected_for_weights(
    supervisor: Supervisor, monkeypatch: pytest.MonkeyPatch
) -> None:
    weights = WeightsSupervisor("litert")
    weights._pair, theirs = socket.socketpair()
    weights.pid = os.getpid()
    supervisor._weights = weights
    ours, workers = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    supervisor._spares.append(SpareWorker(7, ours, weights.pid))
    workers.close()  # as its end does
    forked: list[Admission] = []

    def fork(client: Callable[[], Admission]) -> None:
        forked.append(client())

    monkeypatch.setattr(supervisor, "_fork_worker", fork)
    client, other = socket.socketpair()
    with theirs, client, other, contextlib.closing(weights):
        supervisor._serve(client, os.geteuid(), "pid 1")
    (admission,) = forked
    assert admission.weights is not None
