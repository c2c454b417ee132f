"""Whether a driver does what it is for: a worker is started, prepares a model, and a burst answers."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from nnburst.client.connect import NotRunning
from nnburst.client.device import Device
from nnburst.hal.enums import FusedActivationFunc, OperandType, OperationType
from nnburst.hal.errors import NnburstError
from nnburst.hal.model import Model
from nnburst.hal.model_builder import ModelBuilder


class Health(NamedTuple):
    """What a look at a driver has found.

    Attributes:
        healthy: everything went as it should.
        detail: what was done, or what went wrong.
        seconds: that it took.
        running: whether a driver listens at all. A socket of one that crashed is not a sick driver: the next
            driver of that name takes its place.
    """

    healthy: bool
    detail: str
    seconds: float
    running: bool = True

    @property
    def state(self) -> str:
        """In two words at most."""
        return "healthy" if self.healthy else "failed" if self.running else "not running"


def check_health(connect: Callable[[], Device], *, timeout: float = 5.0) -> Health:
    """Use a driver as a client would.

    It reflects the worker, not the listener in front of it: a worker is forked for this client, loads the
    executor, prepares x + x and executes it by a burst. A device that does not support ADD is only asked
    which operations it supports. What is computed is not compared: the null executor computes nothing.

    Args:
        connect: makes the connection, which is closed again.
        timeout: seconds for each step.
    """
    began = time.monotonic()
    try:
        with connect() as device:
            detail = _use(device, timeout)
    except NnburstError as error:
        running = not isinstance(error, NotRunning)
        detail = f"{type(error).__name__}: {error}"
        return Health(False, detail, time.monotonic() - began, running)
    return Health(True, detail, time.monotonic() - began)


def _use(device: Device, timeout: float) -> str:
    model = _model()
    if not all(device.supported_operations(model, timeout=timeout)):
        return "answers; does not support ADD, so nothing was executed"
    x = np.arange(4, dtype=np.float32)
    with device.prepare(model, timeout=timeout) as prepared, prepared.open_burst() as burst:
        burst.execute([x], timeout=timeout)
    return "prepared a model and executed it by a burst"


def _model() -> Model:
    """X + x."""
    builder = ModelBuilder()
    kind = OperandType.TENSOR_FLOAT32
    x, y = builder.input(kind, (4,)), builder.output(kind, (4,))
    none = builder.scalar(int(FusedActivationFunc.NONE))
    builder.operation(OperationType.ADD, [x, x, none], [y])
    return builder.build()
