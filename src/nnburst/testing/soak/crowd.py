"""The processes that make a soak's load."""

from __future__ import annotations

import json
import random
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from typing import Any, Final, Self

from nnburst.client.connect import connect
from nnburst.client.launch import driver_environment
from nnburst.testing.faults.activities import ACTIVITIES
from nnburst.testing.faults.resilient import BrokenLife, outlive
from nnburst.testing.faults.stuck import STUCK

#: Seconds until a process must have answered.
_HANG: Final = 60.0
#: What clients that stay do: everything that ends by itself in each round.
STAYING: Final = tuple(name for name in ACTIVITIES if name != "idle")
#: Seconds between two deaths.
_BETWEEN_DEATHS: Final = 0.5
#: Longest life of a victim, once it is busy.
_LATEST: Final = 0.2


class Process:
    """A client process of `nnburst.testing.faults.client`.

    Attributes:
        activity: what it does.
        pid: its own.
        worker: its driver's; 0 until it is busy.
    """

    def __init__(self, address: str, activity: str) -> None:
        """Start it; `wait_until_busy` is next."""
        command = [sys.executable, "-m", "nnburst.testing.faults.client", address, activity]
        self.activity = activity
        self._process = subprocess.Popen(  # noqa: S603 - this interpreter, this package, a list of words
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=driver_environment()
        )
        self.pid, self.worker = self._process.pid, 0

    @classmethod
    def busy(cls, address: str, activity: str) -> Self:
        """Start one and wait until it is busy."""
        process = cls(address, activity)
        process.wait_until_busy()
        return process

    def wait_until_busy(self) -> None:
        """Wait until it does what it shall; `worker` is known from then on.

        Raises:
            BrokenLife: it has ended instead.
        """
        self.worker = int(self._line()["worker"])

    def _line(self) -> Any:  # noqa: ANN401 - JSON
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            raise BrokenLife(f"client {self.activity} ended with {self._process.wait(_HANG)}")
        return json.loads(line)

    def release(self) -> None:
        """Release one that stands by, which ends then; `finish` waits for that."""
        assert self._process.stdin is not None
        self._process.stdin.close()

    def finish(self) -> Any:  # noqa: ANN401 - JSON
        """Let one that stands by end: its rounds, errors and latencies."""
        self.release()
        facts = self._line()
        self._process.wait(_HANG)
        return facts

    def kill(self) -> None:
        """SIGKILL in the middle of its work.

        Raises:
            BrokenLife: it had ended before; why stands on its stderr, which is ours.
        """
        status = self.close()
        if status != -signal.SIGKILL:
            raise BrokenLife(f"client {self.activity} had ended with {status} before it was killed")

    def close(self) -> int:
        """SIGKILL, unless it has ended; its exit status."""
        self._process.kill()
        status = self._process.wait(_HANG)
        for stream in (self._process.stdin, self._process.stdout):
            assert stream is not None
            stream.close()
        return status


class Repeated:
    """Something done again and again on a thread, until it is stopped or fails.

    Attributes:
        count: how often it was done.
        error: that it ended with; empty while all is well.
    """

    def __init__(
        self,
        name: str,
        work: Callable[[threading.Event], None],
        clean_up: Callable[[], None] = lambda: None,
    ) -> None:
        """Start.

        Args:
            name: for reports.
            work: is given what is set when it shall come back early.
            clean_up: the last thing that is done.
        """
        self.name = name
        self._clean_up = clean_up
        self.count = 0
        self.error = ""
        self._stop = threading.Event()
        self._work = work
        self._thread = threading.Thread(target=self._run, name=f"soak {name}", daemon=True)
        self._thread.start()

    def _run(self) -> None:
        try:
            while not self._stop.is_set():
                self._work(self._stop)
                self.count += 1
            self._clean_up()
        except Exception as error:
            self.error = f"{self.name}: {type(error).__name__}: {error}"

    def close(self) -> None:
        """Stop and wait for the end of what is under way."""
        self._stop.set()
        self._thread.join(_HANG)
        if self._thread.is_alive():
            self.error = self.error or f"{self.name}: no end within {_HANG:g} s"


def deaths_of_clients(address: str, seed: int) -> Repeated:
    """Kill a client in the middle of something, again and again."""
    chance = random.Random(seed)  # noqa: S311 - decides when to kill

    def kill_one(stop: threading.Event) -> None:
        victim = Process.busy(address, chance.choice([*ACTIVITIES, "connect", *STUCK]))
        stop.wait(chance.uniform(0, _LATEST))
        victim.kill()
        stop.wait(_BETWEEN_DEATHS)

    return Repeated("deaths of clients", kill_one)


def deaths_of_workers(address: str) -> Repeated:
    """Kill the worker of a client that outlives it, again and again."""
    steps = outlive(address)

    def kill_one(stop: threading.Event) -> None:
        next(steps)
        stop.wait(_BETWEEN_DEATHS)

    return Repeated("deaths of workers", kill_one, steps.close)


def connections(address: str) -> Repeated:
    """Connect and go."""

    def connect_once(stop: threading.Event) -> None:
        connect(address).close()
        stop.wait(_BETWEEN_DEATHS / 10)

    return Repeated("connections", connect_once)


def wait_until(condition: Callable[[], bool], seconds: float) -> bool:
    """Whether `condition` held within `seconds`."""
    deadline = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > deadline:
            return False
        threading.Event().wait(0.01)
    return True
