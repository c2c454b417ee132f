"""Measures the other cases of `nnburst bench burst`: other ways to execute, transports, and setup.

Executions over the socket and in an event loop are compared with a process that echoes their packets. Pipes
and installed messaging libraries carry 256 bytes there and 64 back. Connecting, preparing, opening and
binding, which come before the first execution, are compared with a fork.
"""

from __future__ import annotations

import asyncio
import importlib.util
import multiprocessing
import os
import random
import socket
import subprocess
import sys
import time
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any, Final

import numpy as np

from nnburst.bench.cases import (
    SMALL,
    WARM_UP,
    Contestant,
    Looped,
    Samples,
    adding_model,
    durations,
    open_bound,
)
from nnburst.client.burst.interface import Burst
from nnburst.client.connect import connect
from nnburst.client.device import Device
from nnburst.client.hal import create_reusable_execution, open_aidl_burst
from nnburst.hal.enums import OperandType, OperationType
from nnburst.hal.model import Model
from nnburst.hal.model_builder import ModelBuilder
from nnburst.hal.utils import Closing
from nnburst.testing.driver_under_test import DriverUnderTest, deaf_to_interrupts

#: Bytes of a request and of its answer, about those of an execution with one input and one output.
_CALL: Final = bytes(96)
_ANSWER: Final = bytes(16)
_PATIENCE: Final = 5
#: Seconds after which a waiting driver has gone to sleep.
_REST: Final = 0.005

_ECHO: Final = """
import os, socket, sys
os.sched_setaffinity(0, {int(sys.argv[2])})
answer = bytes(int(sys.argv[3]))
s = socket.socket(fileno=int(sys.argv[1]))
while s.recv(65536):
    s.send(answer)
"""


@contextmanager
def _echo(core: int) -> Iterator[socket.socket]:
    """Start a process that answers each packet: the least that Python can do."""
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with theirs:
        command = [sys.executable, "-S", "-c", _ECHO, str(theirs.fileno()), str(core)]
        process = subprocess.Popen(  # noqa: S603 - our own text
            [*command, str(len(_ANSWER))], pass_fds=[theirs.fileno()], process_group=0
        )
    try:
        yield ours
    finally:
        ours.close()
        process.wait(_PATIENCE)


class InLoop:
    """A case in an event loop: one task awaits the same call again and again."""

    def __init__(
        self,
        name: str,
        loop: asyncio.AbstractEventLoop,
        call: Callable[[], Awaitable[object]],
        warm_up: int = WARM_UP,
        rest: float = 0.0,
    ) -> None:
        """Measure `call` in `loop`.

        Args:
            name: name of the case.
            loop: the event loop.
            call: makes the awaitable.
            warm_up: number of calls before each block.
            rest: seconds that the loop sleeps before each call, which are not counted; varied, since a driver
                would learn a fixed period.
        """
        self.name = name
        self._rest = rest
        self._loop = loop
        self._call = call
        self._warm_up = warm_up

    def block(self, count: int) -> float:
        """See `Contestant`."""
        return self._loop.run_until_complete(self._block(count))

    async def _block(self, count: int) -> float:
        call = self._call
        for _ in range(self._warm_up):
            await call()
        if self._rest:
            return float((await self._rested(count)).mean())
        began = time.perf_counter_ns()
        for _ in range(count):
            await call()
        return (time.perf_counter_ns() - began) / count

    async def _rested(self, count: int) -> Samples:
        found = np.zeros(count, np.uint64)
        for index in range(count):
            await asyncio.sleep(self._rest * random.uniform(0.2, 1.8))  # noqa: S311
            began = time.perf_counter_ns()
            await self._call()
            found[index] = time.perf_counter_ns() - began
        return found

    def samples(self, count: int) -> Samples:
        """See `Contestant`."""
        return self._loop.run_until_complete(self._samples(count))

    async def _samples(self, count: int) -> Samples:
        if self._rest:
            return await self._rested(count)
        call, clock = self._call, time.perf_counter_ns
        stamps = [0] * (count + 1)
        for _ in range(self._warm_up):
            await call()
        stamps[0] = clock()
        for index in range(1, count + 1):
            await call()
            stamps[index] = clock()
        return durations(stamps)


def socket_cases(stack: ExitStack, device: Device, core: int) -> Sequence[Contestant]:
    """Cases of `execute` and similar calls, beside a process that answers on `core`."""
    echo = stack.enter_context(_echo(core))
    prepared = stack.enter_context(device.prepare(adding_model(1, 1, SMALL), bursts=False))
    array = np.ones((1, SMALL), np.float32)
    reusable = stack.enter_context(create_reusable_execution(prepared, [array]))
    burst = stack.enter_context(open_aidl_burst(prepared))

    def answered() -> bytes:
        echo.send(_CALL)
        return echo.recv(65536)

    return [
        Looped("unix_socket_echo", answered),
        Looped("execute", lambda: prepared.execute([array])),
        Looped("reusable_execution", reusable.run),
        Looped("aidl_burst", lambda: burst.execute([array])),
    ]


def _awaited_echo(
    stack: ExitStack, core: int
) -> tuple[asyncio.AbstractEventLoop, Callable[[], Awaitable[bytes]]]:
    """An event loop, and a coroutine that exchanges packets over a socket with a process on `core`."""
    loop = asyncio.new_event_loop()
    stack.callback(loop.close)
    echo = stack.enter_context(_echo(core))
    echo.setblocking(False)

    async def answered() -> bytes:
        await loop.sock_sendall(echo, _CALL)
        return await loop.sock_recv(echo, 65536)

    return loop, answered


def awaited_echo(stack: ExitStack, core: int) -> Contestant:
    """The case of an echo over a socket in an event loop."""
    return InLoop("asyncio_socket_echo", *_awaited_echo(stack, core))


def loop_cases(stack: ExitStack, device: Device, core: int) -> Sequence[Contestant]:
    """Cases of `run_async`, beside an echo in an event loop."""
    loop, answered = _awaited_echo(stack, core)
    _, bound = open_bound(stack, device, adding_model(1, 1, SMALL))
    return [
        InLoop("asyncio_socket_echo", loop, answered),
        InLoop("run_async", loop, bound.run_async),
        InLoop("asyncio_socket_echo_rested", loop, answered, 1, _REST),
        InLoop("run_async_rested", loop, bound.run_async, 1, _REST),
    ]


def fork() -> None:
    """Fork and wait for the child: the least cost of a new process."""
    child = os.fork()
    if not child:
        os._exit(0)
    os.waitpid(child, 0)


_REQUEST: Final = bytes(256)
_RESPONSE: Final = bytes(64)


def _answer_pipe(core: int, connection: Any) -> None:  # noqa: ANN401 - a multiprocessing Connection
    os.sched_setaffinity(0, {core})
    try:
        while connection.recv_bytes():
            connection.send_bytes(_RESPONSE)
    except EOFError:
        pass


@contextmanager
def _pipe(core: int) -> Iterator[Callable[[], object]]:
    context = multiprocessing.get_context("spawn")
    ours, theirs = context.Pipe()
    process = context.Process(target=_answer_pipe, args=(core, theirs), daemon=True)
    with deaf_to_interrupts():
        process.start()
    theirs.close()

    def call() -> bytes:
        ours.send_bytes(_REQUEST)
        return ours.recv_bytes()

    try:
        yield call
    finally:
        ours.close()
        process.join(5)


_SOCKET_SERVER: Final = """
import os, socket, sys
os.sched_setaffinity(0, {int(sys.argv[2])})
s = socket.socket(fileno=int(sys.argv[1]))
while s.recv(256):
    s.sendall(bytes(64))
"""


@contextmanager
def _unix_socket(core: int) -> Iterator[Callable[[], object]]:
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)
    with theirs:
        command = [sys.executable, "-c", _SOCKET_SERVER, str(theirs.fileno()), str(core)]
        process = subprocess.Popen(  # noqa: S603 - our own text
            command, pass_fds=[theirs.fileno()], process_group=0
        )

    def call() -> bytes:
        ours.sendall(_REQUEST)
        return ours.recv(64, socket.MSG_WAITALL)

    try:
        yield call
    finally:
        ours.close()
        process.wait(5)


_ZMQ_SERVER: Final = """
import os, sys, threading, zmq
def end():
    sys.stdin.read()
    os._exit(0)
threading.Thread(target=end, daemon=True).start()
os.sched_setaffinity(0, {int(sys.argv[2])})
s = zmq.Context().socket(zmq.REP)
s.bind(sys.argv[1])
while s.recv():
    s.send(bytes(64))
s.send(b"")
"""


@contextmanager
def _pyzmq(core: int) -> Iterator[Callable[[], object]]:
    import zmq

    address = f"ipc://@nnburst-bench-{os.getpid()}"
    command = [sys.executable, "-c", _ZMQ_SERVER, address, str(core)]
    process = subprocess.Popen(  # noqa: S603 - our own text
        command,
        stdin=subprocess.PIPE,  # whose end ends it, even if this process is killed
        process_group=0,
    )
    context = zmq.Context()
    client = context.socket(zmq.REQ)
    client.setsockopt(zmq.RCVTIMEO, 10_000)
    client.connect(address)

    def call() -> bytes:
        client.send(_REQUEST)
        return bytes(client.recv())

    try:
        yield call
    finally:
        client.send(b"")
        client.recv()
        context.destroy(0)
        process.communicate(timeout=5)


def open_rivals(stack: ExitStack, core: int) -> list[Contestant]:
    """Cases of all installed messaging libraries, whose other process runs on `core`."""
    found: list[Contestant] = [
        Looped("multiprocessing_pipe", stack.enter_context(_pipe(core))),
        Looped("unix_socket", stack.enter_context(_unix_socket(core))),
    ]
    if importlib.util.find_spec("zmq") is not None:
        found.append(Looped("pyzmq_ipc", stack.enter_context(_pyzmq(core))))
    return found


#: Number of float32 weights of a network of 54 kB.
_WEIGHTS: Final = 13_500
#: Seconds between a client's end and the next client.
_CLIENT_REST: Final = 0.03


def opening_cases(stack: ExitStack, core: int) -> Sequence[Contestant]:
    """Cases of connecting, preparing and opening, each closed again, beside a fork."""
    driver = DriverUnderTest.start("null", words=["--cpus", str(core)])
    address = stack.enter_context(driver).address
    device = stack.enter_context(connect(address))
    model = _model_with_weights()
    prepared = stack.enter_context(device.prepare(model))

    def open_and_bind() -> Burst:
        burst = prepared.open_burst()
        burst.bind()
        return burst

    return [
        Looped("fork", fork, warm_up=1),
        # A single client: the driver has time to prepare a worker for it.
        _Opening("connect", lambda: connect(address), _CLIENT_REST),
        _Opening("prepare_54KB", lambda: device.prepare(model)),
        _Opening("open_burst_and_bind", open_and_bind),
        Looped("allocate_and_close", lambda: _allocate(device), warm_up=1),
    ]


class _Opening:
    """A case that measures opening; closing is not counted."""

    def __init__(self, name: str, opened: Callable[[], Closing], rest: float = 0.0) -> None:
        """Measure `opened`.

        Args:
            name: name of the case.
            opened: opens the context to measure.
            rest: seconds between closing and the next opening.
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
