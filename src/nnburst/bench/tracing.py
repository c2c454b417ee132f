"""Measures the cost of recording a round trip.

Two bursts run in turn: one records on both sides, the other does not.
"""

from __future__ import annotations

import os
import socket
import tempfile
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
from nnburst.tracing.recording import record_if_asked, stop

_OFF: Final = "recording off"
_ON: Final = "recording on"


#: Both sides were awake in a round if it took less than so many times the quickest one.
_ASLEEP: Final = 3.0
#: Such rounds of which a median says something.
FEWEST: Final = 5


@dataclass(frozen=True, slots=True)
class TraceCost:
    """Of `null_1in1out`, in nanoseconds: medians of single exchanges in each round.

    A side that waits for a core sleeps, and a round trip is then a hundred times as long as what is measured;
    such rounds do not count.

    Attributes:
        off_rounds: round trips that are not recorded.
        on_rounds: those that are, on both sides.
    """

    off_rounds: tuple[float, ...]
    on_rounds: tuple[float, ...]

    @property
    def awake(self) -> list[tuple[float, float]]:
        """The rounds in which no side slept, off and on."""
        rounds = list(zip(self.off_rounds, self.on_rounds, strict=True))
        most = _ASLEEP * min(min(pair) for pair in rounds)
        return [pair for pair in rounds if max(pair) < most]

    @property
    def off_ns(self) -> float:
        """Median of the rounds that count; 0 if none does."""
        return float(np.median([off for off, _ in self.awake] or [0.0]))

    @property
    def on_ns(self) -> float:
        """Likewise while both sides record."""
        return float(np.median([on for _, on in self.awake] or [0.0]))

    @property
    def difference_ns(self) -> float | None:
        """Median of the differences within a round; None if too few rounds count."""
        pairs = self.awake
        return float(np.median([on - off for off, on in pairs])) if len(pairs) >= FEWEST else None


class _Switched(Looped):
    """A round trip during which this process records, or does not."""

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

    Nothing reads the marks meanwhile: a collector is a process of its own and would need a third core.
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
    """The address of a collector that keeps its descriptors and reads nothing."""
    with (
        tempfile.TemporaryDirectory(prefix="nnburst-bench-") as folder,
        socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as collector,
    ):
        address = Path(folder, "collector")
        collector.bind(str(address))
        collector.listen()
        yield address


def _restore(before: str | None) -> None:
    if before is None:
        del os.environ[TRACE.name]
    else:
        os.environ[TRACE.name] = before
