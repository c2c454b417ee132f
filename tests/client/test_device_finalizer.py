"""The garbage collector, a fork and the end of the process end devices and pools properly."""

from __future__ import annotations

import gc
import os
import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest

import nnburst
from faults.processes import stop
from interrupting import Interruption
from nnburst.client.device import Device
from nnburst.client.session.process import DriverProcess
from waiting import wait_for


def run(script: str) -> str:
    """Run a program of its own; what it prints."""
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", script], capture_output=True, text=True, timeout=60
    )
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout


def test_collected_device_ends_its_driver_and_does_not_hold_the_collector_up(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    stopped_on: list[threading.Thread] = []
    stop = DriverProcess.close

    def note(process: DriverProcess) -> None:
        stopped_on.append(threading.current_thread())
        stop(process)

    monkeypatch.setattr(DriverProcess, "close", note)
    device: Device | None = nnburst.launch("null")
    assert device is not None
    pid = device.pid
    del device
    gc.collect()
    wait_for(lambda: not Path(f"/proc/{pid}").exists())
    assert stopped_on != [threading.current_thread()]


def test_device_can_be_collected_while_its_connection_is_locked() -> None:
    device = nnburst.launch("null")
    pid, connection = device.pid, device._session.connection
    with connection._lock:
        del device
        gc.collect()  # the collector would find it here if it were in a cycle
    wait_for(lambda: not Path(f"/proc/{pid}").exists())
    assert not connection.is_alive


def test_device_whose_close_is_interrupted_still_ends_its_driver() -> None:
    def interrupt(*_: object) -> None:
        raise Interruption

    device = nnburst.launch("null")
    stop(device.pid)  # so that closing takes longer than the timer
    before = signal.signal(signal.SIGALRM, interrupt)
    try:
        with pytest.raises(Interruption):
            signal.setitimer(signal.ITIMER_REAL, 0.2)
            device.close()
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
        os.kill(device.pid, signal.SIGCONT)
    wait_for(lambda: not Path(f"/proc/{device.pid}").exists())


def test_unclosed_device_ends_with_the_program() -> None:
    pid = run("import nnburst; device = nnburst.launch('null'); print(device.pid)")
    assert not Path(f"/proc/{int(pid)}").exists()


def test_interruption_at_the_end_of_the_program_kills_drivers_that_have_not_ended() -> None:
    pids = run("""
import os, signal
import nnburst
from nnburst.client.session.process import DriverProcess

close = DriverProcess.close

def interrupted(process):
    signal.raise_signal(signal.SIGINT)
    close(process)

DriverProcess.close = interrupted
devices = [nnburst.launch("null") for _ in range(2)]
for device in devices:
    os.kill(device.pid, signal.SIGSTOP)
    print(device.pid)
""")
    assert [Path(f"/proc/{pid}").exists() for pid in pids.split()] == [False, False]


def test_forked_child_ends_though_a_pool_was_locked() -> None:
    printed = run("""
import os, signal, sys
import nnburst
device = nnburst.launch("null")
memory = device.allocate(64)
memory._state.lock.acquire()      # another thread, in duplicate()
if (child := os.fork()) == 0:
    signal.alarm(20)
    sys.exit(0)
memory._state.lock.release()
print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
device.close()
""")
    assert printed == "0\n"
