"""Finds the driver that a test suite is run against, or starts one for an executor.

It also keeps Ctrl-C from other processes that a command starts.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Final, Self

from nnburst.client.connect import NotRunning, connect
from nnburst.driver.executors import find_executor
from nnburst.hal.errors import DeviceUnavailable, NnburstError
from nnburst.hal.own_folder import OwnFolder
from nnburst.hal.utils import Closing, driver_environment, executor_library

#: Seconds until a driver must listen, and until it must have ended.
_START: Final = 60.0
_END: Final = 10.0
_STEP: Final = 0.01


@contextmanager
def deaf_to_interrupts() -> Iterator[None]:
    """Let processes that are started within ignore Ctrl-C, which the command handles."""
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)  # multiprocessing changes the mask itself
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


class DriverUnderTest(Closing):
    """A driver's address, and its process if it was started here. A context manager.

    A driver that was started here ends with this process, even if that is killed.

    Attributes:
        name: the given name.
        address: address for `nnburst.connect`.
        pid: pid of the supervisor; None if the driver was already running.
    """

    def __init__(
        self,
        name: str,
        address: str,
        process: subprocess.Popen[bytes] | None = None,
        folder: OwnFolder | None = None,
    ) -> None:
        """Use `start`."""
        self.name: Final = name
        self.address: Final = address
        self._process = process
        self._folder = folder

    @classmethod
    def start(
        cls,
        name: str,
        paths: Sequence[Path] = (),
        options: Sequence[str] = (),
        words: Sequence[str] = (),
    ) -> Self:
        """Find the driver called `name`, or start one.

        Args:
            name: an executor (its name, `module:attribute`, or the path of a shared library), for which a
                driver is started in a directory of its own with mode 0700; or the name or the path of a
                running driver.
            paths: folders in which an executor's module is searched first.
            options: options that the executor is opened with, each as `key=value`.
            words: further words of the driver's command line.

        Raises:
            DeviceUnavailable: there is no such executor or driver, or the driver does not start.
        """
        library = executor_library(name)
        if library is not None:
            name = str(library)
        elif "/" in name or not (":" in name or _is_executor(name)):
            connect(name).close()
            return cls(name, name)
        folder = OwnFolder()
        address = folder.path / "driver.sock"
        command = [sys.executable, "-m", "nnburst.driver"]
        given = [word for option in options for word in ("--option", option)]
        driver: Self | None = None
        try:
            process = subprocess.Popen(  # noqa: S603 - this interpreter, this package, a list of words
                [
                    *command,
                    "--executor",
                    name,
                    "--serve",
                    str(address),
                    "--until-stdin-ends",
                    *given,
                    *words,
                ],
                stdin=subprocess.PIPE,
                stdout=subprocess.DEVNULL,
                env=_environment(paths),
                process_group=0,  # Ctrl-C interrupts the command, which ends the driver
            )
            driver = cls(name, str(address), process, folder)
            driver._wait_until_it_answers()
        except BaseException:
            (driver or folder).close()
            raise
        return driver

    @property
    def pid(self) -> int | None:
        """Pid of the supervisor; None if the driver was already running and must not be killed."""
        return None if self._process is None else self._process.pid

    def _wait_until_it_answers(self) -> None:
        assert self._process is not None
        deadline = time.monotonic() + _START
        reason = f"the driver under test, {self.name}, does not start; its log has the reason"
        while not Path(self.address).exists():
            if self._process.poll() is not None or time.monotonic() > deadline:
                raise DeviceUnavailable(reason)
            threading.Event().wait(_STEP)
        try:
            connect(self.address).close()
        except NotRunning:  # it has ended, since its executor cannot be made
            raise DeviceUnavailable(reason) from None

    def close(self) -> None:
        """End the driver if it was started here. May be called twice."""
        if self._process is None:
            return
        try:
            self._process.terminate()
            if self._process.stdin is not None:
                self._process.stdin.close()
            try:
                self._process.wait(_END)
            except subprocess.TimeoutExpired:
                self._process.kill()
                self._process.wait(_END)
        finally:
            if self._folder is not None:
                self._folder.close()


def _is_executor(name: str) -> bool:
    try:
        find_executor(name)
    except NnburstError:
        return False
    return True


def _environment(paths: Sequence[Path]) -> dict[str, str]:
    environment = driver_environment()
    known = environment.get("PYTHONPATH")
    found = [*map(str, paths), *([known] if known else [])]
    return {**environment, "PYTHONPATH": os.pathsep.join(found)}
