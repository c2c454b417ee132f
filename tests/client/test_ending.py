"""How a driver ended, as far as its client can see."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator

import pytest

from nnburst import DeadObject
from nnburst.client.session.ending import DriverDied, describe, dying_exit_code, how_it_ended
from nnburst.client.session.process import DriverProcess


@pytest.fixture
def sleeper() -> Iterator[subprocess.Popen[bytes]]:
    """A process that waits for its standard input to end."""
    with subprocess.Popen(["cat"], stdin=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        yield process
        process.kill()


def test_exit_codes_are_put_into_words() -> None:
    assert describe(3) == "ended with exit status 3"
    assert describe(-int(signal.SIGSEGV)) == "was killed by SIGSEGV"
    assert describe(-200) == "was killed by signal 200"


def test_process_behind_a_pidfd_is_described_once_reaped(sleeper: subprocess.Popen[bytes]) -> None:
    pidfd = os.pidfd_open(sleeper.pid)
    assert how_it_ended(pidfd, 0) == "has closed the connection"
    sleeper.kill()
    assert how_it_ended(pidfd, 10) == "was killed by SIGKILL"  # from /proc
    sleeper.wait(timeout=10)
    assert how_it_ended(pidfd) in ("was killed by SIGKILL", "has died")  # before Linux 6.15
    os.close(pidfd)


def test_process_that_is_stopped_has_not_ended(sleeper: subprocess.Popen[bytes]) -> None:
    sleeper.send_signal(signal.SIGSTOP)
    os.waitid(os.P_PID, sleeper.pid, os.WSTOPPED)
    assert dying_exit_code(sleeper.pid) is None
    pidfd = os.pidfd_open(sleeper.pid)
    assert how_it_ended(pidfd, 0) == "has closed the connection"
    os.close(pidfd)


def test_process_that_does_not_exist_has_no_exit_code() -> None:
    assert dying_exit_code(0) is None


def test_descriptor_that_is_not_a_pidfd_is_not_asked() -> None:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        assert how_it_ended(ours.fileno()) == "has closed the connection or died"
    assert how_it_ended(-1) == "has closed the connection or died"


def test_message_is_found_out_when_it_is_read() -> None:
    found = iter(["not known yet", "was killed by SIGKILL"])
    error = DriverDied(lambda: next(found))
    assert isinstance(error, DeadObject)
    assert str(error) == "not known yet"
    assert str(error) == "was killed by SIGKILL"


def test_message_does_not_wait_long_for_a_process_that_goes_on(
    sleeper: subprocess.Popen[bytes],
) -> None:
    process = DriverProcess(sleeper)
    began = time.monotonic()
    assert "has closed its connection" in process.ending(0.01)
    assert time.monotonic() - began < 30
    sleeper.kill()
    assert "was killed by SIGKILL" in process.ending(10)
    process.close()


def test_message_does_not_wait_long_for_a_log_that_another_process_holds_open() -> None:
    code = "import subprocess, sys; print('last words', file=sys.stderr);"
    code += "subprocess.Popen(['cat']); sys.exit(7)"
    command = [sys.executable, "-c", code]
    read, write = os.pipe()  # keeps the grandchild alive until the test ends
    with os.fdopen(write), os.fdopen(read) as held:
        started = subprocess.Popen(command, stdin=held, stderr=subprocess.PIPE)
        process = DriverProcess(started)
        started.wait(timeout=60)
        began = time.monotonic()
        said = process.ending(1)
        assert "ended with exit status 7" in said
        assert "last words" in said
        assert time.monotonic() - began < 30
    process.close()
