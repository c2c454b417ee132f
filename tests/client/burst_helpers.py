"""What the tests of bursts share: models, and a driver that stands still at will."""

from __future__ import annotations

import contextlib
import os
import signal
import threading
from collections.abc import Callable, Iterator

from nnburst import Device, Model, ModelBuilder, OperandType, OperationType

F32 = OperandType.TENSOR_FLOAT32


def copy_model(inputs: int = 1) -> Model:
    """`inputs` tensors of shape (2,), each with a RELU of its own."""
    builder = ModelBuilder()
    for _ in range(inputs):
        source, target = builder.input(F32, (2,)), builder.output(F32, (2,))
        builder.operation(OperationType.RELU, [source], [target])
    return builder.build()


@contextlib.contextmanager
def standing_still(device: Device) -> Iterator[None]:
    """The driver computes nothing inside; afterwards it goes on."""
    os.kill(device.pid, signal.SIGSTOP)
    try:
        yield
    finally:
        os.kill(device.pid, signal.SIGCONT)


def wait_until(condition: Callable[[], bool], seconds: float = 20.0) -> None:
    """Return as soon as `condition` holds; fail the test where it never does."""
    never = threading.Event()
    for _ in range(int(seconds * 1000)):
        if condition():
            return
        never.wait(0.001)
    raise AssertionError("the condition was never met")
