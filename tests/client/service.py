"""Starts a service of named networks as `nnburst serve` does, which tests may kill and start again."""

from __future__ import annotations

import signal
import subprocess
import sys
import tempfile
from typing import Self

from programs import driver_environ_of_tests


class Service:
    """A supervisor and its workers. A context manager.

    Attributes:
        address: path of its socket.
        executor: name of its executor.
    """

    def __init__(self, *networks: str, executor: str = "serving.networks:Obedient") -> None:
        self._folder = tempfile.TemporaryDirectory()
        self.address = f"{self._folder.name}/driver"
        self._command = [sys.executable, "-m", "nnburst", "serve", self.address]
        self._command += ["--executor", executor, "--until-stdin-ends"]
        self._networks = networks
        self.start()

    def start(self, *networks: str) -> None:
        """Start the supervisor; returns once clients may come.

        Args:
            networks: the networks to serve from now on; by default the same as before.
        """
        self._networks = networks or self._networks
        models = [word for network in self._networks for word in ("--model", network)]
        environment = driver_environ_of_tests()
        self._process = subprocess.Popen(
            [*self._command, *models],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env=environment,
        )
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        assert "listens" in line
        self.executor = line.split()[0]

    @property
    def pid(self) -> int:
        """The supervisor's number."""
        return self._process.pid

    def kill(self) -> None:
        """End the supervisor and its workers without a chance to say so."""
        self._process.send_signal(signal.SIGKILL)
        self._process.communicate()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._process.terminate()
        self._process.communicate(timeout=60)
        self._folder.cleanup()
