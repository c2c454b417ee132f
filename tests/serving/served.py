"""Starts a driver with a front, as `nnburst serve` does."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from contextlib import suppress
from types import TracebackType
from typing import Any, Self

from nnburst.testing.faults.footprint import children, command_line
from programs import driver_environ_of_tests

MODELS = ("add", "both", "quantised", "accumulate", "conjunction")
#: Seconds that anything may take on a busy machine before a test fails.
PATIENCE = 60


def region_key(name: str) -> str:
    """The key of a shared memory region of this process: all processes of the machine share one list."""
    return f"/nnburst_{name}_{os.getpid()}"


def forking(supervisor: int) -> list[int]:
    """Pids of a supervisor's processes that fork fronts: one at most."""
    return [pid for pid in children(supervisor) if b"nnburst.serving" in command_line(pid)]


def fronts(supervisor: int) -> list[int]:
    """Pids of a supervisor's fronts: one at most."""
    return [front for pid in forking(supervisor) for front in children(pid)]


class Served:
    """A supervisor, its front and its workers. A context manager.

    Attributes:
        process: process of the supervisor.
        driver: path of the driver's socket.
        address: address of the front.
        http: address of the front's HTTP server; empty without one.
        metrics: address of its metrics, if it has any.
    """

    def __init__(
        self,
        *words: str,
        ready: bool = True,
        grpc: str = "127.0.0.1:0",
        executor: str = "serving.networks:Obedient",
        models: Sequence[str] = MODELS,
    ) -> None:
        """Start the driver and its front.

        Args:
            words: options beside those of every test.
            ready: whether `with` waits until every model is ready.
            grpc: address for gRPC; empty if `words` has it.
            executor: the driver's executor.
            models: names of models in `serving.networks` to serve.
        """
        self._waits = ready
        self._words, self.http = words, ""
        self._folder = tempfile.TemporaryDirectory()
        command = [sys.executable, "-m", "nnburst", "serve", f"{self._folder.name}/driver"]
        command += ["--executor", executor, *words]
        command += ["--grpc", grpc] if grpc else []
        for name in models:
            command += ["--model", f"{name}=serving.networks:{name}"]
        environment = driver_environ_of_tests()
        self.process = subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment
        )
        self.metrics = ""
        self.driver = f"{self._folder.name}/driver"
        self.address = self.next_address()

    def next_address(self) -> str:
        """The address of the next front."""
        assert self.process.stdout is not None
        address = ""
        while line := self.process.stdout.readline():
            if line.startswith("metrics at "):
                self.metrics = line.removeprefix("metrics at ").strip()
            if line.startswith("gRPC at "):
                address = line.removeprefix("gRPC at ").strip()
                if "--http" not in self._words:
                    return address
            if line.startswith("HTTP at "):
                self.http = line.removeprefix("HTTP at ").strip()
                return address
        raise AssertionError("the driver has ended")

    def wait_until_ready(self) -> None:
        """Wait until every model is served."""
        client = self.client()
        deadline = time.monotonic() + PATIENCE
        while not client.is_server_ready():
            assert self.process.poll() is None
            if time.monotonic() > deadline:
                raise AssertionError(self.close())
            time.sleep(0.02)  # not a synchronisation: the protocol has no other way to wait
        client.close()

    def client(self, **options: Any) -> Any:
        """Triton's synchronous client."""
        import tritonclient.grpc as triton

        return triton.InferenceServerClient(self.address, **options)

    def front(self) -> int:
        """The pid of the front."""
        return fronts(self.process.pid)[0]

    def forking(self) -> int:
        """The pid of the process that forks the front."""
        return forking(self.process.pid)[0]

    def workers(self) -> list[int]:
        """Pids of the workers."""
        return [pid for pid, words in self.children().items() if b"nnburst.serving" not in words]

    def kill_workers(self) -> None:
        """Send SIGKILL to the workers; some may end by themselves meanwhile, after their clients."""
        for pid in self.workers():
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)

    def children(self) -> dict[int, list[bytes]]:
        """Command lines of the supervisor's children."""
        return {pid: command_line(pid) for pid in children(self.process.pid)}

    def close(self) -> str:
        """End the supervisor; its output to standard error."""
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
        try:
            _, errors = self.process.communicate(timeout=PATIENCE)
        finally:
            self.process.kill()
            self._folder.cleanup()
        return errors

    def __enter__(self) -> Self:
        if self._waits:
            self.wait_until_ready()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()
