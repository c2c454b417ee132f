"""One client of a stress test, as a process: `python -m nnburst.testing.stress.client ADDRESS …`."""

from __future__ import annotations

import json
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
from nnburst.hal.enums import OperandType
from nnburst.hal.errors import DeadObject, MissedDeadline, NnburstError, ResourceExhausted
from nnburst.importer.imported_model import ImportedModel
from nnburst.importer.load import load
from nnburst.testing.conformance.vectors import build
from nnburst.testing.faults.activities import sum_model, summands
from nnburst.testing.models.random_graphs import generate
from nnburst.testing.models.random_graphs.as_vector import as_vector
from nnburst.testing.stress.profiles import GRAPHS, LOADING

#: Seconds after which a call counts as a hang.
PATIENCE: Final = 30.0
SUCCESS, REFUSED, FAILURE, CRASH, HANG, WRONG = (
    "success", "refused", "failure", "crash", "hang", "wrong result",
)  # fmt: skip
#: What must not happen.
BAD: Final = (FAILURE, CRASH, HANG, WRONG)


class WrongAnswer(Exception):
    """The same inputs gave other bits than before."""


class Network:
    """A network with inputs, whose results stay the same."""

    def __init__(self, path: str = "") -> None:
        """Read a file, or add two tensors."""
        self.model: Any = load(Path(path)) if path else sum_model()
        main = (self.model.model if isinstance(self.model, ImportedModel) else self.model).main
        random = np.random.default_rng(7)
        self.inputs: list[Any] = summands(1.0)
        if path:
            from nnburst.hal.operand_types import DTYPES

            self.inputs = [
                random.integers(0, 2, o.dimensions).astype(DTYPES[OperandType(o.type)])
                for o in (main.operands[i] for i in main.input_indexes)
            ]
        self._expected: list[Any] | None = None

    def check(self, outputs: list[Any]) -> None:
        """Compare with the first results.

        Raises:
            WrongAnswer: they differ.
        """
        if self._expected is None:
            self._expected = [np.array(output) for output in outputs]
        pairs = zip(outputs, self._expected, strict=True)
        if not all(np.array_equal(mine, first, equal_nan=True) for mine, first in pairs):
            raise WrongAnswer


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


def graphs(device: Device, number: int, until: float, note: Callable[[str], None]) -> None:
    """Random graphs that the device supports."""
    seed = 1000 * number
    while time.monotonic() < until:
        seed += 1
        size = ("small", "large")[seed % 2]
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
            inputs = [vector.array_of(operand) for operand in vector.inputs]
            prepared.execute(inputs, timeout=PATIENCE)
        note(SUCCESS)


def outcome_of(error: BaseException) -> str:
    """What an error counts as."""
    if isinstance(error, WrongAnswer):
        return WRONG
    if isinstance(error, DeadObject):
        return CRASH
    if isinstance(error, MissedDeadline):
        return HANG
    return REFUSED if isinstance(error, ResourceExhausted) else FAILURE


def run(address: str, work: str, threads: int, seconds: float, path: str) -> dict[str, Any]:
    """Let the threads work, and count."""
    counts: Counter[str] = Counter()
    messages: list[str] = []
    network = Network(path)
    with connect(address, timeout=PATIENCE) as device:
        until = time.monotonic() + seconds

        def one(number: int) -> None:
            mine: Counter[str] = Counter()

            def note(outcome: str) -> None:
                mine[outcome] += 1

            while time.monotonic() < until:
                try:
                    if work == GRAPHS:
                        graphs(device, number, until, note)
                    else:
                        (load_again if work == LOADING else infer)(device, network, until, note)
                except (NnburstError, WrongAnswer) as error:
                    note(outcome_of(error))
                    messages.append(f"{type(error).__name__}: {error}"[:300])
                    if isinstance(error, DeadObject):
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
