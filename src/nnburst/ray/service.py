"""Runs `nnburst serve` as a child process and starts it again whenever it ends."""

from __future__ import annotations

import logging
import re
import socket
import subprocess
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from nnburst.control.address import SUFFIX, directory, remove_if_dead, socket_path
from nnburst.hal.utils import Closing, driver_environment, python_command

logger = logging.getLogger(__name__)

#: Files of services of this user's actors, by Ray's ids of these: no id comes a second time.
_NAMED: Final = re.compile(rf"(ray-[0-9a-f]{{16,}}{re.escape(SUFFIX)})(\.lock|\.new)?")
#: Seconds before a service that has ended is started again; each time twice as long if it ends at once.
_FIRST_PAUSE: Final = 0.05
_LONGEST_PAUSE: Final = 5.0
#: Seconds that a service must have lived to count as one that could serve.
_SETTLED: Final = 2.0
#: Seconds that it gets to end.
_GRACE: Final = 3.0


class Service(Closing):
    """A service at an address and a port that stay the same. Thread-safe.

    Attributes:
        address: of the driver's socket.
        grpc: "HOST:PORT" of the front.
        starts: how often it was started.
    """

    def __init__(
        self,
        name: str,
        models: Mapping[str, str],
        executor: str,
        host: str,
        words: Sequence[str] = (),
    ) -> None:
        """Start it; it may take a moment until it answers.

        Args:
            name: of the driver. One that has not ended yet is waited for, what it has left is taken over.
            models: for each name a file, or `module:attribute`.
            executor: as for `nnburst serve`.
            host: at which gRPC listens.
            words: further ones for `nnburst serve`.
        """
        self.address = str(socket_path(name, create=True))
        self.grpc = f"{host}:{_free_port(host)}"
        self.starts = 0
        self._command = python_command("-m", "nnburst", "serve", self.address, *words)
        self._command += ["--executor", executor, "--grpc", self.grpc, "--until-stdin-ends"]
        for name, source in models.items():
            self._command += ["--model", f"{name}={source}"]
        self._ending = threading.Event()
        self._process = self._start()
        threading.Thread(target=self._keep, name="nnburst service", daemon=True).start()

    @property
    def pid(self) -> int:
        """Of the supervisor that was started last."""
        return self._process.pid

    def close(self) -> None:
        """End it, and remove what it was reached by."""
        self._ending.set()
        if self._process.stdin is not None:
            self._process.stdin.close()
        try:
            self._process.wait(_GRACE)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait(_GRACE)
        remove_if_dead(Path(self.address))

    def _start(self) -> subprocess.Popen[bytes]:
        self.starts += 1
        # Ray kills the actor's whole process group; the service sees its input end and then leaves in order.
        return subprocess.Popen(  # noqa: S603 - of this installation
            self._command,
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            start_new_session=True,
            env=driver_environment(),
        )

    def _keep(self) -> None:
        pause = _FIRST_PAUSE
        while True:
            try:
                code = self._process.wait(_SETTLED)
                pause = min(2 * pause, _LONGEST_PAUSE)
            except subprocess.TimeoutExpired:
                code = self._process.wait()
                pause = _FIRST_PAUSE
            if self._ending.is_set():
                return
            logger.warning("the service ended with %d, it starts again in %.2f s", code, pause)
            if self._ending.wait(pause):
                return
            if self._process.stdin is not None:
                self._process.stdin.close()
            self._process = self._start()


def name_of(actor_id: str) -> str:
    """The name of an actor's service, which it keeps when Ray starts it again."""
    return f"ray-{actor_id}"


def remove_dead() -> None:
    """Remove what services of actors left that were killed with their node, as nothing else does."""
    found = filter(None, (_NAMED.fullmatch(path.name) for path in directory().glob("ray-*")))
    for name in sorted({match[1] for match in found}):
        try:
            remove_if_dead(directory() / name)
        except OSError as error:
            logger.warning("%s of a service that has ended stays: %s", name, error)


def _free_port(host: str) -> int:
    """A port that is free now."""
    with socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET) as probe:
        probe.bind((host.strip("[]"), 0))
        port: int = probe.getsockname()[1]
        return port


@dataclass(frozen=True)
class Place:
    """A service and the two ways to it.

    Attributes:
        node: Ray's id of the node.
        boot_id: of the kernel that runs it; two containers on one machine have the same one.
        address: of the driver's socket on that node.
        grpc: "HOST:PORT" of its front.
        pid: of its supervisor.
        actor_pid: of the actor that keeps it.
    """

    node: str
    boot_id: str
    address: str
    grpc: str
    pid: int
    actor_pid: int

    @property
    def may_be_here(self) -> bool:
        """Whether trying a burst makes sense; containers of one machine may still not reach each other."""
        return self.boot_id == boot_id()


def boot_id() -> str:
    """Of the kernel that runs this process."""
    return Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
