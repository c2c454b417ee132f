"""Mutated ONNX files as whole graphs through a driver: each is refused or run, and the driver lives on.

A client's library reads a file before it hands it over and would refuse most mutations. A hostile client has
no such library: here an intact file's description is sent with the mutated file's bytes.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from random import Random
from typing import Final

import numpy as np
from msgspec.structs import replace

from nnburst.client.connect import connect
from nnburst.client.device import Device
from nnburst.client.prepared_model import PreparedModel
from nnburst.hal.errors import DeadObject, DeviceUnavailable, MissedDeadline, NnburstError
from nnburst.importer.imported_model import ImportedModel
from nnburst.importer.load import load
from nnburst.testing.driver_under_test import DriverUnderTest
from nnburst.testing.faults.footprint import resident_bytes
from nnburst.testing.fuzzing.importer_fuzzer import mutated

#: Seconds that a driver may take to prepare a graph or to run it; then its client gives up.
_PATIENCE: Final = 20.0
#: Graphs after which a client is closed and another one comes.
_OF_ONE_CLIENT: Final = 200
#: Failures after which a campaign stops: more of them add nothing.
_ENOUGH: Final = 20


@dataclass(slots=True)
class GraphFuzzReport:
    """What happened.

    Attributes:
        graphs: how many were sent.
        outcomes: how many were run, refused when prepared, failed when run, took too long, or ended their
            client's worker, which the engine may do: the worker has one client.
        failures: what must not happen, with the number of the graph: the first of them.
        worker_ends: numbers of the graphs that ended their worker: the first of them.
        supervisor_growth: bytes by which the supervisor grew.
    """

    graphs: int = 0
    outcomes: Counter[str] = field(default_factory=Counter)
    failures: list[str] = field(default_factory=list)
    worker_ends: list[int] = field(default_factory=list)
    supervisor_growth: int = 0


def fuzz_graphs(
    files: Sequence[bytes],
    count: int,
    seed: int = 0,
    progress: Callable[[int], None] = lambda _done: None,
    *,
    first: int = 0,
) -> GraphFuzzReport:
    """Send mutations of `files` to a driver of the executor `onnxruntime`, each prepared and run once.

    Args:
        files: intact .onnx files that need no other files.
        count: how many mutations.
        seed: graph `number` of a run depends on it and on its number only.
        progress: called with 1 after each.
        first: number of the first graph.

    Raises:
        NnburstError: there is no such driver.
        InvalidArgument: a file is not intact.
    """
    intact = [load(content, as_graph=True) for content in files]
    report = GraphFuzzReport()
    with DriverUnderTest.start("onnxruntime") as driver:
        before = resident_bytes(driver.pid or 0)
        clients = _Clients(driver.address)
        for number in range(first, first + count):
            random = Random(f"{seed}/{number}")  # noqa: S311 - not for secrets
            imported = random.choice(intact)
            graph = with_content(imported, mutated([imported.pools[0].tobytes()], random))
            outcome = _outcome(clients, graph)
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
    """The description of a whole graph with other bytes as its file."""
    operands = list(imported.model.main.operands)
    location = replace(operands[0].location, length=len(content))
    operands[0] = replace(operands[0], dimensions=(len(content),), location=location)
    main = replace(imported.model.main, operands=tuple(operands))
    file = np.frombuffer(content, np.uint8)
    return ImportedModel(replace(imported.model, main=main), (file, *imported.pools[1:]))


_RUN, _REFUSED, _FAILED, _LATE, _ENDED = "run", "refused", "not run", "too late", "worker ended"
_EXPECTED: Final = (_RUN, _REFUSED, _FAILED, _LATE, _ENDED)


class _Clients:
    """A client at a time: another one after each that lost its worker, or had its share."""

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
        """Close the client that there is; another one comes with the next graph."""
        device, self._device = self._device, None
        if device is not None:
            with suppress(NnburstError):
                device.close()


def _outcome(clients: _Clients, graph: ImportedModel) -> str:
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
    """Once, on zeros of the extents that the intact file has, ones for those that it leaves open."""
    values = [np.zeros([n or 1 for n in each.dimensions], each.dtype) for each in prepared.inputs]
    try:
        prepared.execute(values, timeout=_PATIENCE)
    except (MissedDeadline, DeadObject, DeviceUnavailable):
        raise
    except NnburstError:
        return _FAILED
    return _RUN
