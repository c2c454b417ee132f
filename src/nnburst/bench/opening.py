"""What stands before the first execution: connecting, preparing, opening and binding."""

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

from nnburst.bench.contestants import Contestant, Looped, Samples
from nnburst.bench.roads import fork
from nnburst.client.connect import connect
from nnburst.client.device import Device
from nnburst.hal.enums import OperandType, OperationType
from nnburst.hal.errors import DeviceUnavailable
from nnburst.hal.model import Model
from nnburst.hal.model_builder import ModelBuilder

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
    """One of each, undone again, beside a fork; each is called once before its blocks."""
    address = stack.enter_context(served_driver(core))
    device = stack.enter_context(connect(address))
    model = _model_with_weights()
    prepared = stack.enter_context(device.prepare(model))

    def open_and_bind() -> None:
        with prepared.open_burst() as burst:
            burst.bind()

    cases: dict[str, Callable[[], object]] = {
        "fork": fork,
        "prepare_54KB": lambda: device.prepare(model).close(),
        "open_burst_and_bind": open_and_bind,
        "allocate_and_close": lambda: _allocate(device),
    }
    looped = [Looped(name, call, warm_up=1) for name, call in cases.items()]
    return [*looped[:1], _Connecting(address), *looped[1:]]


class _Connecting:
    """A client that comes alone: the driver had time to get ready for it."""

    name = "connect"

    def __init__(self, address: Path) -> None:
        self._address = address

    def block(self, count: int) -> float:
        """See `Contestant`."""
        return float(self.samples(count).mean())

    def samples(self, count: int) -> Samples:
        """See `Contestant`."""
        found = np.zeros(count, np.uint64)
        for index in range(count):
            time.sleep(_REST)
            began = time.perf_counter_ns()
            device = connect(self._address)
            found[index] = time.perf_counter_ns() - began
            device.close()
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
