"""Runs one client of a stress test, as a process of its own."""

from __future__ import annotations

import json
import os
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np

from nnburst.client.connect import connect
from nnburst.client.device import Device
from nnburst.client.memory import Memory
from nnburst.client.prepared_model import PreparedModel
from nnburst.hal.enums import OperandLifeTime, OperandType, OperationType
from nnburst.hal.errors import DeadObject, NnburstError
from nnburst.hal.model import DataLocation, Model, Operand
from nnburst.hal.model_builder import ModelBuilder
from nnburst.importer.load import load
from nnburst.testing.conformance.runners import allocate_pools
from nnburst.testing.conformance.vectors import build
from nnburst.testing.load.stress import (
    DEGRADATION,
    FAILURE,
    GRAPHS,
    GRAPHS_LOADED,
    INFERENCE,
    LOADING,
    MAPPED,
    PATIENCE,
    REFUSED,
    SUCCESS,
    StressNetwork,
    WrongAnswer,
    message_of,
    outcome_of,
)
from nnburst.testing.models.random_graphs import generate
from nnburst.testing.models.random_graphs.graphs import as_vector

#: Seconds from one preparation's start to the next, of a block of executions, and before the first block.
_EVERY: Final = 0.02
_BLOCK: Final = 0.25
_WARM_UP: Final = 0.5
#: The most by which executions may slow down, and by which ratios of blocks may spread, as shares.
MOST: Final = 0.50
_MOST_SPREAD: Final = 0.20
#: The fewest pairs of blocks for a meaningful median.
_FEWEST: Final = 7


@dataclass(frozen=True, slots=True)
class Degradation:
    """The slowdown of executions beside preparations.

    Attributes:
        slower: median of the additional time of executions beside preparations, as a share.
        spread: range of the pairs' ratios from the first to the third quartile, as a share of the median.
        pairs: number of blocks alone, and of blocks beside preparations.
        preparations: number of preparations.
    """

    slower: float
    spread: float
    pairs: int
    preparations: int

    @property
    def noisy(self) -> bool:
        """Whether the measurements allow no verdict."""
        return self.pairs < _FEWEST or self.spread > _MOST_SPREAD

    @property
    def failed(self) -> bool:
        """Whether executions slowed down by more than `MOST`."""
        return not self.noisy and self.slower > MOST

    def __str__(self) -> str:
        """The degradation in words."""
        verdict = "noisy" if self.noisy else f"at most {MOST:+.0%} expected"
        return (
            f"executions took {self.slower:+.0%} beside {self.preparations} preparations"
            f" (pairs of blocks spread by {self.spread:.0%}: {verdict})"
        )


def of_ratios(ratios: list[float], preparations: int) -> Degradation:
    """The degradation from ratios of times of blocks: beside preparations to alone."""
    low, middle, high = np.percentile(ratios, [25, 50, 75])
    return Degradation(float(middle) - 1, float((high - low) / middle), len(ratios), preparations)


def degrade(address: str, network: StressNetwork, seconds: float) -> Degradation:
    """Execute in blocks, alternately alone and beside another client that prepares every 20 ms.

    Raises:
        NnburstError: a call failed.
        WrongAnswer: a result differs from the first ones.
    """
    ratios: list[float] = []
    with (
        _preparing(address) as beside,
        connect(address, timeout=PATIENCE) as device,
        device.prepare(network.model, timeout=PATIENCE) as prepared,
    ):
        until = time.monotonic() + seconds
        _block(prepared, network, min(_WARM_UP, seconds / 4))
        while not ratios or time.monotonic() < until:
            alone = _block(prepared, network, _BLOCK)
            with beside.at_work():
                ratios.append(_block(prepared, network, _BLOCK) / alone)
    return of_ratios(ratios, beside.preparations)


class _Preparer:
    """A thread that prepares models while `at_work` is entered, over a connection of its own."""

    def __init__(self, address: str) -> None:
        self.preparations = 0
        self._address = address
        self._ready = threading.Event()
        self._let = threading.Event()
        self._done = threading.Event()
        self._failure: BaseException | None = None
        self._thread = threading.Thread(target=self._run, name="stress preparations")

    def start(self) -> None:
        """Start and wait for the connection, so that starting does not disturb a block."""
        self._thread.start()
        self._ready.wait()

    def close(self) -> None:
        self._done.set()
        self._let.set()
        self._thread.join()

    @contextmanager
    def at_work(self) -> Iterator[None]:
        """Prepare models during the `with` block.

        Raises:
            NnburstError: a preparation failed.
        """
        self._let.set()
        try:
            yield
        finally:
            self._let.clear()
        if self._failure is not None:
            raise self._failure

    def _run(self) -> None:
        network = StressNetwork()
        try:
            with connect(self._address, timeout=PATIENCE) as device:
                self._ready.set()
                while self._let.wait() and not self._done.is_set():
                    next_one = time.monotonic() + _EVERY
                    device.prepare(network.model, timeout=PATIENCE).close()
                    self.preparations += 1
                    self._done.wait(max(0.0, next_one - time.monotonic()))
        except Exception as error:
            self._failure = error
        finally:
            self._ready.set()


@contextmanager
def _preparing(address: str) -> Iterator[_Preparer]:
    beside = _Preparer(address)
    beside.start()
    try:
        yield beside
    finally:
        beside.close()


def _block(prepared: PreparedModel, network: StressNetwork, seconds: float) -> float:
    """Execute over a burst for `seconds`; the mean time of an execution in seconds."""
    count = 0
    with prepared.open_burst() as burst:
        network.check(burst.execute(network.inputs, timeout=PATIENCE).outputs)
        began = time.monotonic()
        while (passed := time.monotonic() - began) < seconds or not count:
            network.check(burst.execute(network.inputs, timeout=PATIENCE).outputs)
            count += 1
    return passed / count


# -- The client ------------------------------------------------------------------------------------


#: float32 elements of the constants that are mapped again each time: two pages.
_TERMS: Final = 2048


def infer(
    device: Device, network: StressNetwork, until: float, note: Callable[[str], None]
) -> None:
    """Execute over a burst."""
    with (
        device.prepare(network.model, timeout=PATIENCE) as prepared,
        prepared.open_burst() as burst,
    ):
        while True:
            network.check(burst.execute(network.inputs, timeout=PATIENCE).outputs)
            note(SUCCESS)
            if time.monotonic() >= until:
                return


def load_again(
    device: Device, network: StressNetwork, until: float, note: Callable[[str], None]
) -> None:
    """Repeat: prepare, and execute once."""
    while time.monotonic() < until:
        with device.prepare(network.model, timeout=PATIENCE) as prepared:
            network.check(prepared.execute(network.inputs, timeout=PATIENCE).outputs)
        note(SUCCESS)


def map_again(
    device: Device, network: StressNetwork, until: float, note: Callable[[str], None]
) -> None:
    """Repeat: prepare a model whose constants are in newly mapped memory, and execute once.

    A file is read again each time. Other memory is closed before its model, as a client may close a mapping.
    """
    while network.path and time.monotonic() < until:
        with device.prepare(load(Path(network.path)), timeout=PATIENCE) as prepared:
            network.check(prepared.execute(network.inputs, timeout=PATIENCE).outputs)
        note(SUCCESS)
    model = _model_with_pool()
    terms = np.arange(_TERMS, dtype=np.float32)
    while time.monotonic() < until:
        fd = os.memfd_create("stress", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
        try:
            os.write(fd, terms.tobytes())
            memory = Memory.from_fd(fd, seal=True)
        finally:
            os.close(fd)
        with memory:
            if not all(device.supported_operations(model, pools=[memory], timeout=PATIENCE)):
                note(REFUSED)
                return
            prepared = device.prepare(model, pools=[memory], timeout=PATIENCE)
        with prepared:
            (found,) = prepared.execute([np.ones_like(terms)], timeout=PATIENCE).outputs
        if not np.array_equal(found, terms + 1):
            raise WrongAnswer
        note(SUCCESS)


def _model_with_pool() -> Model:
    """A model of the sum of an input and constants in the first pool."""
    shape = (_TERMS,)
    builder = ModelBuilder()
    given = builder.input(OperandType.TENSOR_FLOAT32, shape)
    terms = builder.operand(
        Operand(
            OperandType.TENSOR_FLOAT32,
            shape,
            lifetime=OperandLifeTime.CONSTANT_REFERENCE,
            location=DataLocation(0, 0, 4 * _TERMS),
        )
    )
    total = builder.output(OperandType.TENSOR_FLOAT32, shape)
    builder.operation(OperationType.ADD, [given, terms, builder.scalar(0)], [total])
    return builder.build()


def graphs(
    device: Device,
    size: str,
    number: int,
    until: float,
    note: Callable[[str], None],
    *,
    executed: bool,
) -> None:
    """Prepare random graphs that the device supports, and execute them if `executed`."""
    seed = 1000 * number
    while time.monotonic() < until:
        seed += 1
        vector = as_vector(generate(size, OperandType.TENSOR_FLOAT32, seed))
        built = build(vector)
        pools = allocate_pools(device, built.pools)
        if not all(device.supported_operations(built.model, pools=pools, timeout=PATIENCE)):
            note(REFUSED)
            continue
        with device.prepare(built.model, pools=pools, timeout=PATIENCE) as prepared:
            if executed:
                inputs = [vector.array_of(operand) for operand in vector.inputs]
                prepared.execute(inputs, timeout=PATIENCE)
        note(SUCCESS)


def _work_of(
    work: str,
) -> Callable[[Device, StressNetwork, int, float, Callable[[str], None]], None]:
    """The function that a thread runs, with a device, network, number, end and recorder as arguments."""
    if work in GRAPHS or work in GRAPHS_LOADED:
        size = {**GRAPHS, **GRAPHS_LOADED}[work]
        executed = work in GRAPHS
        return lambda device, _, number, until, note: graphs(
            device, size, number, until, note, executed=executed
        )
    plain = {INFERENCE: infer, LOADING: load_again, MAPPED: map_again}[work]
    return lambda device, network, _, until, note: plain(device, network, until, note)


def degrade_once(address: str, seconds: float, path: str) -> dict[str, Any]:
    """Execute alone and beside preparations, and report the degradation."""
    try:
        found = degrade(address, StressNetwork(path), seconds)
    except (NnburstError, WrongAnswer) as error:
        return {"counts": {outcome_of(error): 1}, "messages": [message_of(error)]}
    outcome = FAILURE if found.failed else SUCCESS
    return {"counts": {outcome: 1}, "messages": [str(found)]}


def run(address: str, work: str, threads: int, seconds: float, path: str) -> dict[str, Any]:
    """Run the work in threads, and report the outcomes."""
    if work == DEGRADATION:
        return degrade_once(address, seconds, path)
    counts: Counter[str] = Counter()
    messages: list[str] = []
    network = StressNetwork(path)
    do = _work_of(work)
    with connect(address, timeout=PATIENCE) as device:
        until = time.monotonic() + seconds

        def one(number: int) -> None:
            mine: Counter[str] = Counter()

            def note(outcome: str) -> None:
                mine[outcome] += 1

            while time.monotonic() < until:
                try:
                    do(device, network, number, until, note)
                except Exception as error:
                    note(outcome_of(error))
                    messages.append(message_of(error))
                    of_a_call = isinstance(error, NnburstError | WrongAnswer)
                    if isinstance(error, DeadObject) or not of_a_call:
                        break
            counts.update(mine)

        workers = [threading.Thread(target=one, args=(n,)) for n in range(threads)]
        for worker in workers:
            worker.start()
        for worker in workers:
            worker.join()
    return {"counts": dict(counts), "messages": messages[:5]}


if __name__ == "__main__":
    where, what, width, length, file = sys.argv[1:6]
    sys.stdout.write(json.dumps(run(where, what, int(width), float(length), file)))
