"""Answers the basic exchanges of a benchmark in C, in another process, one block at a time.

    python -m nnburst.bench.peer FD CORE

For each block the process reads a letter from FD: f (floor), q (queue), x (futex), and answers until the
client ends the block. Its memory is the memfd that arrives first.
"""

from __future__ import annotations

import contextlib
import os
import socket
import subprocess
import sys
from typing import Any, Final

import numpy as np

from nnburst._native import ffi, lib
from nnburst.fmq.message_queue import MessageQueue
from nnburst.fmq.shared_memory import MQDescriptor, SharedMemory, layout
from nnburst.hal.utils import Closing
from nnburst.serialize import REQUEST_DATUM, RESULT_DATUM

_QUEUE_ELEMENTS: Final = 1024
_PATIENCE_NS: Final = 1_000_000_000
_RESULT_ELEMENTS: Final = 3
_PAGE: Final = 4096
_RING_BYTES: Final = 40 * 1024


def _descriptors() -> tuple[MQDescriptor, MQDescriptor]:
    """Descriptors of both queues in one region: a page for the words, then the rings."""
    request = layout(REQUEST_DATUM.itemsize, _QUEUE_ELEMENTS, start=_PAGE)
    result = layout(RESULT_DATUM.itemsize, _QUEUE_ELEMENTS, start=_PAGE + _RING_BYTES)
    return request, result


class Exchange:
    """The shared words and queues of both sides."""

    def __init__(self, memory: SharedMemory) -> None:
        """Map `memory`."""
        self._view = memory.map(writable=True)
        address = self._view.ctypes.data
        self.floor = ffi.cast("nnb_atomic_u64 *", address)
        self.futex = ffi.cast("nnb_atomic_u32 *", address + 64)
        views = [self._view]
        request, result = _descriptors()
        self._requests = MessageQueue(request, [], views, REQUEST_DATUM)
        self._results = MessageQueue(result, [], views, RESULT_DATUM)

    @property
    def queues(self) -> tuple[Any, Any, Any, Any]:
        """The rings and flags for the C functions."""
        requests, results = self._requests, self._results
        if requests.event_flag is None or results.event_flag is None:
            raise AssertionError("the layout has event flags")
        return (
            requests.ring,
            requests.event_flag.word,
            results.ring,
            results.event_flag.word,
        )

    def close_floor(self) -> None:
        """Let the answering side return."""
        self._view[:8] = 255

    def close_futex(self) -> None:
        """Let the answering side return, by a word with all bits set."""
        lib.nnb_event_flag_wake(self.futex, 0xFFFFFFFF)

    def reset_words(self) -> None:
        """Set the words to 0, while the peer does not answer."""
        self._view[:128] = 0

    def close_queue(self) -> None:
        """Let the answering side return."""
        last = np.zeros(1, REQUEST_DATUM)
        last.view(np.uint8)[0] = 255
        self._requests.write(last)


class Peer(Closing):
    """The started process, pinned to a core, and this side of its exchanges."""

    def __init__(self, core: int) -> None:
        """Start the process."""
        self._memory = SharedMemory.create(_PAGE + 2 * _RING_BYTES, "bench")
        self.exchange = Exchange(self._memory)
        self._socket, theirs = socket.socketpair()
        with theirs:
            self._process = subprocess.Popen(  # noqa: S603 - this interpreter, this module
                [
                    sys.executable,
                    "-m",
                    "nnburst.bench.peer",
                    str(theirs.fileno()),
                    str(self._memory.fd),
                    str(core),
                ],
                pass_fds=[theirs.fileno(), self._memory.fd],
                process_group=0,  # the command handles Ctrl-C
            )
        self._ready()

    def begin(self, letter: bytes) -> None:
        """Let the peer answer one kind of exchange until the end of the block."""
        self.exchange.reset_words()
        self._socket.sendall(letter)
        self._ready()

    def ended(self) -> None:
        """Wait until the peer has noticed the end of the block."""
        self._ready()

    def _ready(self) -> None:
        if self._socket.recv(1) != b"r":
            raise ConnectionError("the benchmark's peer has ended")

    def close(self) -> None:
        """End the process."""
        self._socket.close()
        self._process.wait(10)
        self._memory.close()


def _answer(commands: socket.socket, exchange: Exchange) -> None:
    commands.sendall(b"r")
    while letter := commands.recv(1):
        commands.sendall(b"r")
        if letter == b"f":
            lib.nnb_bench_floor_server_unlocked(exchange.floor, _PATIENCE_NS)
        elif letter == b"q":
            lib.nnb_bench_queue_server_unlocked(*exchange.queues, _RESULT_ELEMENTS, _PATIENCE_NS)
        elif letter == b"x":
            lib.nnb_bench_futex_server_unlocked(exchange.futex, _PATIENCE_NS)
        commands.sendall(b"r")


def main() -> None:
    """Answer until the socket ends."""
    fd, memory, core = (int(word) for word in sys.argv[1:4])
    os.sched_setaffinity(0, {core})
    # A benchmark that has ended reads no answers, and its socket is reset if one was left unread.
    with (
        socket.socket(fileno=fd) as commands,
        contextlib.suppress(BrokenPipeError, ConnectionResetError),
    ):
        _answer(commands, Exchange(SharedMemory.adopt(memory)))


if __name__ == "__main__":
    main()
