"""Measures other ways to execute and to call another process, each beside its counterpart.

Executions over the socket and in an event loop stand beside a process that echoes their packets. Pipes and
the libraries for messages that are installed carry 256 bytes there and 64 back.
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
    deaf_to_interrupts,
    open_bound,
)
from nnburst.client.device import Device
from nnburst.client.hal import create_reusable_execution, open_aidl_burst

#: Bytes of a packet that executes, and of its answer: about what a request of one input and one output takes.
_CALL: Final = bytes(96)
_ANSWER: Final = bytes(16)
_PATIENCE: Final = 5
#: Seconds after which a driver that waits for a request sleeps.
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
    """A process that answers each packet, the least that Python can do."""
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
    """A case that is a coroutine: one task awaits it again and again."""

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
            name: of the case.
            loop: where it is awaited.
            call: makes the awaitable.
            warm_up: how often it is awaited before each block.
            rest: seconds that the loop sleeps before each call, which are not counted; only about so long,
                since a driver would learn a period.
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
        return np.diff(np.asarray(stamps, np.int64)).astype(np.uint64)


def socket_cases(stack: ExitStack, device: Device, core: int) -> Sequence[Contestant]:
    """`execute` and its kin, beside a process that answers on `core`."""
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
    """An event loop, and a call there and back over a socket to a process on `core`."""
    loop = asyncio.new_event_loop()
    stack.callback(loop.close)
    echo = stack.enter_context(_echo(core))
    echo.setblocking(False)

    async def answered() -> bytes:
        await loop.sock_sendall(echo, _CALL)
        return await loop.sock_recv(echo, 65536)

    return loop, answered


def awaited_echo(stack: ExitStack, core: int) -> Contestant:
    """An echo over a socket in an event loop."""
    return InLoop("asyncio_socket_echo", *_awaited_echo(stack, core))


def loop_cases(stack: ExitStack, device: Device, core: int) -> Sequence[Contestant]:
    """`run_async` beside an echo in an event loop."""
    loop, answered = _awaited_echo(stack, core)
    _, bound = open_bound(stack, device, adding_model(1, 1, SMALL))
    return [
        InLoop("asyncio_socket_echo", loop, answered),
        InLoop("run_async", loop, bound.run_async),
        InLoop("asyncio_socket_echo_rested", loop, answered, 1, _REST),
        InLoop("run_async_rested", loop, bound.run_async, 1, _REST),
    ]


def fork() -> None:
    """The least that a process of one's own costs."""
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
import os, sys, zmq
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
    process = subprocess.Popen(command, process_group=0)  # noqa: S603 - our own text
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
        process.wait(5)


def open_rivals(stack: ExitStack, core: int) -> list[Contestant]:
    """All rivals that are installed, answering on `core`."""
    found: list[Contestant] = [
        Looped("multiprocessing_pipe", stack.enter_context(_pipe(core))),
        Looped("unix_socket", stack.enter_context(_unix_socket(core))),
    ]
    if importlib.util.find_spec("zmq") is not None:
        found.append(Looped("pyzmq_ipc", stack.enter_context(_pyzmq(core))))
    return found
