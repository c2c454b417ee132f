"""Runs the client processes of a benchmark: `python -m nnburst.bench.clients.client LOAD FOLDER`.

Forks the clients before it has any thread or connection, so that 64 of them start as quickly as one. Prints
a line with the process ids of clients and workers once all are ready, reads a line with the moment of the
beginning, prints a line when all have finished, and ends with the next line. Each client writes its
measurements into the folder.
"""

from __future__ import annotations

import gc
import json
import os
import signal
import sys
import time
import traceback
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final, Self

import numpy as np
import numpy.typing as npt

from nnburst._native import lib
from nnburst.bench.cases import adding_model
from nnburst.bench.clients.load import Load, Usage
from nnburst.client.connect import connect
from nnburst.client.device import Device
from nnburst.hal.utils import Closing
from nnburst.importer.load import load

#: When requests came, were sent and were answered: nanoseconds of CLOCK_MONOTONIC, one row each.
Trips = npt.NDArray[np.int64]

#: Seconds until a service that starts many workers at once must have answered.
_PATIENCE: Final = 120.0


@dataclass(frozen=True, slots=True)
class ClientRan:
    """The measurements of one client.

    Attributes:
        trips: of its requests.
        own: processor time and memory of its process.
        worker: likewise of its worker.
    """

    trips: Trips
    own: Usage
    worker: Usage

    def save(self, folder: Path, number: int) -> None:
        """Write it to the folder, for `load`."""
        np.save(folder / f"{number}.npy", self.trips)
        used = json.dumps([asdict(self.own), asdict(self.worker)])
        (folder / f"{number}.json").write_text(used)

    @classmethod
    def load(cls, folder: Path, number: int) -> Self:
        """Read the files of `save`."""
        own, worker = json.loads((folder / f"{number}.json").read_text())
        return cls(np.load(folder / f"{number}.npy"), Usage(**own), Usage(**worker))


class LoadClient(Closing):
    """A connected client whose request is bound.

    Attributes:
        worker: process that serves it.
    """

    def __init__(self, device: Device, stack: ExitStack, execute: Callable[[], object]) -> None:
        """Use `open`."""
        self.worker: Final = device.pid
        self._stack = stack
        self._execute = execute

    @classmethod
    def open(cls, wanted: Load) -> Self:
        """Connect, prepare, open a burst, bind and execute once."""
        model: Any = load(Path(wanted.network)) if wanted.network else adding_model(1, 1)
        with ExitStack() as stack:
            device = stack.enter_context(connect(wanted.address, timeout=_PATIENCE))
            prepared = stack.enter_context(device.prepare(model, timeout=_PATIENCE))
            window = None if wanted.spins else 0.0
            burst = stack.enter_context(prepared.open_burst(spin_window=window))
            bound = burst.bind()
            bound.run(_PATIENCE)
            return cls(device, stack.pop_all(), bound.run)

    def run(self, wanted: Load, number: int, begin_ns: int) -> ClientRan:
        """Run a load as its client `number` from `begin_ns` on; settling does not count."""
        counted, end = begin_ns + wanted.settling_ns, begin_ns + wanted.duration_ns
        moments = moments_of(wanted, number, begin_ns) if wanted.rate else None

        def trips(first: int, last: int) -> Trips:
            if moments is None:
                return self._closed_loop(first, last)
            return self._open_loop(moments[(moments >= first) & (moments < last)])

        trips(begin_ns, counted)
        before = self._used()
        found = trips(counted, end)
        own, worker = (now - then for now, then in zip(self._used(), before, strict=True))
        return ClientRan(found, own, worker)

    def _used(self) -> tuple[Usage, Usage]:
        return Usage.of([os.getpid()]), Usage.of([self.worker])

    def _closed_loop(self, begin_ns: int, end_ns: int) -> Trips:
        """Execute without a pause from one moment to the other, at least once."""
        execute, clock = self._execute, time.monotonic_ns
        stamps: list[int] = []
        _sleep_until(begin_ns)
        now = clock()
        while not stamps or now < end_ns:
            stamps.append(now)
            execute()
            now = clock()
        sent = np.asarray(stamps, np.int64)
        return np.stack([sent, sent, np.append(sent[1:], now)], axis=1)

    def _open_loop(self, moments: npt.NDArray[np.int64]) -> Trips:
        """Execute once for each moment: then, or as soon as the request before is answered."""
        execute, clock = self._execute, time.monotonic_ns
        trips = np.empty((len(moments), 3), np.int64)
        trips[:, 0] = moments
        for place, due in enumerate(moments.tolist()):
            _sleep_until(due)
            trips[place, 1] = clock()
            execute()
            trips[place, 2] = clock()
        return trips

    def close(self) -> None:
        """Close the burst, the model and the connection."""
        self._stack.close()


def moments_of(wanted: Load, number: int, begin_ns: int) -> npt.NDArray[np.int64]:
    """When the requests of a client come: a Poisson process of its own, the same for the same seed."""
    chance = np.random.default_rng([wanted.seed, number])
    expected = wanted.rate * wanted.seconds
    gaps = chance.exponential(1 / wanted.rate, int(expected + 8 * expected**0.5 + 16))
    seconds = np.cumsum(gaps)
    return begin_ns + (seconds[seconds < wanted.seconds] * 1e9).astype(np.int64)


def _sleep_until(moment_ns: int) -> None:
    left = moment_ns - time.monotonic_ns()
    if left > 0:
        time.sleep(left / 1e9)


class _Member:
    """A forked client, as its parent sees it: a pipe there and one back."""

    def __init__(self, wanted: Load, number: int, folder: Path) -> None:
        """Fork it."""
        words, self._words = os.pipe()
        self._answers, answers = os.pipe()
        self.pid = os.fork()
        if self.pid == 0:
            os.close(self._words)
            os.close(self._answers)
            _be_client(wanted, number, folder, words, answers)
        os.close(words)
        os.close(answers)

    def send(self, word: str) -> None:
        """One word for it."""
        os.write(self._words, word.encode())

    def receive(self) -> str:
        """Its next word; "" if it has ended."""
        return os.read(self._answers, 64).decode()

    def wait(self) -> bool:
        """Wait until it has ended; whether it did so in order."""
        return os.waitpid(self.pid, 0)[1] == 0


def _be_client(wanted: Load, number: int, folder: Path, words: int, answers: int) -> None:
    status = 1
    lib.nnb_die_with_parent(signal.SIGKILL)
    try:
        with LoadClient.open(wanted) as client:
            gc.collect()
            gc.disable()
            os.write(answers, str(client.worker).encode())
            client.run(wanted, number, int(os.read(words, 64))).save(folder, number)
            os.write(answers, b"done")
            os.read(words, 64)
        status = 0
    except BaseException:  # a fork must not get back into its parent's code
        traceback.print_exc()
    finally:
        os._exit(status)


def main() -> int:
    """Run the clients of a load once."""
    wanted, folder = Load.from_text(sys.argv[1]), Path(sys.argv[2])
    members = [_Member(wanted, number, folder) for number in range(wanted.clients)]
    workers = [member.receive() for member in members]
    if not all(workers):
        print("a client failed", file=sys.stderr)  # noqa: T201
        return _end(members)
    pids = {"clients": [member.pid for member in members], "workers": [int(w) for w in workers]}
    print(json.dumps(pids), flush=True)  # noqa: T201
    begin = sys.stdin.readline().strip()
    if not begin:
        return 1  # the benchmark has ended, and with this process its clients do
    for member in members:
        member.send(begin)
    finished = [member.receive() for member in members]
    print(json.dumps(time.monotonic_ns()), flush=True)  # noqa: T201
    sys.stdin.readline()
    return _end(members) or (0 if all(finished) else 1)


def _end(members: list[_Member]) -> int:
    for member in members:
        try:
            member.send("end")
        except BrokenPipeError:
            continue  # it has ended already
    ended = [member.wait() for member in members]  # every one, also after one that failed
    return 0 if all(ended) else 1


if __name__ == "__main__":
    sys.exit(main())
