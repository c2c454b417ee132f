"""The end of a driver is reported as far as its client can see it."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from interrupting import interrupted_at
from nnburst import DeadObject
from nnburst.client.session.process import (
    Child,
    DriverDied,
    DriverProcess,
    describe,
    dying_exit_code,
    how_it_ended,
)


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
    process = DriverProcess(sleeper, sleeper.stderr)
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
        process = DriverProcess(started, started.stderr)
        started.wait(timeout=60)
        began = time.monotonic()
        said = process.ending(1)
        assert "ended with exit status 7" in said
        assert "last words" in said
        assert time.monotonic() - began < 30
    process.close()


# -- processes that this one starts ----------------------------------------------------------------


def child(program: str, *, write: int) -> Child:
    """A Python that runs `program`, whose standard output is `write`."""
    with Path(os.devnull).open("r+b", buffering=0) as nothing:
        streams = {0: nothing.fileno(), 1: write, 2: nothing.fileno(), 3: write}
        started = Child()
        started.start([sys.executable, "-S", "-E", "-c", program], streams, {"WORD": "wörd"})
        return started


def output_of(program: str) -> tuple[str, int]:
    read, write = os.pipe()
    with os.fdopen(read, encoding="utf-8") as output:
        started = child(program, write=write)
        os.close(write)
        return output.read(), started.wait(30)


def test_child_has_the_descriptors_that_it_was_given_and_no_others() -> None:
    ours, theirs = os.pipe()
    os.set_inheritable(theirs, True)  # as a library may do it
    try:
        found, code = output_of("import os; print(sorted(map(int, os.listdir('/proc/self/fd'))))")
    finally:
        os.close(ours)
        os.close(theirs)
    assert (found, code) == ("[0, 1, 2, 3, 4]\n", 0)  # 4 is that of the folder


def test_child_has_its_environment_and_handles_signals_by_default() -> None:
    program = (
        "import os, sys; sys.stdout.reconfigure(encoding='utf-8'); print(os.environb[b'WORD'].decode());"
        "print([line for line in open('/proc/self/status') if line.startswith('SigBlk')])"
    )
    found, _ = output_of(program)
    assert found.splitlines() == ["wörd", "['SigBlk:\\t0000000000000000\\n']"]


def test_child_that_ended_has_its_exit_code_and_gets_no_signals() -> None:
    read, write = os.pipe()
    ended = child("import sys; sys.exit(7)", write=write)
    killed = child("import time; time.sleep(600)", write=write)
    os.close(read)
    os.close(write)
    assert ended.wait(30) == 7 == ended.poll()
    ended.kill()
    with pytest.raises(subprocess.TimeoutExpired):
        killed.wait(0.01)
    assert killed.poll() is None
    killed.kill()
    assert killed.wait(30) == -int(signal.SIGKILL)


def test_child_whose_program_does_not_exist_is_refused_and_leaves_nothing() -> None:
    before = len(os.listdir("/proc/self/fd"))
    with pytest.raises(FileNotFoundError):
        Child().start(["/nowhere/python"], {0: 0}, {})
    assert len(os.listdir("/proc/self/fd")) == before


def test_child_that_someone_else_has_reaped_is_closed_without_a_signal_to_its_number() -> None:
    read, write = os.pipe()
    started = child("", write=write)
    os.close(write)
    os.waitpid(started.pid, 0)  # as an interruption behind it would leave it
    started.close()
    assert started.poll() == 0
    os.close(read)


def test_status_of_a_child_survives_an_interruption_at_any_place_of_its_query() -> None:
    read, write = os.pipe()
    places = 0
    while True:
        started = child("import sys; sys.exit(7)", write=write)
        os.waitid(os.P_PID, started.pid, os.WEXITED | os.WNOWAIT)
        is_interrupted = interrupted_at(places + 1, started.poll)
        assert started.poll() == 7, places
        with pytest.raises(ChildProcessError):
            os.waitpid(started.pid, os.WNOHANG)
        started.close()
        if not is_interrupted:
            break
        places += 1
    assert places > 4
    os.close(read)
    os.close(write)
