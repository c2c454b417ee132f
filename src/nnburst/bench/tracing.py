"""Measures the cost of recording a round trip.

Two bursts run in turn: one records on both sides, the other does not.
"""

from __future__ import annotations

import os
import socket
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import numpy as np

from nnburst._native import lib
from nnburst.bench.cases import Looped, Samples, adding_model, open_bound, pinned
from nnburst.bench.rounds import run_rounds
from nnburst.client.launch import launch
from nnburst.hal.environment import TRACE
from nnburst.hal.own_folder import OwnFolder
from nnburst.tracing.recording import record_if_asked, stop

_OFF: Final = "recording off"
_ON: Final = "recording on"


#: Both sides were awake in a round if it took less than this multiple of the fastest round.
_ASLEEP: Final = 3.0
#: Least number of such rounds for a meaningful median.
FEWEST: Final = 5


@dataclass(frozen=True, slots=True)
class TraceCost:
    """The cost of tracing `null_1in1out` in nanoseconds: medians of single exchanges in each round.

    If a side waits for a core, it sleeps, and a round trip takes a hundred times as long; such rounds do not
    count.

    Attributes:
        off_rounds: rounds without recording.
        on_rounds: rounds in which both sides record.
    """

    off_rounds: tuple[float, ...]
    on_rounds: tuple[float, ...]

    @property
    def awake(self) -> list[tuple[float, float]]:
        """The pairs of rounds (without and with recording) in which no side slept."""
        rounds = list(zip(self.off_rounds, self.on_rounds, strict=True))
        most = _ASLEEP * min(min(pair) for pair in rounds)
        return [pair for pair in rounds if max(pair) < most]

    @property
    def off_ns(self) -> float:
        """Median without recording; 0 if no round counts."""
        return float(np.median([off for off, _ in self.awake] or [0.0]))

    @property
    def on_ns(self) -> float:
        """Median while both sides record; 0 if no round counts."""
        return float(np.median([on for _, on in self.awake] or [0.0]))

    @property
    def difference_ns(self) -> float | None:
        """Median of the differences within a round; None if too few rounds count."""
        pairs = self.awake
        return float(np.median([on - off for off, on in pairs])) if len(pairs) >= FEWEST else None


class _Switched(Looped):
    """A case of a round trip with or without recording in this process."""

    def __init__(self, name: str, call: Callable[[], object], *, records: bool) -> None:
        super().__init__(name, call)
        self._records = records

    def block(self, count: int) -> float:
        """See `Contestant`."""
        with self._switched():
            return super().block(count)

    def samples(self, count: int) -> Samples:
        """See `Contestant`."""
        with self._switched():
            return super().samples(count)

    @contextmanager
    def _switched(self) -> Iterator[None]:
        lib.nnb_trace_on = int(self._records)
        try:
            yield
        finally:
            lib.nnb_trace_on = 0


def measure(rounds: int, here: int, there: int) -> TraceCost:
    """Measure on two cores.

    Nothing reads the marks meanwhile, since a collector is another process and would need a third core.
    """
    with ExitStack() as stack:
        quiet = stack.enter_context(launch("null", cpus={there}))
        address = stack.enter_context(_unread())
        before = os.environ.get(TRACE.name)
        os.environ[TRACE.name] = str(address)
        try:
            recorded = stack.enter_context(launch("null", cpus={there}))
            stack.callback(stop)
            record_if_asked("nnburst bench tracing")
        finally:
            _restore(before)
        lib.nnb_trace_on = 0
        stack.enter_context(pinned(here))
        _, off = open_bound(stack, quiet, adding_model(1, 1))
        _, on = open_bound(stack, recorded, adding_model(1, 1))
        cases = [_Switched(_OFF, off.run, records=False), _Switched(_ON, on.run, records=True)]
        found = run_rounds(cases, rounds)
    return TraceCost(tuple(found[_OFF].typical), tuple(found[_ON].typical))


@contextmanager
def _unread() -> Iterator[Path]:
    """The address of a collector that only keeps the descriptors it gets."""
    with (
        OwnFolder() as own,
        socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as collector,
    ):
        address = own.path / "collector"
        collector.bind(str(address))
        collector.listen()
        yield address


def _restore(before: str | None) -> None:
    if before is None:
        del os.environ[TRACE.name]
    else:
        os.environ[TRACE.name] = before
