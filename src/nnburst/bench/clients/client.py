"""Runs the client processes of a benchmark: `python -m nnburst.bench.clients.client LOAD FOLDER`.

The process forks the clients before it has any thread or connection, so that 64 clients start as quickly as
one. When all are ready, it prints a line with the process ids of clients and workers, and reads a line with
the time of the beginning. It prints a line when all have finished, and ends after another line of input. Each
client writes its measurements into the folder.
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

#: A row for each request: times of arrival, sending and answer, in nanoseconds of CLOCK_MONOTONIC.
Trips = npt.NDArray[np.int64]

#: Seconds within which a service that starts many workers at once must answer.
_PATIENCE: Final = 120.0


@dataclass(frozen=True, slots=True)
class ClientRan:
    """The measurements of one client.

    Attributes:
        trips: times of the requests.
        own: usage of the client's process.
        worker: usage of the worker's process.
    """

    trips: Trips
    own: Usage
    worker: Usage

    def save(self, folder: Path, number: int) -> None:
        """Write the measurements to the folder, for `load`."""
        np.save(folder / f"{number}.npy", self.trips)
        used = json.dumps([asdict(self.own), asdict(self.worker)])
        (folder / f"{number}.json").write_text(used)

    @classmethod
    def load(cls, folder: Path, number: int) -> Self:
        """Read the files that `save` has written."""
        own, worker = json.loads((folder / f"{number}.json").read_text())
        return cls(np.load(folder / f"{number}.npy"), Usage(**own), Usage(**worker))


class LoadClient(Closing):
    """A connected client whose request is bound.

    Attributes:
        worker: process that serves the client.
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
        """Run a load as client `number` from `begin_ns` on; the settling time does not count."""
        counted, end = begin_ns + wanted.settling_ns, begin_ns + wanted.duration_ns
        moments = moments_of(wanted, number, begin_ns) if wanted.rate else None

        def trips(first: int, last: int) -> Trips:
            if moments is None:
                return self._closed_loop(first, last)
            return self._open_loop(moments[(moments >= first) & (moments < last)], last)

        trips(begin_ns, counted)
        before = self._used()
        found = trips(counted, end)
        own, worker = (now - then for now, then in zip(self._used(), before, strict=True))
        return ClientRan(found, own, worker)

    def _used(self) -> tuple[Usage, Usage]:
        return Usage.of([os.getpid()]), Usage.of([self.worker])

    def _closed_loop(self, begin_ns: int, end_ns: int) -> Trips:
        """Execute without a pause from `begin_ns` to `end_ns`, at least once."""
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

    def _open_loop(self, moments: npt.NDArray[np.int64], end_ns: int) -> Trips:
        """Execute once for each time: then, or as soon as the request before is answered.

        Requests that still wait at `end_ns` are not sent: more may come than are ever served.
        """
        execute, clock = self._execute, time.monotonic_ns
        trips = np.empty((len(moments), 3), np.int64)
        trips[:, 0] = moments
        sent = 0
        for due in moments.data:
            _sleep_until(due)
            now = clock()
            if now >= end_ns:
                break
            trips[sent, 1] = now
            execute()
            trips[sent, 2] = clock()
            sent += 1
        return trips[:sent]

    def close(self) -> None:
        """Close the burst, the model and the connection."""
        self._stack.close()


def moments_of(wanted: Load, number: int, begin_ns: int) -> npt.NDArray[np.int64]:
    """Arrival times of a client's requests: a Poisson process, which the seed and the client determine."""
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
    """A forked client in its parent: two pipes, one in each direction."""

    def __init__(self, wanted: Load, number: int, folder: Path) -> None:
        """Fork the client."""
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
        """Send a word to the client."""
        os.write(self._words, word.encode())

    def receive(self) -> str:
        """Receive the client's next word; "" if it has ended."""
        return os.read(self._answers, 64).decode()

    def wait(self) -> bool:
        """Wait until the client has ended; return whether it succeeded."""
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
    except BaseException:  # the child must not return into its parent's code
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
        return 1  # the benchmark has ended, so the clients end with this process
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
    ended = [member.wait() for member in members]  # wait for each, even if one has failed
    return 0 if all(ended) else 1


if __name__ == "__main__":
    sys.exit(main())
