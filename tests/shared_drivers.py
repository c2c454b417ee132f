"""Supervisors that tests share, one for each executor: `connect_to` gives a test a worker of its own.

A driver takes 0.2 s to start, most of it for imports. A supervisor has made them; it forks a worker within
milliseconds, which computes for one client and ends with it: no test sees what another did to its driver.
Tests of a driver's start, its options, environment and end use `nnburst.launch`.
"""

from __future__ import annotations

import atexit
import subprocess
import sys
import tempfile
from contextlib import ExitStack
from functools import cache
from pathlib import Path

import nnburst
from nnburst import Device
from programs import driver_environ_of_tests


def connect_to(executor: str, *, recover: bool = False) -> Device:
    """A client's device in a worker of its own, which ends when the caller closes the device.

    Args:
        executor: name of an executor.
        recover: whether the device continues in a new worker if its worker has died.
    """
    return nnburst.connect(address_of(executor), recover=recover)


@cache
def address_of(executor: str) -> str:
    """Path of the socket of this process's supervisor for an executor; the first call starts it."""
    return _start(executor)


#: The environment before any test changes it.
_ENVIRONMENT = driver_environ_of_tests()

_running = ExitStack()
atexit.register(_running.close)


def _start(executor: str) -> str:
    folder = _running.enter_context(tempfile.TemporaryDirectory(prefix="nnburst-tests-"))
    address = str(Path(folder, "driver"))
    command = [sys.executable, "-m", "nnburst.driver", "--executor", executor, "--serve", address]
    process = subprocess.Popen(
        [*command, "--until-stdin-ends"],  # which is also when this process is killed
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env={**_ENVIRONMENT, "XDG_STATE_HOME": folder},
    )
    _running.callback(process.communicate, timeout=60)
    assert process.stdout is not None
    assert "listens" in process.stdout.readline()
    return address
