"""Keeps the driver's processes that execute for the front: usually one for each model."""

from __future__ import annotations

import contextlib
import signal
import threading
from pathlib import Path
from typing import Final

from nnburst.client.connect import connect
from nnburst.client.device import Device, recovering_device
from nnburst.hal.utils import Closing

#: Greatest number of processes for one front; a driver allows 64 for one client. Further models share them.
MAX_WORKERS: Final = 48


class Worker(Closing):
    """A connection to the driver, which has a process of its own there. Thread-safe."""

    def __init__(self, address: str) -> None:
        """Keep the address; the first use of `device` connects."""
        self._address = address
        self._lock = threading.Lock()
        self._device: Device | None = None
        self._last: Device | None = None

    @property
    def device(self) -> Device:
        """The connection.

        Raises:
            NnburstError: the driver is not there.
        """
        with self._lock:
            if self._device is None:
                self._device = recovering_device(self._connect, "wait")
            return self._device

    @property
    def is_alive(self) -> bool:
        """Whether the process is alive now."""
        return self._last is not None and self._last.is_alive

    @property
    def is_stopped(self) -> bool:
        """Whether a signal or a debugger has stopped the process."""
        last = self._last
        if last is None or not last.is_alive:
            return False
        try:
            status = Path(f"/proc/{last.pid}/stat").read_text(encoding="ascii", errors="replace")
        except OSError:
            return False
        return status.rpartition(")")[2].split()[0] in ("T", "t")

    def kill(self) -> None:
        """End the process; the next call that needs one connects again."""
        last = self._last
        if last is not None and last.is_alive:
            with contextlib.suppress(OSError):  # it has ended meanwhile
                signal.pidfd_send_signal(last.pidfd, signal.SIGKILL)

    def close(self) -> None:
        """End the connection, and with it the process."""
        with self._lock:
            if self._device is not None:
                self._device.close()

    def _connect(self) -> Device:
        self._last = connect(self._address)
        return self._last


class Workers(Closing):
    """Assigns a worker to each model. Thread-safe."""

    def __init__(self, address: str) -> None:
        """Start without workers; `address` is that of the driver."""
        self._address = address
        self._lock = threading.Lock()
        #: The number of models of each worker.
        self._users: dict[Worker, int] = {}

    def lend(self) -> Worker:
        """Assign a new worker, or the one with the fewest models; `take_back` releases it."""
        with self._lock:
            if len(self._users) < MAX_WORKERS:
                worker = Worker(self._address)
                self._users[worker] = 1
            else:
                worker = min(self._users, key=self._users.__getitem__)
                self._users[worker] += 1
            return worker

    def take_back(self, worker: Worker) -> None:
        """Release a worker from one model; its process ends with the last one."""
        with self._lock:
            left = self._users[worker] - 1
            if left:
                self._users[worker] = left
                return
            del self._users[worker]
        worker.close()

    def close(self) -> None:
        """End all workers."""
        with self._lock:
            workers, self._users = list(self._users), {}
        for worker in workers:
            worker.close()
