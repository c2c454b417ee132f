"""Descriptor of a message queue: where its parts lie in the shared memory that travels beside it.

NNAPI: hidl/MQDescriptor.h. Grantors in order: read counter, write counter, data, event flag. The original
puts both counters on one cache line; here each has its own, which a valid descriptor may express.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from enum import IntEnum
from itertools import pairwise
from typing import Final

import msgspec

from nnburst.hal.errors import InvalidArgument
from nnburst.hal.limits import UINT32_MAX

COUNTER_BYTES: Final = 8
EVENT_FLAG_BYTES: Final = 4
_CACHE_LINE: Final = 64
#: Elements times quantum that a queue may have; far above any use, far below overflow.
_MAX_DATA_BYTES: Final = 1 << 32


class Flavor(IntEnum):
    """Who may read and write (NNAPI: MQFlavor)."""

    SYNCHRONIZED_READ_WRITE = 1
    UNSYNCHRONIZED_WRITE = 2


class GrantorDescriptor(msgspec.Struct, frozen=True, array_like=True):
    """One part of a queue: `extent` bytes at `offset` of fd number `fd_index`; `flags` is 0."""

    flags: int
    fd_index: int
    offset: int
    extent: int


class MQDescriptor(msgspec.Struct, frozen=True):
    """A queue: its grantors, the size of an element in bytes, and its flavour."""

    grantors: tuple[GrantorDescriptor, ...]
    quantum: int
    flags: int

    @property
    def capacity(self) -> int:
        """Elements; every one is usable."""
        return self.grantors[2].extent // self.quantum

    def size_bytes(self) -> int:
        """Bytes of memory that the grantors of fd 0 span."""
        return max(g.offset + g.extent for g in self.grantors)


#: An MQDescriptor from MessagePack. Made with the module, as all decoders are: threads at once that make
#: msgspec look at a type for the first time can crash the process.
decode_descriptor: Final[Callable[[msgspec.Raw | bytes], MQDescriptor]] = msgspec.msgpack.Decoder(
    MQDescriptor
).decode


def layout(
    quantum: int,
    capacity: int,
    flavor: Flavor = Flavor.SYNCHRONIZED_READ_WRITE,
    *,
    event_flag: bool = True,
    original: bool = False,
    start: int = 0,
) -> MQDescriptor:
    """The descriptor of a new queue in one region.

    Args:
        quantum: bytes of an element, at least 1.
        capacity: elements, at least 1; need not be a power of two.
        flavor: synchronized or not.
        event_flag: reserve a word to wait on.
        original: lay it out as the original does: both counters on one cache line.
        start: offset of the first part, a multiple of 64.

    Raises:
        InvalidArgument: a size is not positive or their product exceeds 4 GiB.
    """
    if quantum < 1 or capacity < 1 or quantum * capacity > _MAX_DATA_BYTES:
        raise InvalidArgument(
            f"queue of {capacity} elements of {quantum} bytes: expected positive sizes, at most 4 GiB in all"
        )
    data_bytes = quantum * capacity
    line = COUNTER_BYTES if original else _CACHE_LINE
    offsets = [start, start + line, start + 2 * line]
    extents = [COUNTER_BYTES, COUNTER_BYTES, data_bytes]
    if event_flag:
        end = offsets[2] + data_bytes
        offsets.append(end + -end % (8 if original else _CACHE_LINE))
        extents.append(EVENT_FLAG_BYTES)
    grantors = tuple(GrantorDescriptor(0, 0, o, e) for o, e in zip(offsets, extents, strict=True))
    return MQDescriptor(grantors, quantum, int(flavor))


def check(descriptor: MQDescriptor, region_sizes: Sequence[int], quantum: int | None) -> None:
    """Refuse a descriptor that does not describe a queue in regions of these sizes.

    The original checks only the number of grantors and the quantum; everything else there ends in an abort
    or a SIGBUS (DEVIATES: refused here).

    Raises:
        InvalidArgument: naming the field and the rule.
    """
    if quantum is not None and descriptor.quantum != quantum:
        raise InvalidArgument(f"quantum is {descriptor.quantum}, expected {quantum}")
    if not 1 <= descriptor.quantum <= UINT32_MAX:
        raise InvalidArgument(f"quantum is {descriptor.quantum}, expected 1 to 2**32 - 1")
    if descriptor.flags not in tuple(Flavor):
        raise InvalidArgument(f"flags are {descriptor.flags}, expected a flavour (1 or 2)")
    if len(descriptor.grantors) not in (3, 4):
        raise InvalidArgument(f"{len(descriptor.grantors)} grantors, expected 3 or 4")
    names = ("read counter", "write counter", "data", "event flag")
    for name, grantor in zip(names, descriptor.grantors, strict=False):
        _check_grantor(name, grantor, region_sizes)
    _check_extents(descriptor)
    _check_overlap(descriptor)


def _check_grantor(name: str, grantor: GrantorDescriptor, region_sizes: Sequence[int]) -> None:
    if grantor.flags != 0:
        raise InvalidArgument(f"grantor '{name}': flags are {grantor.flags}, expected 0")
    if not 0 <= grantor.fd_index < len(region_sizes):
        raise InvalidArgument(
            f"grantor '{name}': fd_index is {grantor.fd_index}, {len(region_sizes)} fds were sent"
        )
    size = region_sizes[grantor.fd_index]
    if grantor.offset < 0 or grantor.offset % 8:
        raise InvalidArgument(f"grantor '{name}': offset is {grantor.offset}, expected 8-aligned")
    if grantor.extent <= 0 or grantor.offset + grantor.extent > size:
        raise InvalidArgument(
            f"grantor '{name}': {grantor.extent} bytes at {grantor.offset} do not lie in {size} bytes"
        )


def _check_extents(descriptor: MQDescriptor) -> None:
    read, write, data, *flag = descriptor.grantors
    for name, grantor, expected in (
        ("read counter", read, COUNTER_BYTES),
        ("write counter", write, COUNTER_BYTES),
        *(("event flag", g, EVENT_FLAG_BYTES) for g in flag),
    ):
        if grantor.extent != expected:
            raise InvalidArgument(
                f"grantor '{name}': extent is {grantor.extent}, expected {expected}"
            )
    if data.extent % descriptor.quantum or data.extent > _MAX_DATA_BYTES:
        raise InvalidArgument(
            f"grantor 'data': extent {data.extent} is not a whole number of elements of"
            f" {descriptor.quantum} bytes"
        )


def _check_overlap(descriptor: MQDescriptor) -> None:
    parts = sorted((g.fd_index, g.offset, g.offset + g.extent) for g in descriptor.grantors)
    for (fd, _, end), (other_fd, start, _) in pairwise(parts):
        if fd == other_fd and start < end:
            raise InvalidArgument(f"grantors overlap at offset {start}")
