"""Measures other ways to call another process, if they are installed: 256 bytes there, 64 back."""

from __future__ import annotations

import importlib.util
import multiprocessing
import os
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any, Final

from nnburst.bench.cases import Contestant, Looped, deaf_to_interrupts

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
