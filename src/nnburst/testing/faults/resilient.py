"""A client that goes on after its driver's workers are killed: it gets one error for each, and recovers."""

from __future__ import annotations

import contextlib
import os
import signal
import time
from collections.abc import Callable, Generator
from typing import NamedTuple

from nnburst.client.burst.interface import BoundRequest
from nnburst.client.connect import connect
from nnburst.client.device import Device
from nnburst.client.prepared_model import PreparedModel
from nnburst.hal.errors import DeadObject
from nnburst.testing.faults.activities import check_sum, sum_model, summands

#: Seconds that an execution may take, a recovery included.
_PATIENCE = 10.0


class RecoveryTimes(NamedTuple):
    """One death and what came after it.

    Attributes:
        told_ms: from the kill to the end of the first execution, which fails or recovers already.
        right_ms: from the kill to the first right result.
        errors: executions that raised DeadObject.
    """

    told_ms: float
    right_ms: float
    errors: int


class BrokenLife(Exception):
    """A client was to go on, and did not."""


def outlive(address: str, *, fatal: bool = False) -> Generator[RecoveryTimes, None, None]:
    """One death for each step, by turns before an execution over the socket and one over a burst.

    Args:
        address: of a driver.
        fatal: it runs `nnburst.testing.faults.executors:FatalExecuting`, and is to die of the executions
            themselves. Without it the worker is killed before an execution, which may fail or not.

    Raises:
        BrokenLife: more than one error for a death, or more or fewer recoveries than deaths; with `fatal`,
            none, or an execution that was repeated.
        WrongResult: a result after a death is wrong.
    """
    with (
        connect(address, recover=True) as device,
        device.prepare(sum_model()) as prepared,
        prepared.open_burst() as burst,
    ):
        bound = burst.bind()
        ways: list[Callable[[float], None]] = [
            lambda number: _execute(prepared, number),
            lambda number: _run(bound, number),
        ]
        for deaths in range(1, 1_000_000):
            first, other = ways if deaths % 2 else ways[::-1]
            first(deaths)
            yield _recover(device, first, deaths, fatal=fatal)
            other(deaths)  # finds that all of it has been made again
            if device.recoveries != deaths:
                raise BrokenLife(f"{device.recoveries} recoveries after {deaths} deaths")


def _recover(
    device: Device, work: Callable[[float], None], deaths: int, *, fatal: bool
) -> RecoveryTimes:
    killed = time.perf_counter_ns()
    told, errors = 0, 0
    if fatal:
        _die_of(device, work, deaths)
        told, errors = time.perf_counter_ns(), 1
    else:
        with contextlib.suppress(ProcessLookupError):
            os.kill(device.pid, signal.SIGKILL)
    while True:
        try:
            work(deaths + 1)
        except DeadObject as error:
            errors += 1
            if errors > 1:
                raise BrokenLife(f"a second error for one death: {error}") from error
        else:
            right = time.perf_counter_ns()
            return RecoveryTimes(((told or right) - killed) / 1e6, (right - killed) / 1e6, errors)
        finally:
            told = told or time.perf_counter_ns()


def _die_of(device: Device, work: Callable[[float], None], deaths: int) -> None:
    """An execution that its driver dies of, and no driver after that one."""
    try:
        work(float("nan"))
    except DeadObject:
        if device.recoveries != deaths - 1:
            raise BrokenLife("an execution that a driver died of was repeated") from None
    else:
        raise BrokenLife("an execution that kills its driver succeeded")


def _execute(prepared: PreparedModel, number: float) -> None:
    check_sum(prepared.execute(summands(number), timeout=_PATIENCE).outputs[0], number)


def _run(bound: BoundRequest, number: float) -> None:
    for array, value in zip(bound.inputs, summands(number), strict=True):
        if array is None:
            raise BrokenLife("a request without an input")
        array[...] = value
    output = bound.run(_PATIENCE).outputs[0]
    check_sum(output, number)
