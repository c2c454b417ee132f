"""Collects the marks of many processes while they run.

Every process sends a memfd that only it can write to. The collector maps it for reading, and reads each ring
every 50 ms and once more at the end. It bounds every index that it reads, so a process that writes invalid
marks loses only its own. The marks of a killed process are still there.
"""

from __future__ import annotations

import os
import socket
import threading
import time
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from nnburst._native import lib
from nnburst.fmq.shared_memory import SharedMemory
from nnburst.hal.errors import InvalidArgument
from nnburst.hal.own_folder import OwnFolder
from nnburst.hal.peer import receive_fds, unix_peer
from nnburst.hal.utils import Closing
from nnburst.tracing import recording
from nnburst.tracing.slices import Layer, Phase
from nnburst.tracing.timeline import Instant, Sample, Thread, ThreadBuilder, Trace

_PERIOD: Final = 0.05
_MOST_PROCESSES: Final = 512
_LAYERS: Final = tuple(Layer)
_PHASES: Final = tuple(Phase)

Records = npt.NDArray[Any]


class Clock:
    """Converts ticks to nanoseconds of CLOCK_MONOTONIC, linearly between the first and the last pair."""

    def __init__(self) -> None:
        """Read both clocks for the first time."""
        self._first = self._last = self._pair()

    def take(self) -> None:
        """Read both clocks again."""
        self._last = self._pair()

    @staticmethod
    def _pair() -> tuple[int, int]:
        return int(lib.nnb_trace_ticks(1)), time.monotonic_ns()

    def nanoseconds(self, ticks: Records) -> list[int]:
        """The nanoseconds of these ticks."""
        (t0, ns0), (t1, ns1) = self._first, self._last
        rate = (ns1 - ns0) / max(t1 - t0, 1)
        apart = ticks.astype(np.int64) - t0
        found: list[int] = (ns0 + np.rint(apart * rate).astype(np.int64)).tolist()
        return found


class TracedProcess:
    """The marks of one process."""

    def __init__(self, memory: npt.NDArray[np.uint8]) -> None:
        """Read the marks in `memory`, an area of another process that is mapped for reading.

        Raises:
            InvalidArgument: the memory is not such an area.
        """
        self._area: Final = recording.view(memory)
        if int(self._area["magic"]) != recording.MAGIC:
            raise InvalidArgument("trace: the memory does not begin like an area of marks")
        self.lost = 0
        self._taken: Final = [0] * recording.RINGS
        self._records: Final[list[list[Records]]] = [[] for _ in range(recording.RINGS)]

    def drain(self) -> None:
        """Take the marks recorded since the last call."""
        for ring in range(recording.RINGS):
            self._drain(ring)

    def _drain(self, ring: int) -> None:
        # TRUST: read once. A number that decreases is ignored; one that jumps loses only the process's own
        # marks.
        written, taken = int(self._area["ring"]["written"][ring]), self._taken[ring]
        if written <= taken:
            return
        first = max(taken, written - recording.RECORDS)
        self.lost += min(first - taken, 1 << 40)
        self._taken[ring] = written
        numbers = np.arange(first, written, dtype=np.uint64)
        places = (numbers % np.uint64(recording.RECORDS)).astype(np.intp)
        records = self._area["record"][ring]
        # SYNC POINT T: a record that was overwritten during the copy has another number afterwards.
        copied = records[places]
        after = records["sequence"][places]
        good = (copied["sequence"] == numbers + np.uint64(1)) & (after == copied["sequence"])
        self.lost += int(np.count_nonzero(~good))
        self._records[ring].append(copied[good])

    def threads(self, clock: Clock) -> tuple[list[Thread], list[str]]:
        """The threads with their slices, and descriptions of marks that contradict each other."""
        pid = int(self._area["pid"])
        process = _text(self._area["process"])
        names = self._names()
        found, problems = [], []
        for ring, parts in enumerate(self._records):
            if not parts:
                continue
            header = self._area["ring"][ring]
            thread = Thread(pid, int(header["tid"]), process, _text(header["name"]))
            builder = ThreadBuilder(thread)
            _build(builder, np.concatenate(parts), names, clock, int(self._area["uses_tsc"]))
            if not self.lost:
                problems += builder.problems()
            found.append(thread)
        return found, problems

    def _names(self) -> list[str]:
        # TRUST: the count is bounded by the table's size; layers and phases must be known ones.
        count = min(int(self._area["names"]), recording.NAMES)
        return [
            f"[NN_{_LAYERS[min(int(entry['layer']), len(_LAYERS) - 1)]}"
            f"_{_PHASES[min(int(entry['phase']), len(_PHASES) - 1)]}]{_text(entry['text'])}"
            for entry in self._area["name"][:count]
        ]

    @property
    def dropped(self) -> int:
        """The number of marks of threads that had no ring."""
        return min(int(self._area["dropped"]), 1 << 40)


def _build(
    builder: ThreadBuilder, records: Records, names: list[str], clock: Clock, uses_tsc: int
) -> None:
    ticks = records["time"]
    times = clock.nanoseconds(ticks) if uses_tsc else ticks.astype(np.int64).tolist()
    columns = (records[c].tolist() for c in ("kind", "name", "flags", "argument"))
    for moment, kind, number, flags, argument in zip(times, *columns, strict=True):
        name = names[number] if number < len(names) else "[NN_LO_PU]?"
        flow = argument if flags else 0
        if kind == recording.BEGIN:
            builder.begin(name, moment, flow, leaves=flags == recording.FLOW_OUT)
        elif kind == recording.END:
            builder.end_slice(moment)
        elif kind == recording.SWITCH:
            builder.switch(name, moment, flow, leaves=flags == recording.FLOW_OUT)
        elif kind == recording.INSTANT:
            builder.thread.instants.append(Instant(name, moment))
        elif kind == recording.COUNTER:
            builder.thread.samples.append(Sample(name, moment, argument))
    builder.finish()


def _text(raw: Any) -> str:  # noqa: ANN401 - numpy bytes
    text = bytes(raw).split(b"\0")[0].decode("utf-8", "replace")
    return "".join(mark if mark.isprintable() else "?" for mark in text)


class Collector(Closing):
    """Listens for processes in a directory that only this user sees. A context manager.

    Attributes:
        address: address of the collector, for `NNBURST_TRACE`.
    """

    def __init__(self) -> None:
        """Begin to listen."""
        self._folder = OwnFolder()
        self.address = self._folder.path / "collector.sock"
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._socket.bind(str(self.address))
        self._socket.listen(64)
        self._socket.settimeout(_PERIOD)
        self._sources: list[TracedProcess] = []
        self._clock = Clock()
        self._refused: list[str] = []
        self._ends = threading.Event()
        self._thread = threading.Thread(target=self._collect, name="nnb-collect", daemon=True)
        self._thread.start()

    def _collect(self) -> None:
        due = time.monotonic()
        while not self._ends.is_set():
            try:
                connection, _ = self._socket.accept()
            except TimeoutError:
                pass
            except OSError:
                return
            else:
                with connection:
                    self._admit(connection)
            if time.monotonic() >= due:
                self._drain()
                due = time.monotonic() + _PERIOD

    def _admit(self, connection: socket.socket) -> None:
        connection.settimeout(1.0)
        try:
            if unix_peer(connection).uid != os.geteuid() or len(self._sources) == _MOST_PROCESSES:
                raise InvalidArgument("trace: one process too many, or another user's")  # noqa: TRY301
            _, fds, _ = receive_fds(connection, 64, 1)
            if len(fds) != 1:
                raise InvalidArgument("trace: a process sent no memory")  # noqa: TRY301
            with SharedMemory.adopt(fds[0], recording.BYTES) as memory:
                self._sources.append(TracedProcess(memory.map(writable=False)))
        except (OSError, InvalidArgument) as error:
            self._refused.append(str(error))

    def _drain(self) -> None:
        for source in self._sources:
            source.drain()
        self._clock.take()

    def finish(self) -> Trace:
        """Take the remaining marks, close the collector, and make a trace of everything."""
        self._ends.set()
        self._thread.join()
        self._drain()
        threads: list[Thread] = []
        problems = list(self._refused)
        for source in self._sources:
            found, wrong = source.threads(self._clock)
            threads += found
            problems += wrong
        lost = sum(source.lost + source.dropped for source in self._sources)
        self.close()
        return Trace(threads, lost, problems)

    def close(self) -> None:
        """Stop listening; twice is fine."""
        self._ends.set()
        if self._thread.is_alive():
            self._thread.join()
        self._socket.close()
        self._folder.close()
