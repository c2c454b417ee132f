"""Requests packed weights for a worker from the server of weights, and receives them as sealed memory files.

The other end is `nnburst.driver.weights_server`, one process for all workers of a service.
"""

from __future__ import annotations

import contextlib
import fcntl
import logging
import mmap
import os
import socket
import struct
import threading
from collections.abc import Iterator, Sequence
from typing import Final

import msgspec

from nnburst.executor.base import MAX_FILES, Pools, PrepareOptions, memory_file
from nnburst.executor.operations import SIGNATURES
from nnburst.fmq.shared_memory import CONTENT_SEALS
from nnburst.hal.enums import ExecutionPreference, Priority
from nnburst.hal.errors import InvalidArgument
from nnburst.hal.model import Model
from nnburst.hal.peer import receive_fds
from nnburst.hal.utils import Closing
from nnburst.hal.validation import validate_model


def seal(fd: int) -> None:
    """Seal a memfd against any change; OSError if it is not a memfd, or is mapped for writing."""
    fcntl.fcntl(fd, fcntl.F_ADD_SEALS, CONTENT_SEALS)


def read_only(fd: int) -> int:
    """Open a second descriptor of the same file that does not permit writing."""
    return os.open(f"/proc/self/fd/{fd}", os.O_RDONLY | os.O_CLOEXEC)


# -- A request to pack: a model in one sealed memory file ------------------------------------------
# The file has all that the packed weights depend on:
#
#     offset  bytes
#     0       8      bytes of the head, little-endian
#     8              head: msgpack of `Head`
#     …              each pool's bytes, in order, from a multiple of 64 on
#
# The server computes the hash of these bytes itself, so a worker that does not have them cannot get the
# weights that were packed from them.


_LENGTH: Final = 8
_ALIGNMENT: Final = 64


class Head(msgspec.Struct, frozen=True, array_like=True):
    """The head of a request: the model and its options.

    Attributes:
        model: as the client described it.
        preference: as in `PrepareOptions`.
        priority: as in `PrepareOptions`.
        num_threads: as in `PrepareOptions`.
    """

    model: Model
    preference: ExecutionPreference
    priority: Priority
    num_threads: int


_encode: Final = msgspec.msgpack.Encoder().encode
_decode: Final = msgspec.msgpack.Decoder(Head).decode


def constant_bytes(model: Model, pools: Sequence[memoryview]) -> int:
    """Bytes of a model's operand values and of its pools, in which its constants lie."""
    return len(model.operand_values) + sum(pool.nbytes for pool in pools)


def write_pack_request(model: Model, pools: Sequence[memoryview], options: PrepareOptions) -> int:
    """Write a request to pack as a sealed memory file; the caller owns the descriptor.

    Raises:
        OSError: there is not enough memory.
    """
    head = _encode(Head(model, options.preference, options.priority, options.num_threads))
    parts: list[bytes | memoryview] = [len(head).to_bytes(_LENGTH, "little"), head]
    end = _LENGTH + len(head)
    for pool in pools:
        parts += [bytes(-end % _ALIGNMENT), pool]
        end += -end % _ALIGNMENT + pool.nbytes
    fd = memory_file("pack_request", *parts)
    try:
        seal(fd)
    except BaseException:
        os.close(fd)
        raise
    return fd


def read_pack_request(fd: int) -> tuple[Model, Pools, PrepareOptions]:
    """Read a file of `write_pack_request`, with the checks for a client's messages.

    Args:
        fd: a sealed memory file; hostile.

    Raises:
        InvalidArgument: its bytes are not a valid model with its pools.
    """
    reading = read_only(fd)
    try:
        content = memoryview(mmap.mmap(reading, 0, mmap.MAP_SHARED, mmap.PROT_READ))
    finally:
        os.close(reading)
    length = int.from_bytes(content[:_LENGTH], "little")
    if length > len(content) - _LENGTH:
        raise InvalidArgument(f"pack_request: a head of {length} bytes in {len(content)}")
    try:
        head = _decode(content[_LENGTH : _LENGTH + length])
    except (msgspec.MsgspecError, ValueError) as error:
        raise InvalidArgument(f"pack_request: its head is malformed: {error}") from error
    pools: list[memoryview] = []
    end = _LENGTH + length
    for described in head.model.pools:
        start = end + -end % _ALIGNMENT
        end = start + described.size
        if end > len(content):
            raise InvalidArgument(f"pack_request: pool {len(pools)} ends behind the file")
        pools.append(content[start:end])
    validate_model(head.model, SIGNATURES)
    return (
        head.model,
        Pools(pools),
        PrepareOptions(head.preference, head.priority, head.num_threads),
    )


logger = logging.getLogger(__name__)

#: A message is the number of a request. The request carries one descriptor, its answer those of the files.
MESSAGE: Final = struct.Struct("<Q")
#: Models with fewer bytes of constants are packed by each worker: sharing them would cost more than it saves.
SMALLEST: Final = 1 << 20
#: Seconds that a preparation waits for the server; then the worker packs for itself.
_PATIENCE: Final = 20.0


class WeightsClient(Closing):
    """A worker's connection to the server of weights, its only one. Thread-safe: preparations take turns."""

    def __init__(self, pair: socket.socket) -> None:
        """Own `pair`, whose other end the server of weights has."""
        self._pair: socket.socket | None = pair
        pair.settimeout(_PATIENCE)
        self._turn = threading.Lock()
        self._number = 0

    def close(self) -> None:
        """Send no more requests; weights that were received stay valid. Twice is fine."""
        pair, self._pair = self._pair, None
        if pair is not None:
            pair.close()

    @contextlib.contextmanager
    def packed(
        self, model: Model, pools: Sequence[memoryview], options: PrepareOptions
    ) -> Iterator[Sequence[int]]:
        """Memory files of packed weights while the context lasts; empty if none are available.

        Args:
            model: the checked model.
            pools: its pools, with their present bytes.
            options: the options of its preparation.
        """
        files: list[int] = []
        if constant_bytes(model, pools) >= SMALLEST:
            with self._turn:
                files = self._ask(model, pools, options)
        try:
            yield files
        finally:
            for fd in files:
                os.close(fd)

    def _ask(self, model: Model, pools: Sequence[memoryview], options: PrepareOptions) -> list[int]:
        if self._pair is None:
            return []
        self._number += 1
        try:
            pack_request = write_pack_request(model, pools, options)
            try:
                socket.send_fds(self._pair, [MESSAGE.pack(self._number)], [pack_request])
            finally:
                os.close(pack_request)
            return self._answer(self._pair)
        except TimeoutError:
            logger.info("packed weights are not there in time; the model is prepared without them")
        except OSError as error:
            logger.info("packed weights cannot be had any more: %s", error)
            self.close()
        return []

    def _answer(self, pair: socket.socket) -> list[int]:
        """The files of the newest request; the answers to earlier ones, which came too late, are dropped."""
        while True:
            data, files, _ = receive_fds(pair, MESSAGE.size, MAX_FILES)
            if data == MESSAGE.pack(self._number):
                return files
            for fd in files:
                os.close(fd)
            if not data:
                raise ConnectionResetError("the server of weights has ended")
