"""Measures the steps before the first execution: connecting, preparing, opening and binding."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

import numpy as np

from nnburst.bench.cases import Contestant, Looped, Samples
from nnburst.bench.other_transports import fork
from nnburst.client.burst.interface import Burst
from nnburst.client.connect import connect
from nnburst.client.device import Device
from nnburst.hal.enums import OperandType, OperationType
from nnburst.hal.errors import DeviceUnavailable
from nnburst.hal.model import Model
from nnburst.hal.model_builder import ModelBuilder
from nnburst.hal.utils import Closing

#: float32 weights of a network of 54 kB.
_WEIGHTS: Final = 13_500
#: Seconds in which any driver answers.
_PATIENCE: Final = 30.0
_STEP: Final = 0.01
#: Seconds between a client's end and the next client.
_REST: Final = 0.03


@contextmanager
def served_driver(core: int) -> Iterator[Path]:
    """The address of a driver that serves the null executor on one core."""
    with TemporaryDirectory(prefix="nnburst-bench-") as folder:
        address = Path(folder, "bench.sock")
        words = ["--executor", "null", "--serve", str(address), "--cpus", str(core)]
        command = [sys.executable, "-m", "nnburst.driver", *words]
        process = subprocess.Popen(command, stdout=subprocess.DEVNULL)  # noqa: S603 - our own driver
        try:
            _until_served(address)
            yield address
        finally:
            process.terminate()
            process.wait(_PATIENCE)


def _until_served(address: Path) -> None:
    deadline = time.monotonic() + _PATIENCE
    while True:
        try:
            connect(address).close()
        except DeviceUnavailable:
            if time.monotonic() > deadline:
                raise
            time.sleep(_STEP)
        else:
            return


def opening_cases(stack: ExitStack, core: int) -> Sequence[Contestant]:
    """One of each, closed again, beside a fork; each is called once before its blocks."""
    address = stack.enter_context(served_driver(core))
    device = stack.enter_context(connect(address))
    model = _model_with_weights()
    prepared = stack.enter_context(device.prepare(model))

    def open_and_bind() -> Burst:
        burst = prepared.open_burst()
        burst.bind()
        return burst

    return [
        Looped("fork", fork, warm_up=1),
        # A client that comes alone: the driver had time to get ready for it.
        _Opening("connect", lambda: connect(address), _REST),
        _Opening("prepare_54KB", lambda: device.prepare(model)),
        _Opening("open_burst_and_bind", open_and_bind),
        Looped("allocate_and_close", lambda: _allocate(device), warm_up=1),
    ]


class _Opening:
    """The time until something is open; closing it is not counted."""

    def __init__(self, name: str, opened: Callable[[], Closing], rest: float = 0.0) -> None:
        """Measure `opened`.

        Args:
            name: of the case.
            opened: opens one.
            rest: seconds between the end of one and the next.
        """
        self.name = name
        self._opened = opened
        self._rest = rest

    def block(self, count: int) -> float:
        """See `Contestant`."""
        return float(self.samples(count).mean())

    def samples(self, count: int) -> Samples:
        """See `Contestant`."""
        found = np.zeros(count, np.uint64)
        for index in range(count):
            time.sleep(self._rest)
            began = time.perf_counter_ns()
            made = self._opened()
            found[index] = time.perf_counter_ns() - began
            made.close()
        return found


def _allocate(device: Device) -> None:
    device.allocate(4096).close()


def _model_with_weights() -> Model:
    builder = ModelBuilder()
    given = builder.input(OperandType.TENSOR_FLOAT32, (1, _WEIGHTS))
    weights = builder.constant(OperandType.TENSOR_FLOAT32, np.arange(_WEIGHTS))
    taken = builder.output(OperandType.TENSOR_FLOAT32, (1, _WEIGHTS))
    builder.operation(OperationType.ADD, [given, weights, builder.scalar(0)], [taken])
    return builder.build()
