"""Provides helpers for tests of bursts: models, and drivers that can be stopped."""

from __future__ import annotations

import contextlib
import dataclasses
import os
import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt

from nnburst import (
    Burst,
    Device,
    MissedDeadline,
    Model,
    ModelBuilder,
    OperandType,
    OperationType,
)
from nnburst.client.burst.interface import BoundRequest
from nnburst.testing.faults.footprint import Footprint, footprint
from waiting import wait_for

F32 = OperandType.TENSOR_FLOAT32
T = TypeVar("T")


@dataclasses.dataclass(frozen=True)
class State:
    """See `nnburst.client.burst.interface.State`."""

    name: str
    input_index: int
    output_index: int
    initial: npt.NDArray[Any]


#: A sum that begins at (10, 20); output 0 of the model is its double.
SUM = State("sum", 1, 1, np.float32([10, 20]))


def copy_model(inputs: int = 1) -> Model:
    """`inputs` tensors of shape (2,), each with a RELU of its own."""
    builder = ModelBuilder()
    for _ in range(inputs):
        source, target = builder.input(F32, (2,)), builder.output(F32, (2,))
        builder.operation(OperationType.RELU, [source], [target])
    return builder.build()


def accumulating() -> Model:
    """Outputs a sum of its inputs since (10, 20), doubled; the sum itself is its state `SUM`."""
    builder = ModelBuilder()
    x, before = builder.input(F32, (2,)), builder.input(F32, (2,))
    doubled, after = builder.output(F32, (2,)), builder.output(F32, (2,))
    none = builder.scalar(0)
    builder.operation(OperationType.ADD, [x, before, none], [after])
    builder.operation(OperationType.ADD, [after, after, none], [doubled])
    return builder.build()


def numbered_requests(burst: Burst, count: int) -> list[BoundRequest]:
    """Requests whose input is their number."""
    bound = [burst.bind() for _ in range(count)]
    for number, request in enumerate(bound):
        request.inputs[0][:] = number
    return bound


def launched_in_time(launch: Callable[[float], T]) -> T:
    """Launch with a deadline that passes soon, but not before the driver has answered, however slow it is."""
    for timeout in (0.01, 0.1, 1.0):
        with contextlib.suppress(MissedDeadline):
            return launch(timeout)
    return launch(10.0)


def held_by(device: Device) -> Footprint:
    """The resources of a driver; its threads, which come and go with its jobs, are not counted."""
    return dataclasses.replace(footprint(device.pid), threads=1_000_000)


@contextlib.contextmanager
def standing_still(device: Device) -> Iterator[None]:
    """Stop the driver in the `with` block, and continue it afterwards."""
    os.kill(device.pid, signal.SIGSTOP)
    try:
        wait_for(lambda: _is_stopped(device.pid))
        yield
    finally:
        os.kill(device.pid, signal.SIGCONT)


def _is_stopped(pid: int) -> bool:
    """Whether every thread of a process has stopped, which takes a moment after the signal."""
    threads = Path(f"/proc/{pid}/task").iterdir()
    states = [(thread / "stat").read_text().rpartition(")")[2].split()[0] for thread in threads]
    return set(states) == {"T"}
