"""A model as a worker hands it over to be packed: one sealed memory file with all that decides the result.

    offset  bytes
    0       8      bytes of the head, little-endian
    8              head: msgpack of `Head`
    …              each pool's bytes, in order, from a multiple of 64 on

Who has not got these bytes gets nothing for them: the keeper computes their hash and believes none.
"""

from __future__ import annotations

import mmap
import os
from collections.abc import Sequence
from typing import Final

import msgspec

from nnburst.driver.weights.sealing import read_only, seal
from nnburst.executor.base import Pools, PrepareOptions
from nnburst.executor.operations import SIGNATURES
from nnburst.executor.sharing import memory_file
from nnburst.hal.enums import ExecutionPreference, Priority
from nnburst.hal.errors import InvalidArgument
from nnburst.hal.model import Model
from nnburst.hal.validation import validate_model

_LENGTH: Final = 8
_ALIGNMENT: Final = 64


class Head(msgspec.Struct, frozen=True, array_like=True):
    """What stands before the pools.

    Attributes:
        model: as the client described it.
        preference: as in `PrepareOptions`.
        priority: likewise.
        num_threads: likewise.
    """

    model: Model
    preference: ExecutionPreference
    priority: Priority
    num_threads: int


_encode: Final = msgspec.msgpack.Encoder().encode
_decode: Final = msgspec.msgpack.Decoder(Head).decode


def constant_bytes(model: Model, pools: Sequence[memoryview]) -> int:
    """Bytes of all that a model's constants lie in."""
    return len(model.operand_values) + sum(pool.nbytes for pool in pools)


def write_offer(model: Model, pools: Sequence[memoryview], options: PrepareOptions) -> int:
    """A sealed memory file; the caller owns the descriptor.

    Raises:
        OSError: memory is short.
    """
    head = _encode(Head(model, options.preference, options.priority, options.num_threads))
    parts: list[bytes | memoryview] = [len(head).to_bytes(_LENGTH, "little"), head]
    end = _LENGTH + len(head)
    for pool in pools:
        parts += [bytes(-end % _ALIGNMENT), pool]
        end += -end % _ALIGNMENT + pool.nbytes
    fd = memory_file("offer", *parts)
    try:
        seal(fd)
    except BaseException:
        os.close(fd)
        raise
    return fd


def read_offer(fd: int) -> tuple[Model, Pools, PrepareOptions]:
    """What `write_offer` was given, checked like what a client sends.

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
        raise InvalidArgument(f"offer: a head of {length} bytes in {len(content)}")
    try:
        head = _decode(content[_LENGTH : _LENGTH + length])
    except (msgspec.MsgspecError, ValueError) as error:
        raise InvalidArgument(f"offer: its head is malformed: {error}") from error
    pools: list[memoryview] = []
    end = _LENGTH + length
    for described in head.model.pools:
        start = end + -end % _ALIGNMENT
        end = start + described.size
        if end > len(content):
            raise InvalidArgument(f"offer: pool {len(pools)} ends behind the file")
        pools.append(content[start:end])
    validate_model(head.model, SIGNATURES)
    return (
        head.model,
        Pools(pools),
        PrepareOptions(head.preference, head.priority, head.num_threads),
    )
