"""Runs clients while processes are killed, and measures how a client recovers from a killed worker.

An activity is an endless generator, called with a driver's device or address. Its first step sets it up;
every further step is a round, whose results are checked. A resilient client gets one error for each killed
worker, and goes on.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import os
import signal
import socket
import threading
import time
from collections.abc import Callable, Generator, Iterator
from typing import Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt

from nnburst.client.burst.burst import check_usable
from nnburst.client.burst.interface import BoundRequest, Burst
from nnburst.client.connect import connect
from nnburst.client.device import Device
from nnburst.client.execution.sync_fence import SyncFence
from nnburst.client.hal import create_reusable_execution, execute_fenced, open_aidl_burst
from nnburst.client.memory import Memory
from nnburst.client.prepared_model import PreparedModel
from nnburst.control.address import socket_path
from nnburst.control.channel import Channel, Disconnected
from nnburst.control.messages import PROTOCOL_VERSION, Hello, Message, Ping, encode
from nnburst.hal.enums import FeatureLevel, OperandType, OperationType
from nnburst.hal.errors import DeadObject, MissedDeadline, NnburstError
from nnburst.hal.model import Model
from nnburst.hal.model_builder import ModelBuilder

Array = npt.NDArray[Any]
Activity = Callable[[Device], Iterator[None]]

_SHAPE: Final = (8, 16)
#: Timeout in seconds, long enough if no process is stopped.
_LITTLE: Final = 0.05


class WrongResult(Exception):
    """An execution succeeded with a wrong sum."""


def sum_model() -> Model:
    """A model that adds two float32 tensors."""
    builder = ModelBuilder()
    a, b = (builder.input(OperandType.TENSOR_FLOAT32, _SHAPE) for _ in range(2))
    c = builder.output(OperandType.TENSOR_FLOAT32, _SHAPE)
    builder.operation(OperationType.ADD, [a, b, builder.scalar(0)], [c])
    return builder.build()


def summands(number: float) -> list[Array]:
    """Inputs whose sum is different for every `number` below a million."""
    return [np.full(_SHAPE, number, np.float32), np.full(_SHAPE, 0.5, np.float32)]


def write_summands(bound: BoundRequest, number: float) -> None:
    """Write the inputs `summands(number)` to a bound request."""
    for array, value in zip(bound.inputs, summands(number), strict=True):
        array[...] = value


def check_sum(result: Array, number: float) -> None:
    """Raise WrongResult unless `result` is the sum of `summands(number)`."""
    if not np.array_equal(result, np.full(_SHAPE, number + 0.5, np.float32)):
        raise WrongResult(f"{result.flat[0]} for {number} + 0.5")


def prepare(device: Device) -> Iterator[None]:
    """Prepares models and releases them."""
    model = sum_model()
    while True:
        yield
        device.prepare(model).close()


def execute(device: Device) -> Iterator[None]:
    """Executes over the socket."""
    prepared = device.prepare(sum_model(), bursts=False)
    for number in _rounds():
        yield
        check_sum(prepared.execute(summands(number)).outputs[0], number)


def start_preparations(device: Device) -> Iterator[None]:
    """Starts several preparations at once and drops one of them."""
    model = sum_model()
    while True:
        yield
        preparations = [device.prepare_async(model) for _ in range(3)]
        preparations.pop().cancel()
        for preparation in preparations:
            preparation.result().close()


def start_executions(device: Device) -> Iterator[None]:
    """Starts several executions at once and drops one of them."""
    prepared = device.prepare(sum_model(), bursts=False)
    for number in _rounds():
        yield
        pending = [prepared.execute_async(summands(number + n)) for n in range(3)]
        pending.pop().cancel()
        for n, execution in enumerate(pending):
            check_sum(execution.result().outputs[0], number + n)


def open_bursts(device: Device) -> Iterator[None]:
    """Opens bursts and closes them."""
    prepared = device.prepare(sum_model(), bursts=False)
    while True:
        yield
        prepared.open_burst().close()


def burst_runs(device: Device) -> Iterator[None]:
    """Runs one bound request."""
    burst = device.prepare(sum_model()).open_burst()
    bound = burst.bind()
    for number in _rounds():
        yield
        write_summands(bound, number)
        check_sum(bound.run().outputs[0], number)


def upcalls(device: Device) -> Iterator[None]:
    """Runs requests in new pools, so that the driver calls getMemories for each."""
    burst = device.prepare(sum_model()).open_burst()
    kept: list[Memory] = []
    for number in _rounds():
        yield
        memory = device.allocate(4096)
        kept = [*kept[-8:], memory]  # older requests are garbage-collected
        _run_in(burst, [memory], number)


def free_memory(device: Device) -> Iterator[None]:
    """Closes the pools of every request (freeMemory)."""
    burst = device.prepare(sum_model()).open_burst()
    for number in _rounds():
        yield
        pools = [device.allocate(4096) for _ in range(3)]
        _run_in(burst, pools, number)
        for memory in pools:
            memory.close()


def fenced_executions(device: Device) -> Iterator[None]:
    """Chains executions by fences; the first one waits for a fence that is signalled afterwards."""
    prepared = device.prepare(sum_model(), bursts=False)
    for number in _rounds():
        yield
        fence, signaller = SyncFence.create()
        one = execute_fenced(prepared, summands(number), wait_for=[fence])
        two = execute_fenced(prepared, summands(number), wait_for=[one.fence])
        signaller.signal()
        for fenced in (two, one):
            check_sum(fenced.result().outputs[0], number)
            fenced.close()


def runs_in_a_loop(device: Device) -> Iterator[None]:
    """Runs a bound request in an event loop; every other run is cancelled."""
    burst = device.prepare(sum_model()).open_burst()
    bound, wasted = burst.bind(), burst.bind()
    with asyncio.Runner() as runner:
        for number in _rounds():
            yield
            write_summands(bound, number)
            runner.run(_cancelled(wasted))
            check_sum(runner.run(bound.run_async()).outputs[0], number)


async def _cancelled(bound: BoundRequest) -> None:
    """Start a run and cancel the wait for it."""
    task = asyncio.ensure_future(bound.run_async())
    await asyncio.sleep(0)
    task.cancel()
    await asyncio.wait([task])
    if not task.cancelled():
        task.result()


def reusable_runs(device: Device) -> Iterator[None]:
    """Runs an execution object and an AIDL burst in turn."""
    prepared = device.prepare(sum_model(), bursts=False)
    inputs = summands(0)
    execution, burst = create_reusable_execution(prepared, inputs), open_aidl_burst(prepared)
    for number in _rounds():
        yield
        inputs[0][...] = number
        check_sum(execution.run().outputs[0], number)
        check_sum(burst.execute(inputs).outputs[0], number)


def meets_deadlines(device: Device) -> Iterator[None]:
    """Executes in every way with short deadlines: results are right or missing, and right afterwards."""
    prepared = device.prepare(sum_model(), bursts=False)
    burst = prepared.open_burst()
    bound = burst.bind()
    for number in _rounds():
        yield
        with contextlib.suppress(MissedDeadline):
            check_sum(prepared.execute(summands(number), timeout=_LITTLE).outputs[0], number)
        with contextlib.suppress(MissedDeadline):
            write_summands(bound, number)
            check_sum(bound.run(_LITTLE).outputs[0], number)
        with contextlib.suppress(MissedDeadline), device.allocate(4096) as memory:
            _run_in(burst, [memory], number, _LITTLE)


def idle(device: Device) -> Iterator[None]:
    """Waits with an open burst; notices the death of the driver without a call."""
    burst = device.prepare(sum_model()).open_burst()
    bound = burst.bind()
    bound.run()
    died = threading.Event()
    device.on_death(died.set)
    yield
    died.wait()
    raise device._session.connection.end_error()


def _run_in(burst: Burst, pools: list[Memory], number: int, timeout: float | None = None) -> None:
    """Bind and run a request whose three arrays are spread over `pools`."""
    size = int(np.prod(_SHAPE)) * 4
    first, second, output = (
        pools[index % len(pools)].array(np.float32, _SHAPE, index * size) for index in range(3)
    )
    first[...], second[...] = summands(number)
    check_sum(burst.bind([first, second], [output]).run(timeout).outputs[0], number)


def _rounds() -> Iterator[int]:
    """Numbers for `summands`."""
    while True:
        yield from range(1_000_000)


ACTIVITIES: Final[dict[str, Activity]] = {
    activity.__name__: activity
    for activity in (
        prepare,
        start_preparations,
        execute,
        start_executions,
        open_bursts,
        burst_runs,
        runs_in_a_loop,
        fenced_executions,
        reusable_runs,
        upcalls,
        free_memory,
        meets_deadlines,
        idle,
    )
}


# -- Clients that never read the driver's answers --------------------------------------------------

#: Elements of the result ring, of which a success needs two; and a larger number of requests.
_ROOM: Final = 4
_REQUESTS: Final = 8
#: Seconds between two checks of a burst.
_PAUSE: Final = 0.05


def reads_no_results(address: str) -> Iterator[None]:
    """Fills the result ring of a burst, and opens another burst once the driver has closed that one."""
    with connect(address) as device, device.prepare(sum_model()) as prepared:
        while True:
            with prepared.open_burst(max_in_flight=_REQUESTS, result_channel_length=_ROOM) as burst:
                bounds = [burst.bind() for _ in range(_REQUESTS)]
                pending = [bound.submit() for bound in bounds]
                yield
                while _goes_on(burst):
                    threading.Event().wait(_PAUSE)
                del pending


def _goes_on(burst: Burst) -> bool:
    try:
        check_usable(burst)
    except NnburstError:
        return False
    return True


def reads_no_replies(address: str) -> Iterator[None]:
    """Sends messages without reading replies, and reconnects once the driver has closed the connection."""
    while True:
        with contextlib.closing(_Deaf(address)) as client:
            yield
            client.talk()


def stops(address: str) -> Iterator[None]:
    """Stops its process while a request is running, and again after each SIGCONT."""
    with connect(address) as device, device.prepare(sum_model()).open_burst() as burst:
        bound = burst.bind()
        while True:
            yield
            pending = bound.submit()
            os.kill(os.getpid(), signal.SIGSTOP)
            pending.result()


class _Deaf:
    """A connection on which nothing is ever received."""

    def __init__(self, address: str) -> None:
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._socket.connect(address if "/" in address else str(socket_path(address)))
        self._upcalls = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._channel = Channel(self._socket)
        hello = Hello(PROTOCOL_VERSION, FeatureLevel.AIDL_V4)
        self._send(1, hello, [self._upcalls[1].fileno()])

    def _send(self, number: int, message: Message, fds: list[int] | None = None) -> None:
        self._channel.send(number, encode(message), fds or [])

    def talk(self) -> None:
        """Send messages until the driver closes the connection."""
        with contextlib.suppress(Disconnected):
            for number in itertools.count(2):
                with contextlib.suppress(TimeoutError):
                    self._send(number, Ping())

    def close(self) -> None:
        self._channel.close()
        for end in self._upcalls:
            end.close()


STUCK: Final[dict[str, Callable[[str], Iterator[None]]]] = {
    activity.__name__: activity for activity in (reads_no_results, reads_no_replies, stops)
}


#: Timeout of an execution in seconds, with a recovery.
_PATIENCE = 10.0


class RecoveryTimes(NamedTuple):
    """Times of the recovery from one killed worker.

    Attributes:
        told_ms: time from the kill to the end of the first execution, which fails or has recovered already.
        right_ms: time from the kill to the first right result.
        errors: number of executions that raised DeadObject.
    """

    told_ms: float
    right_ms: float
    errors: int


class BrokenLife(Exception):
    """A client should have gone on, and did not."""


def outlive(address: str, *, fatal: bool = False) -> Generator[RecoveryTimes, None, None]:
    """Kill the worker at each step, in turn before an execution over the socket and over a burst.

    Args:
        address: address of a driver.
        fatal: whether the driver runs `nnburst.testing.faults.executors:FatalExecuting`, so that the
            executions themselves kill it. Otherwise the worker is killed before an execution, which may then
            fail or not.

    Raises:
        BrokenLife: more than one error for a kill, or more or fewer recoveries than kills; with `fatal`, no
            error, or a repeated execution.
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
            other(deaths)  # checks that the other way has recovered, too
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
    """Execute with inputs that kill the driver, and check that the execution was not repeated."""
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
    write_summands(bound, number)
    check_sum(bound.run(_PATIENCE).outputs[0], number)
