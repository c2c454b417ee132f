"""One client of a stress test, as a process: `python -m nnburst.testing.stress.client ADDRESS …`."""

from __future__ import annotations

import json
import os
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import numpy as np

from nnburst.client.connect import connect
from nnburst.client.device import Device
from nnburst.client.memory.memory import Memory
from nnburst.hal.enums import OperandLifeTime, OperandType, OperationType
from nnburst.hal.errors import DeadObject, NnburstError
from nnburst.hal.model import DataLocation, Model, Operand
from nnburst.hal.model_builder import ModelBuilder
from nnburst.importer.load import load
from nnburst.testing.conformance.vectors import build
from nnburst.testing.models.random_graphs import generate
from nnburst.testing.models.random_graphs.as_vector import as_vector
from nnburst.testing.stress.degradation import degrade
from nnburst.testing.stress.network import (
    FAILURE,
    PATIENCE,
    REFUSED,
    SUCCESS,
    Network,
    WrongAnswer,
    message_of,
    outcome_of,
)
from nnburst.testing.stress.profiles import (
    DEGRADATION,
    GRAPHS,
    GRAPHS_LOADED,
    INFERENCE,
    LOADING,
    MAPPED,
)

#: float32 elements of the constants that are mapped anew: two pages.
_TERMS: Final = 2048


def infer(device: Device, network: Network, until: float, note: Callable[[str], None]) -> None:
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


def load_again(device: Device, network: Network, until: float, note: Callable[[str], None]) -> None:
    """Prepare, and execute once."""
    while time.monotonic() < until:
        with device.prepare(network.model, timeout=PATIENCE) as prepared:
            network.check(prepared.execute(network.inputs, timeout=PATIENCE).outputs)
        note(SUCCESS)


def map_again(device: Device, network: Network, until: float, note: Callable[[str], None]) -> None:
    """Prepare a model whose constants lie in memory that is mapped anew each time, and execute once.

    A file is read anew. Other memory goes before its model does, as what was mapped of a file may.
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
    """The sum of an input and constants in the first pool."""
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
    """Random graphs that the device supports, prepared and perhaps executed."""
    seed = 1000 * number
    while time.monotonic() < until:
        seed += 1
        vector = as_vector(generate(size, OperandType.TENSOR_FLOAT32, seed))
        built = build(vector)
        pools = []
        for content in built.pools:
            pool = device.allocate(max(1, len(content)))
            np.asarray(pool)[: len(content)] = np.frombuffer(content, np.uint8)
            pools.append(pool)
        if not all(device.supported_operations(built.model, pools=pools, timeout=PATIENCE)):
            note(REFUSED)
            continue
        with device.prepare(built.model, pools=pools, timeout=PATIENCE) as prepared:
            if executed:
                inputs = [vector.array_of(operand) for operand in vector.inputs]
                prepared.execute(inputs, timeout=PATIENCE)
        note(SUCCESS)


def _work_of(work: str) -> Callable[[Device, Network, int, float, Callable[[str], None]], None]:
    """What a thread does: with a device, a network, its own number, until when, and what notes outcomes."""
    if work in GRAPHS or work in GRAPHS_LOADED:
        size = {**GRAPHS, **GRAPHS_LOADED}[work]
        executed = work in GRAPHS
        return lambda device, _, number, until, note: graphs(
            device, size, number, until, note, executed=executed
        )
    plain = {INFERENCE: infer, LOADING: load_again, MAPPED: map_again}[work]
    return lambda device, network, _, until, note: plain(device, network, until, note)


def degrade_once(address: str, seconds: float, path: str) -> dict[str, Any]:
    """Execute alone and beside preparations, and count."""
    try:
        found = degrade(address, Network(path), seconds)
    except (NnburstError, WrongAnswer) as error:
        return {"counts": {outcome_of(error): 1}, "messages": [message_of(error)]}
    outcome = FAILURE if found.failed else SUCCESS
    return {"counts": {outcome: 1}, "messages": [str(found)]}


def run(address: str, work: str, threads: int, seconds: float, path: str) -> dict[str, Any]:
    """Let the threads work, and count."""
    if work == DEGRADATION:
        return degrade_once(address, seconds, path)
    counts: Counter[str] = Counter()
    messages: list[str] = []
    network = Network(path)
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
