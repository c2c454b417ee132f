"""Makes and maps sealed shared memory, and describes the layout of a message queue in it.

    memory = SharedMemory.create(4096)
    view = memory.map(writable=True)      # numpy bytes; any view keeps the mapping
    memory.close()                        # closes only the fd

A foreign fd is accepted only if it is a sealed memfd (`adopt`): then no access can raise SIGBUS, and there is
no name that could be left over.

The descriptor of a message queue describes where its parts lie in the shared memory that is sent with it.

NNAPI: hidl/MQDescriptor.h. Grantors in order: read counter, write counter, data, event flag. The original
puts both counters on one cache line; here each has its own, which the format of descriptors permits. A fifth
grantor is an addition: the words of both ends (csrc/queue.h); the original ignores it.
"""

from __future__ import annotations

import fcntl
import operator
import os
import struct
import sys
from collections.abc import Callable, Sequence
from enum import IntEnum
from functools import partial
from itertools import pairwise
from typing import TYPE_CHECKING, Any, Final, Self, TypeAlias

import msgspec

from nnburst._native import ffi, lib
from nnburst.hal import late_numpy as np
from nnburst.hal.errors import Closed, InvalidArgument, ResourceExhausted
from nnburst.hal.limits import UINT32_MAX
from nnburst.hal.utils import Closing

if TYPE_CHECKING:
    import numpy.typing as npt


Bytes: TypeAlias = "npt.NDArray[np.uint8]"

#: Seals that a shared region must carry: its size is final, and so are the seals.
SIZE_SEALS: Final = fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW | fcntl.F_SEAL_SEAL
#: Seals of a region whose content is final.
CONTENT_SEALS: Final = SIZE_SEALS | fcntl.F_SEAL_WRITE
#: The seal that forbids new writable mappings; missing in Python 3.11's fcntl.
_F_SEAL_FUTURE_WRITE: Final = 0x0010


class SharedMemory(Closing):
    """One sealed region. Thread-safe; `close` releases the fd, views keep their mapping.

    Attributes:
        size: bytes.
    """

    def __init__(self, fd: int, size: int) -> None:
        """Use `create` or `adopt`; this owns `fd`, which must be sealed and have at least `size` bytes."""
        self._fd = fd
        self.size = size

    @classmethod
    def create(
        cls, size: int, name: str = "nnburst", *, read_only_for_others: bool = False
    ) -> Self:
        """Make a new zeroed region of `size` bytes.

        Args:
            size: bytes, at least 1.
            name: the name in /proc, by which it cannot be opened.
            read_only_for_others: whether receivers of the fd can map it only for reading. The creator maps it
                before with `map_then_protect`.

        Raises:
            InvalidArgument: `size` is not positive.
            ResourceExhausted: the kernel has no fd or memory left.
        """
        if size <= 0:
            raise InvalidArgument(f"size is {size}, expected at least 1 byte")
        try:
            fd = os.memfd_create(name, os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
        except OSError as error:
            raise ResourceExhausted(f"cannot create shared memory: {error.strerror}") from error
        try:
            os.ftruncate(fd, size)
            if not read_only_for_others:
                fcntl.fcntl(fd, fcntl.F_ADD_SEALS, SIZE_SEALS)
        except (OSError, OverflowError) as error:
            os.close(fd)
            reason = getattr(error, "strerror", "more than a file can have")
            raise ResourceExhausted(
                f"cannot create shared memory of {size} bytes: {reason}"
            ) from error
        return cls(fd, size)

    def map_then_protect(self) -> memoryview:
        """Map a region made with `read_only_for_others` for writing, then forbid more writable mappings."""
        memory = self.map_memory(writable=True)
        fcntl.fcntl(self.fd, fcntl.F_ADD_SEALS, SIZE_SEALS | _F_SEAL_FUTURE_WRITE)
        return memory

    @classmethod
    def adopt(cls, fd: int, size: int | None = None) -> Self:
        """Check that a foreign fd is a sealed memfd, and own it.

        Args:
            fd: closed by this call if it is refused.
            size: bytes that the sender stated; None to use the file's own size.

        Raises:
            InvalidArgument: not a regular memfd, seals missing, hugetlb, empty, or too short.
        """
        try:
            actual = checked_size(fd)
            if size is not None and not 0 < size <= actual:
                raise InvalidArgument(f"shared memory has {actual} bytes, expected {size}")  # noqa: TRY301
        except BaseException:
            close_received(fd)
            raise
        return cls(fd, actual if size is None else size)

    @property
    def fd(self) -> int:
        """The file descriptor, owned by this object.

        Raises:
            Closed: after `close`.
        """
        if self._fd < 0:
            raise Closed("shared memory is closed")
        return self._fd

    @property
    def closed(self) -> bool:
        """Whether `close` was called."""
        return self._fd < 0

    @property
    def is_sealed(self) -> bool:
        """Whether it is a memfd with seals; False for named memory."""
        try:
            return fcntl.fcntl(self.fd, fcntl.F_GET_SEALS) & SIZE_SEALS == SIZE_SEALS
        except OSError:
            return False

    @property
    def is_writable(self) -> bool:
        """Whether new mappings can be writable: the fd is open for writing, and no seal forbids it."""
        if fcntl.fcntl(self.fd, fcntl.F_GETFL) & os.O_ACCMODE != os.O_RDWR:
            return False
        try:
            seals = fcntl.fcntl(self.fd, fcntl.F_GET_SEALS)
        except OSError:  # not a memfd but named memory
            return True
        return not seals & (fcntl.F_SEAL_WRITE | _F_SEAL_FUTURE_WRITE)

    def map(self, *, writable: bool, keep: object = None) -> Bytes:
        """Map the region: a one-dimensional uint8 array of `size` bytes.

        Every array derived from the result keeps the mapping; it is removed with the last of them. One
        readable page follows the region. The mapping is not inherited by fork.

        Args:
            writable: whether the array, and the pages, can be written.
            keep: an object that is kept as long as the mapping.

        Raises:
            ResourceExhausted: the kernel refuses the mapping.
        """
        view: Bytes = np.frombuffer(self.map_memory(writable=writable, keep=keep), dtype=np.uint8)
        return view

    def map_memory(self, *, writable: bool, keep: object = None) -> memoryview:
        """Like `map`, but return a memoryview instead of an array: `size` bytes of format "B"."""
        address = lib.nnb_pool_map(self.fd, self.size, writable)
        if address == ffi.NULL:
            raise ResourceExhausted(f"cannot map {self.size} bytes: {os.strerror(ffi.errno)}")
        # Objects made from the buffer keep the pointer, and with it the mapping.
        owner = ffi.gc(address, partial(_unmap, self.size, os.getpid(), keep))
        memory = memoryview(ffi.buffer(owner, self.size))
        return memory if writable else memory.toreadonly()

    def duplicate(self) -> Self:
        """Make a second object for the same region, with its own fd."""
        return type(self)(fcntl.fcntl(self.fd, fcntl.F_DUPFD_CLOEXEC, 0), self.size)

    def close(self) -> None:
        """Close the fd; idempotent. Views stay valid."""
        fd, self._fd = self._fd, -1
        if fd >= 0:
            os.close(fd)

    def __del__(self) -> None:
        # The fd is only a number, which the garbage collector does not close by itself.
        fd = getattr(self, "_fd", -1)
        if fd >= 0:
            os.close(fd)

    def __repr__(self) -> str:
        return (
            f"<nnburst.fmq.SharedMemory: {self.size} bytes, {'closed' if self._fd < 0 else 'open'}>"
        )


def address_of(memory: Bytes | memoryview) -> int:
    """The address of memory; the caller must keep the object."""
    return int(ffi.cast("uintptr_t", ffi.from_buffer(memory)))


def close_received(fd: int) -> None:
    """Close a descriptor that another process has sent, of whatever kind it is, without waiting.

    Otherwise a socket's `close` could wait for as long as its sender has set by SO_LINGER.
    """
    lib.nnb_forbid_linger(fd)
    os.close(fd)


def _unmap(size: int, owner: int, _keep: object, address: Any) -> None:  # noqa: ANN401 - cffi's
    # A forked child never had the mapping; by now the addresses may belong to another mapping of the child.
    # And while a process ends, its threads may still use its mappings.
    if os.getpid() == owner and not sys.is_finalizing():
        lib.nnb_pool_unmap(address, size)


def checked_size(fd: int, *, is_final: bool = False) -> int:
    """Check that a descriptor is a sealed memfd, and return its size.

    Args:
        fd: any descriptor; it stays open.
        is_final: whether the memfd must be sealed against writing, too.

    Raises:
        InvalidArgument: not a regular memfd, seals missing, hugetlb, or empty.
    """
    wanted, names = SIZE_SEALS, "SHRINK, GROW and SEAL"
    if is_final:
        wanted, names = CONTENT_SEALS, "SHRINK, GROW, WRITE and SEAL"
    try:
        # TRUST: only memfds can have these seals, which make fstat's answer, and the content, final.
        seals = fcntl.fcntl(fd, fcntl.F_GET_SEALS)
    except OSError as error:
        raise InvalidArgument("fd: not a memfd") from error
    if seals & wanted != wanted:
        raise InvalidArgument(f"memfd lacks the seals {names}")
    status = os.fstat(fd)
    # Not st_blksize, which is also large if the kernel uses huge pages for ordinary memfds by itself.
    if os.fstatvfs(fd).f_bsize != os.sysconf("SC_PAGESIZE"):
        raise InvalidArgument("memfd of huge pages is not accepted")
    if status.st_size == 0:
        raise InvalidArgument("shared memory has 0 bytes")
    return status.st_size


# -- descriptor ------------------------------------------------------------------------------------


COUNTER_BYTES: Final = 8
EVENT_FLAG_BYTES: Final = 4
ENDS_BYTES: Final = 128
_CACHE_LINE: Final = 64
#: Largest product of elements and quantum of a queue; far above any use, far below overflow.
_MAX_DATA_BYTES: Final = 1 << 32


class Flavor(IntEnum):
    """Whether a queue has one reader, whose elements are never overwritten, or many (NNAPI: MQFlavor)."""

    SYNCHRONIZED_READ_WRITE = 1
    UNSYNCHRONIZED_WRITE = 2


class GrantorDescriptor(msgspec.Struct, frozen=True, array_like=True):
    """One part of a queue: `extent` bytes at `offset` of fd number `fd_index`; `flags` is 0."""

    flags: int
    fd_index: int
    offset: int
    extent: int


class MQDescriptor(msgspec.Struct, frozen=True):
    """The description of a queue: its grantors, the size of an element in bytes, and its flavour."""

    grantors: tuple[GrantorDescriptor, ...]
    quantum: int
    flags: int

    @property
    def capacity(self) -> int:
        """Number of elements, all of them usable."""
        return self.grantors[2].extent // self.quantum

    def size_bytes(self) -> int:
        """Bytes of memory from the beginning of fd 0 to the end of its last grantor."""
        return max(g.offset + g.extent for g in self.grantors if g.fd_index == 0)

    @property
    def is_broadcast(self) -> bool:
        """Whether readers map everything except the event flag read-only; the flag alone lies in fd 1."""
        return len(self.grantors) > 3 and [g.fd_index for g in self.grantors[:4]] == [0, 0, 0, 1]


#: Number of grantors, quantum and flavour, then each grantor as fmq/MQDescriptor.h lays it out in memory,
#: with padding after the offset. For C programs (csrc/client/queue_end.c).
_RECORD: Final = struct.Struct("<IIII" + 5 * "IIQQ")
RECORD_BYTES: Final = _RECORD.size


def to_record(descriptor: MQDescriptor) -> bytes:
    """Encode a descriptor in `RECORD_BYTES` bytes of fixed layout."""
    words = [
        word for g in descriptor.grantors for word in (g.flags, g.fd_index, g.offset, g.extent)
    ]
    head = (len(descriptor.grantors), descriptor.quantum, descriptor.flags, 0)
    return _RECORD.pack(*head, *words, *(20 - len(words)) * (0,))


def from_record(record: bytes) -> MQDescriptor:
    """Decode the descriptor of a record; its values still need `check`.

    Raises:
        InvalidArgument: the length or the number of grantors is wrong.
    """
    if len(record) != RECORD_BYTES:
        raise InvalidArgument(f"record has {len(record)} bytes, expected {RECORD_BYTES}")
    count, quantum, flags, _, *words = _RECORD.unpack(record)
    if not 3 <= count <= 5:
        raise InvalidArgument(f"{count} grantors, expected 3 to 5: the region describes no queue")
    grantors = (GrantorDescriptor(*words[at : at + 4]) for at in range(0, 4 * count, 4))
    return MQDescriptor(tuple(grantors), quantum, flags)


#: Decodes an MQDescriptor from MessagePack. Made at import, like all decoders: if several threads let msgspec
#: inspect a type for the first time at once, the process can crash.
decode_descriptor: Final[Callable[[msgspec.Raw | bytes], MQDescriptor]] = msgspec.msgpack.Decoder(
    MQDescriptor
).decode


def layout(
    quantum: int,
    capacity: int,
    flavor: Flavor = Flavor.SYNCHRONIZED_READ_WRITE,
    *,
    event_flag: bool = True,
    ends: bool = False,
    original: bool = False,
    start: int = 0,
    flag_start: int = 0,
) -> MQDescriptor:
    """Make the descriptor of a new queue in one region.

    With `ends`, an unsynchronized queue has its flag in another region: its readers, which sleep on the flag,
    can map everything else read-only.

    Args:
        quantum: bytes of an element, at least 1.
        capacity: number of elements, at least 1; need not be a power of two.
        flavor: synchronized or not.
        event_flag: whether to reserve a word to wait on.
        ends: whether to reserve the words of both ends as well, which needs an event flag.
        original: whether to use the original's layout, with both counters on one cache line.
        start: offset of the first part, a multiple of 64.
        flag_start: offset of the event flag if it lies in another region.

    Raises:
        InvalidArgument: a size is no integer or not positive, their product exceeds 4 GiB, or `flavor` is not
            a member.
    """
    try:
        capacity = operator.index(capacity)
    except TypeError:
        raise InvalidArgument(f"capacity is {capacity!r}, expected an integer") from None
    if flavor not in tuple(Flavor):
        raise InvalidArgument(f"flavor is {flavor!r}, expected a member of Flavor")
    if quantum < 1 or capacity < 1 or quantum * capacity > _MAX_DATA_BYTES:
        raise InvalidArgument(
            f"queue of {capacity} elements of {quantum} bytes: expected positive sizes, at most 4 GiB in all"
        )
    data_bytes = quantum * capacity
    line = COUNTER_BYTES if original else _CACHE_LINE
    offsets = [start, start + line, start + 2 * line]
    extents = [COUNTER_BYTES, COUNTER_BYTES, data_bytes]
    apart = ends and flavor == Flavor.UNSYNCHRONIZED_WRITE
    if event_flag:
        end = offsets[2] + data_bytes
        offsets.append(flag_start if apart else end + -end % (8 if original else _CACHE_LINE))
        extents.append(EVENT_FLAG_BYTES)
        if ends:
            end = offsets[2] + data_bytes if apart else offsets[3] + EVENT_FLAG_BYTES
            offsets.append(end + -end % _CACHE_LINE)
            extents.append(ENDS_BYTES)
    fds = (0, 0, 0, int(apart), 0)
    parts = zip(fds, offsets, extents, strict=False)
    grantors = tuple(GrantorDescriptor(0, fd, offset, extent) for fd, offset, extent in parts)
    return MQDescriptor(grantors, quantum, int(flavor))


def check(descriptor: MQDescriptor, region_sizes: Sequence[int], quantum: int | None) -> None:
    """Refuse a descriptor that does not describe a queue in regions of these sizes.

    The original checks only the number of grantors and the quantum; other errors there end in an abort or a
    SIGBUS (DEVIATES: refused here).

    Raises:
        InvalidArgument: a field is invalid; the message names the field and the rule.
    """
    if quantum is not None and descriptor.quantum != quantum:
        raise InvalidArgument(f"quantum is {descriptor.quantum}, expected {quantum}")
    if not 1 <= descriptor.quantum <= UINT32_MAX:
        raise InvalidArgument(f"quantum is {descriptor.quantum}, expected 1 to 2**32 - 1")
    if descriptor.flags not in tuple(Flavor):
        raise InvalidArgument(f"flags are {descriptor.flags}, expected a flavour (1 or 2)")
    if len(descriptor.grantors) not in (3, 4, 5):
        raise InvalidArgument(f"{len(descriptor.grantors)} grantors, expected 3 to 5")
    names = ("read counter", "write counter", "data", "event flag", "ends")
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
    read, write, data, *others = descriptor.grantors
    sizes = (("event flag", EVENT_FLAG_BYTES), ("ends", ENDS_BYTES))
    for name, grantor, expected in (
        ("read counter", read, COUNTER_BYTES),
        ("write counter", write, COUNTER_BYTES),
        *((name, g, size) for g, (name, size) in zip(others, sizes, strict=False)),
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
