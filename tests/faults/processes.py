"""Starts, kills and waits for the processes of fault tests.

NNBURST_KILLS is the number of times that each fault is injected (3 by default, 10 in CI, 100 in `make
faults`); NNBURST_STRICT_TIMING=1 (`make faults STRICT=1`) asserts the documented times, which a busy machine
exceeds. The table shows whether a time was asserted.
"""

from __future__ import annotations

import faulthandler
import gc
import json
import os
import select
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
import pytest

from nnburst.hal import environment
from nnburst.hal.utils import driver_environment
from nnburst.testing.faults.footprint import SETTLED, is_running, thread_states

KILLS = environment.KILLS.read()
STRICT = environment.STRICT_TIMING.read()
#: Seconds after which a client that does not come back hangs.
HANG = 10.0
#: Seconds after which a client that was asked something hangs; one may take long to start on a busy machine.
SILENCE = 60.0

#: Milliseconds from the kill of a driver to DeadObject: 99 of 100.
PROMISED_DEAD_OBJECT = 10.0
#: Cores without which a client beside faults has none to itself.
_CORES = 4
#: How often its quiet p99 a client's p99 may be beside faults.
_DISTURBED = 2

#: Seconds that a client is measured for while nothing else is done.
LAP = min(max(0.05 * KILLS, 0.5), 10.0)

Row = Callable[..., None]


class Client:
    """A client process of `nnburst.testing.faults.client` that is busy."""

    def __init__(self, address: str, activity: str) -> None:
        command = [sys.executable, "-m", "nnburst.testing.faults.client", address, activity]
        self.process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=driver_environment()
        )
        facts = self._line()
        self.pid, self.worker = facts["pid"], facts["worker"]

    def _line(self) -> Any:
        assert self.process.stdout is not None
        readable, _, _ = select.select([self.process.stdout], [], [], SILENCE)
        assert readable, f"the client says nothing for {SILENCE} s"
        line = self.process.stdout.readline()
        assert line, f"the client ended with {self.process.wait(HANG)}"
        return json.loads(line)

    def lap(self) -> Any:
        """The report of a `stand_by` client for the time since the last lap."""
        assert self.process.stdin is not None
        self.process.stdin.write(b"\n")
        self.process.stdin.flush()
        return self._line()

    def finish(self) -> Any:
        """Make a `stand_by` client end; its final report."""
        assert self.process.stdin is not None
        self.process.stdin.close()
        facts = self._line()
        self.process.wait(HANG)
        return facts

    def kill_after(self, seconds: float) -> float:
        """Send SIGKILL after `seconds`; the time of the kill."""
        threading.Event().wait(seconds)
        killed = time.monotonic()
        self.kill()
        return killed

    def kill(self) -> None:
        """Send SIGKILL in the middle of its work; fails if it has ended before."""
        status = self.close()
        assert status == -signal.SIGKILL, f"the client had ended with {status} before it was killed"

    def close(self) -> int:
        """Send SIGKILL unless it has ended; its exit status."""
        self.process.kill()
        status = self.process.wait(HANG)
        for stream in (self.process.stdin, self.process.stdout):
            assert stream is not None
            stream.close()
        return status


class Supervisor:
    """The supervisor of a driver that serves a name."""

    def __init__(self, name: str, executor: str) -> None:
        command = [sys.executable, "-m", "nnburst.driver", "--executor", executor, "--serve", name]
        self.name = name
        self.process = subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, env=driver_environment()
        )
        assert self.process.stdout is not None
        assert self.process.stdout.readline(), "the driver did not start"
        self.pid = self.process.pid

    def terminate(self) -> float:
        """Send SIGTERM; the seconds until it has ended."""
        began = time.monotonic()
        self.process.terminate()
        assert self.process.wait(HANG) == 0
        return time.monotonic() - began

    def kill(self) -> None:
        """Send SIGKILL unless it has ended."""
        assert self.process.stdout is not None
        self.process.stdout.close()
        self.process.kill()
        self.process.wait(HANG)


class Ending:
    """An activity on a thread of its own, with its final error and the time of its end."""

    def __init__(self, steps: Iterator[Any]) -> None:
        self.error: BaseException | None = None
        self.at_ns = 0
        self._steps = steps
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        try:
            for _ in self._steps:
                pass
        except Exception as error:
            self.at_ns = time.monotonic_ns()
            self.error = error

    def wait(self) -> BaseException:
        """The error that it ended with; fails if it hangs."""
        self._thread.join(HANG)
        if self._thread.is_alive():
            faulthandler.dump_traceback(all_threads=True)
            pytest.fail(f"no end within {HANG} s")
        assert self.error is not None
        error, self.error = self.error, None
        self._steps = iter(())
        return error


def figures(facts: Any, quiet: Any = None) -> str:
    """A `stand_by` client's lap for the table, beside a quiet lap if one is given."""
    text = (
        f"{facts['rounds']} rounds, {facts['error'] or 'no error'},"
        f" p50 {facts['median_us']:.0f} p99 {facts['p99_us']:.0f} us"
    )
    if not quiet or not quiet["p99_us"]:
        return text
    asserted = f"not asserted: {_excuse()}" if _excuse() else "asserted"
    times = facts["p99_us"] / quiet["p99_us"]
    return f"{text}, {times:.1f} x quiet (at most {_DISTURBED}: {asserted})"


def _excuse() -> str:
    """The reason why a client beside faults may be slow here; empty if there is no reason."""
    if not STRICT:
        return "not strict"
    cores = len(os.sched_getaffinity(0))
    return f"{cores} cores" if cores < _CORES else ""


def quiet_lap(bystander: Client) -> Any:
    """The lap of a `stand_by` client while no fault is injected."""
    threading.Event().wait(LAP)
    return bystander.lap()


def goes_on(bystander: Client) -> Any:
    """Wait until a `stand_by` client has done a round since its last lap; its report."""
    deadline = time.monotonic() + HANG
    while True:
        facts = bystander.lap()
        assert not facts["error"], facts["error"]
        if facts["rounds"]:
            return facts
        assert time.monotonic() < deadline, f"no round within {HANG} s"
        threading.Event().wait(0.01)


def check_undisturbed(quiet: Any, meanwhile: Any) -> None:
    """Check that a client beside faults gets no error; in strict mode, its p99 at most doubles.

    Strict mode needs enough cores for the client and the faults, and a quiet machine.
    """
    assert not quiet["error"]
    assert not meanwhile["error"]
    assert meanwhile["rounds"] > 0
    if not _excuse():
        assert meanwhile["p99_us"] <= _DISTURBED * quiet["p99_us"]


def check_p99(what: str, milliseconds: Sequence[float], promised: float) -> None:
    """In strict mode, check that 99 of 100 times are within the documented time.

    A busy machine exceeds times; the deadline of every wait shows that no call hangs.
    """
    if STRICT and milliseconds:
        p99 = float(np.percentile(milliseconds, 99))
        assert p99 <= promised, f"{what}: p99 of {len(milliseconds)} is {p99:.1f} ms"


def wait_until_gone(pid: int, since: float, seconds: float = SETTLED) -> float:
    """Wait for the end of another process's child; the milliseconds from `since` to the end."""
    while is_running(pid):
        assert time.monotonic() - since < seconds, f"process {pid} is there after {seconds} s"
        threading.Event().wait(0.001)
    return (time.monotonic() - since) * 1000


def stop(pid: int) -> None:
    """Send SIGSTOP, and wait until every thread has stopped."""
    os.kill(pid, signal.SIGSTOP)
    wait_until_stopped(pid)


def wait_until_stopped(pid: int) -> None:
    """Wait until no thread of a process runs any more."""
    deadline = time.monotonic() + HANG
    while thread_states(pid) != {"T"}:
        assert time.monotonic() < deadline, thread_states(pid)
        threading.Event().wait(0.001)


def collect() -> None:
    """Make the garbage collector close unused objects."""
    gc.collect()
