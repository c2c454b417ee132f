"""Mutates .tflite and ONNX files and checks that each is run or refused."""

from __future__ import annotations

import signal
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from types import FrameType
from typing import Final

import numpy as np
from msgspec.structs import replace

from nnburst.client.connect import connect
from nnburst.client.device import Device
from nnburst.client.prepared_model import PreparedModel
from nnburst.executor.operations import SIGNATURES
from nnburst.formats.onnx_model import read_model
from nnburst.formats.tflite_graph import read_graph
from nnburst.hal.errors import (
    DeadObject,
    DeviceUnavailable,
    InvalidArgument,
    MissedDeadline,
    NnburstError,
)
from nnburst.hal.validation import validate_model
from nnburst.importer.imported_model import ImportedModel
from nnburst.importer.load import load
from nnburst.testing.driver_under_test import DriverUnderTest
from nnburst.testing.faults.footprint import resident_bytes

#: Limits for importing a file: memory by its size, a fixed part of memory, and seconds.
MEMORY_PER_BYTE: Final = 16
MEMORY_AT_LEAST: Final = 64 * 2**20
SECONDS: Final = 10.0

_MOST_FAILURES: Final = 20
_NUMBERS: Final = (0, 1, 2, 4, 127, 255, 2**15, 2**16, 2**31 - 1, 2**31, 2**32 - 4, 2**32 - 1)

Mutation = Callable[[bytearray, Random], None]


@dataclass(slots=True)
class ImporterFuzzReport:
    """The results of fuzzing the importer.

    Attributes:
        files: number of files read.
        outcomes: number of files imported, refused by the importer, or refused by validation afterwards.
        failures: the first forbidden outcomes, each with the number of the file.
        slowest: seconds of the slowest file.
        largest: the most bytes of memory that importing one file took.
    """

    files: int = 0
    outcomes: Counter[str] = field(default_factory=Counter)
    failures: list[str] = field(default_factory=list)
    slowest: float = 0.0
    largest: int = 0


def fuzz_importer(
    files: Sequence[bytes],
    count: int,
    seed: int = 0,
    progress: Callable[[int], None] = lambda _done: None,
) -> ImporterFuzzReport:
    """Import `count` mutations of `files`. Only in the main thread: an alarm ends an import that hangs.

    Args:
        files: intact files.
        count: number of mutations.
        seed: file `number` of a run depends on it and on its number only.
        progress: called with 1 after each.
    """
    report = ImporterFuzzReport()
    for number in range(count):
        content = mutated(files, Random(f"{seed}/{number}"))  # noqa: S311 - not for secrets
        began, before = time.monotonic(), _start_of_peak()
        outcome = _import_outcome(content)
        growth = _status("VmHWM") - before
        seconds = time.monotonic() - began
        allowed = MEMORY_PER_BYTE * len(content) + MEMORY_AT_LEAST
        if growth > allowed:
            outcome = f"{growth} bytes for a file of {len(content)}"
        if outcome not in ("imported", "refused", "invalid"):
            if len(report.failures) < _MOST_FAILURES:
                report.failures.append(f"file {number}: {outcome}")
            outcome = "failed"
        report.files += 1
        report.outcomes[outcome] += 1
        report.slowest, report.largest = max(report.slowest, seconds), max(report.largest, growth)
        progress(1)
    return report


def _import_outcome(content: bytes) -> str:
    """Import one file; any other exception than InvalidArgument is a failure."""
    try:
        with _time_limit(SECONDS):
            imported = load(content)
    except InvalidArgument:
        return "refused"
    except BaseException as error:
        if isinstance(error, KeyboardInterrupt):
            raise
        return f"{type(error).__name__}: {error}"
    try:
        validate_model(imported.model, SIGNATURES)
    except InvalidArgument:
        return "invalid"
    return "imported"


class _TooSlow(Exception):
    """An import took longer than it may."""


@contextmanager
def _time_limit(seconds: float) -> Iterator[None]:
    def ring(_signal: int, _frame: FrameType | None) -> None:
        raise _TooSlow(f"not done after {seconds} s")

    previous = signal.signal(signal.SIGALRM, ring)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, previous)


def _start_of_peak() -> int:
    """Reset the kernel's peak of resident memory to the present value; returns that value in bytes."""
    Path("/proc/self/clear_refs").write_text("5", encoding="ascii")
    return _status("VmRSS")


def _status(name: str) -> int:
    """Read a number of /proc/self/status, in bytes."""
    with Path("/proc/self/status").open(encoding="ascii", errors="replace") as lines:
        for line in lines:
            if line.startswith(f"{name}:"):
                return int(line.split()[1]) * 1024
    raise OSError(f"/proc/self/status has no {name}")


#: Bytes of the smallest file that is mutated; mutations read numbers of up to 4 bytes.
LEAST_BYTES: Final = 16


def mutated(files: Sequence[bytes], random: Random) -> bytes:
    """Mutate one of the files one to eight times."""
    content = bytearray(random.choice(files))
    for _ in range(random.choice((1, 1, 1, 2, 3, 8))):
        random.choice(_MUTATIONS)(content, random)
        if len(content) < LEAST_BYTES:
            break
    return bytes(content)


def _flip_bit(content: bytearray, random: Random) -> None:
    content[random.randrange(len(content))] ^= 1 << random.randrange(8)


def _set_byte(content: bytearray, random: Random) -> None:
    content[random.randrange(len(content))] = random.randrange(256)


def _set_number(content: bytearray, random: Random) -> None:
    """Set an aligned 32-bit number to an extreme, to the file's size, or to slightly more or less."""
    at = random.randrange(len(content) // 4) * 4
    old = int.from_bytes(content[at : at + 4], "little")
    near = random.choice((-64, -8, -4, -1, 1, 4, 8, 64)) + old
    new = random.choice((*_NUMBERS, len(content), near, near, near))
    content[at : at + 4] = (new & 0xFFFFFFFF).to_bytes(4, "little")


def _set_half(content: bytearray, random: Random) -> None:
    """Set an aligned 16-bit number, as in a table of fields, to a small even one."""
    at = random.randrange(len(content) // 2) * 2
    content[at : at + 2] = (2 * random.randrange(64)).to_bytes(2, "little")


def _point_elsewhere(content: bytearray, random: Random) -> None:
    """Point an offset to another aligned position behind it."""
    at = random.randrange(len(content) // 4) * 4
    target = random.randrange(at, len(content)) & ~3
    content[at : at + 4] = (target - at).to_bytes(4, "little")


def _repeat_number(content: bytearray, random: Random) -> None:
    """Copy a number over those behind it, which makes vectors of equal entries."""
    at = random.randrange(len(content) // 4) * 4
    count = min(random.choice((1, 4, 64)), (len(content) - at) // 4)
    content[at : at + 4 * count] = content[at : at + 4] * count


def _copy_part(content: bytearray, random: Random) -> None:
    length = random.choice((4, 8, 32, 256))
    source, target = (random.randrange(len(content)) & ~3 for _ in range(2))
    part = content[source : source + length]
    content[target : target + len(part)] = part


def _truncate(content: bytearray, random: Random) -> None:
    del content[random.randrange(len(content)) :]


def _cut_out(content: bytearray, random: Random) -> None:
    at = random.randrange(len(content))
    del content[at : at + random.choice((1, 4, 16))]


_MUTATIONS: Final[tuple[Mutation, ...]] = (
    _flip_bit,
    _set_byte,
    _set_number,
    _set_number,
    _set_half,
    _point_elsewhere,
    _repeat_number,
    _copy_part,
    _truncate,
    _cut_out,
)


# -- Whole ONNX graphs through a driver, which must keep running -----------------------------------
# The client library reads a file before it sends the file, and would refuse most mutations. A hostile client
# does not: here an intact file's description is sent with the mutated file's bytes.


#: Seconds that a driver may take to prepare or run a graph before the client gives up.
_PATIENCE: Final = 20.0
#: Graphs after which a client is replaced with a new one.
_OF_ONE_CLIENT: Final = 200
#: Failures after which a campaign stops, since further ones add nothing.
_ENOUGH: Final = 20


@dataclass(slots=True)
class GraphFuzzReport:
    """The results of fuzzing a driver with graphs.

    Attributes:
        graphs: number of graphs sent.
        outcomes: number of graphs that ran, were refused, failed, took too long, or ended their worker, which
            the engine may do since the worker has one client.
        failures: the first forbidden outcomes, each with the number of the graph.
        worker_ends: numbers of the first graphs that ended their worker.
        supervisor_growth: bytes by which the supervisor grew.
    """

    graphs: int = 0
    outcomes: Counter[str] = field(default_factory=Counter)
    failures: list[str] = field(default_factory=list)
    worker_ends: list[int] = field(default_factory=list)
    supervisor_growth: int = 0


#: The reader of each format of whole graphs.
_READERS: Final = {"ONNX": read_model, "TFLite": read_graph}


def check_format(content: bytes, kind: str) -> None:
    """Refuse a file that is not of a format, "ONNX" or "TFLite".

    Raises:
        InvalidArgument: the file is not an intact network in this format.
    """
    _READERS[kind](content)


def fuzz_graphs(
    files: Sequence[bytes],
    count: int,
    seed: int = 0,
    progress: Callable[[int], None] = lambda _done: None,
    *,
    executor: str = "onnxruntime",
    first: int = 0,
) -> GraphFuzzReport:
    """Send mutations of `files` to a driver as whole graphs, each prepared and run once.

    Args:
        files: intact .onnx files that need no other files; for the executor `litert` .tflite files.
        count: number of mutations.
        seed: graph `number` of a run depends on it and on its number only.
        progress: called with 1 after each.
        executor: the driver's executor.
        first: number of the first graph.

    Raises:
        NnburstError: the driver does not start.
        InvalidArgument: a file is not intact.
    """
    intact = [load(content, as_graph=True) for content in files]
    report = GraphFuzzReport()
    with DriverUnderTest.start(executor) as driver:
        before = resident_bytes(driver.pid or 0)
        clients = _Clients(driver.address)
        for number in range(first, first + count):
            random = Random(f"{seed}/{number}")  # noqa: S311 - not for secrets
            imported = random.choice(intact)
            graph = with_content(imported, mutated([imported.pools[0].tobytes()], random))
            outcome = _graph_outcome(clients, graph)
            if outcome not in _EXPECTED:
                report.failures.append(f"graph {number}: {outcome}")
                outcome = "failed"
            elif outcome == _ENDED and len(report.worker_ends) < _ENOUGH:
                report.worker_ends.append(number)
            report.outcomes[outcome] += 1
            report.graphs += 1
            progress(1)
            if len(report.failures) >= _ENOUGH:
                break
        clients.release()
        report.supervisor_growth = max(resident_bytes(driver.pid or 0) - before, 0)
    return report


def with_content(imported: ImportedModel, content: bytes) -> ImportedModel:
    """Replace the file in a whole graph's description."""
    operands = list(imported.model.main.operands)
    location = replace(operands[0].location, length=len(content))
    operands[0] = replace(operands[0], dimensions=(len(content),), location=location)
    main = replace(imported.model.main, operands=tuple(operands))
    file = np.frombuffer(content, np.uint8)
    return ImportedModel(replace(imported.model, main=main), (file, *imported.pools[1:]))


_RUN, _REFUSED, _FAILED, _LATE, _ENDED = "run", "refused", "not run", "too late", "worker ended"
_EXPECTED: Final = (_RUN, _REFUSED, _FAILED, _LATE, _ENDED)


class _Clients:
    """One client at a time, replaced after it has lost its worker or sent its share of graphs."""

    def __init__(self, address: str) -> None:
        self._address = address
        self._device: Device | None = None
        self._served = 0

    def next(self) -> Device:
        """The client for the next graph."""
        if self._served >= _OF_ONE_CLIENT:
            self.release()
        if self._device is None:
            self._device, self._served = connect(self._address), 0
        self._served += 1
        return self._device

    def release(self) -> None:
        """Close the present client; the next graph gets a new one."""
        device, self._device = self._device, None
        if device is not None:
            with suppress(NnburstError):
                device.close()


def _graph_outcome(clients: _Clients, graph: ImportedModel) -> str:
    try:
        device = clients.next()
    except NnburstError as error:
        return f"the driver takes no client any more: {error!r}"
    try:
        with device.prepare(graph, timeout=_PATIENCE) as prepared:
            return _run(prepared)
    except MissedDeadline:
        clients.release()
        return _LATE
    except (DeadObject, DeviceUnavailable):
        clients.release()
        return _ENDED
    except NnburstError:
        return _REFUSED
    except Exception as error:
        clients.release()
        return repr(error)


def _run(prepared: PreparedModel) -> str:
    """Run once, on zeros with the intact file's extents; open extents are 1."""
    values = [np.zeros([n or 1 for n in each.dimensions], each.dtype) for each in prepared.inputs]
    try:
        prepared.execute(values, timeout=_PATIENCE)
    except (MissedDeadline, DeadObject, DeviceUnavailable):
        raise
    except NnburstError:
        return _FAILED
    return _RUN
