"""One of many clients: a burst, and when its requests come."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final, Self

import numpy as np
import numpy.typing as npt

from nnburst.bench.clients.load import Load
from nnburst.bench.clients.usage import Usage
from nnburst.bench.drivers import adding_model
from nnburst.client.connect import connect
from nnburst.client.device import Device
from nnburst.hal.closing import Closing
from nnburst.importer.load import load

#: When requests came, were sent and were answered: nanoseconds of CLOCK_MONOTONIC, one row each.
Trips = npt.NDArray[np.int64]

#: Seconds until a service that starts many workers at once must have answered.
_PATIENCE: Final = 120.0


@dataclass(frozen=True, slots=True)
class ClientRan:
    """What a client did while it counted.

    Attributes:
        trips: of its requests.
        own: what its process used.
        worker: what its worker used.
    """

    trips: Trips
    own: Usage
    worker: Usage

    def save(self, folder: Path, number: int) -> None:
        """Leave it for `load`."""
        np.save(folder / f"{number}.npy", self.trips)
        used = json.dumps([asdict(self.own), asdict(self.worker)])
        (folder / f"{number}.json").write_text(used)

    @classmethod
    def load(cls, folder: Path, number: int) -> Self:
        """What `save` left."""
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
