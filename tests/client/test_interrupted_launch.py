"""A start that is interrupted anywhere leaves no process, thread or descriptor."""

from __future__ import annotations

import gc
import os
import socket
import sys
import threading
from typing import Any

import pytest

from interrupting import Interruption, interrupted_at
from nnburst.client import launch
from nnburst.client.session import process
from nnburst.client.session.handshake import Session
from nnburst.control.connection import Connection
from nnburst.hal.errors import DeadObject
from nnburst.testing.faults.footprint import children
from waiting import wait_for

# An exception that a handler raises within a generator's end is lost: Python reports it.
pytestmark = pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")


def descriptors() -> int:
    gc.collect()
    return len(os.listdir("/proc/self/fd"))


def close_all(opened: list[Any]) -> None:
    while opened:
        opened.pop().close()


def test_start_of_a_driver_that_is_interrupted_anywhere_leaves_nothing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # Loops, each turn of which would be a place.
    monkeypatch.setattr(process, "_inheritable_fds", list)
    monkeypatch.setattr(launch, "driver_environment", dict)
    program = [sys.executable, "-I", "-S", "-c", "import sys; sys.stdin.read()"]
    ours, theirs = socket.socketpair()
    with ours, theirs:
        started: list[process.DriverProcess] = []

        def start() -> None:
            started.append(launch._start(program, theirs.fileno(), {}))

        start()
        close_all(started)
        left, before, places = children(os.getpid()), descriptors(), 0
        while interrupted_at(places + 1, start):
            places += 1
            close_all(started)  # a finalizer may have got the interruption
            assert children(os.getpid()) == left, places
            wait_for(lambda most=before + 1: descriptors() <= most)  # one that was not stored
            before = descriptors()
        close_all(started)
    assert places > 20


def test_session_that_is_interrupted_behind_the_beginning_of_its_connection_ends_that(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def interrupt(*_: object) -> None:
        raise Interruption

    monkeypatch.setattr(Connection, "on_end", interrupt)
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with theirs:
        with pytest.raises(Interruption):
            Session(ours, "unanswered", DeadObject, timeout=20)
        assert ours.fileno() == -1
        assert "nnburst unanswered" not in [thread.name for thread in threading.enumerate()]


def test_launch_that_is_interrupted_behind_the_beginning_of_its_session_ends_that(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def interrupt(*_: object) -> None:
        raise Interruption

    monkeypatch.setattr(launch, "Device", interrupt)
    with pytest.raises(Interruption):
        launch.launch("null", name="interrupted")
    assert "nnburst driver interrupted" not in [each.name for each in threading.enumerate()]
