"""Makes and maps sealed shared memory, and describes where a message queue lies in it.

    memory = SharedMemory.create(4096)
    view = memory.map(writable=True)      # numpy bytes; the mapping lives as long as any view of it
    memory.close()                        # the fd only

A foreign fd is accepted only as such a memfd (`adopt`): then no access can raise SIGBUS, and nothing has a
name that could outlive its users.

Descriptor of a message queue: where its parts lie in the shared memory that travels beside it.

NNAPI: hidl/MQDescriptor.h. Grantors in order: read counter, write counter, data, event flag. The original
puts both counters on one cache line; here each has its own, which a valid descriptor may express. A fifth
grantor is ours: the words of both ends (csrc/queue.h); the original does not look at it.
"""

from __future__ import annotations

import fcntl
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
#: Seals of a region that nothing can change any more.
CONTENT_SEALS: Final = SIZE_SEALS | fcntl.F_SEAL_WRITE
#: Not in Python 3.11's fcntl: mappings made from now on may not write to the region.
_F_SEAL_FUTURE_WRITE: Final = 0x0010


class SharedMemory(Closing):
    """One sealed region. Thread-safe; `close` releases the fd, views keep their mapping.

    Attributes:
        size: bytes.
    """

    def __init__(self, fd: int, size: int) -> None:
        """Take over `fd`, known to be sealed and at least `size` bytes; use `create` or `adopt`."""
        self._fd = fd
        self.size = size

    @classmethod
    def create(
        cls, size: int, name: str = "nnburst", *, read_only_for_others: bool = False
    ) -> Self:
        """A new zeroed region of `size` bytes.

        Args:
            size: bytes, at least 1.
            name: what /proc shows; not an address.
            read_only_for_others: a receiver of the fd can only map it for reading. The
                creator maps it with `map` before; see `map_then_protect`.

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
        except OSError as error:
            os.close(fd)
            raise ResourceExhausted(
                f"cannot create shared memory of {size} bytes: {error.strerror}"
            ) from error
        return cls(fd, size)

    def map_then_protect(self) -> memoryview:
        """Map a region made with `read_only_for_others` for writing, then seal it against others."""
        memory = self.map_memory(writable=True)
        fcntl.fcntl(self.fd, fcntl.F_ADD_SEALS, SIZE_SEALS | _F_SEAL_FUTURE_WRITE)
        return memory

    @classmethod
    def adopt(cls, fd: int, size: int | None = None) -> Self:
        """Take over a foreign fd after checking that it is a sealed memfd.

        Args:
            fd: closed by this call if it is refused.
            size: bytes that the sender promised; None to take the file's own size.

        Raises:
            InvalidArgument: not a regular memfd, seals missing, hugetlb, empty, or too short.
        """
        try:
            actual = checked_size(fd)
            if size is not None and not 0 < size <= actual:
                raise InvalidArgument(f"shared memory has {actual} bytes, expected {size}")  # noqa: TRY301
        except BaseException:
            os.close(fd)
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
        """Whether it is a memfd with seals, and not memory that has a name."""
        try:
            return fcntl.fcntl(self.fd, fcntl.F_GET_SEALS) & SIZE_SEALS == SIZE_SEALS
        except OSError:
            return False

    @property
    def is_writable(self) -> bool:
        """Whether a mapping from now on may write: the fd is open for that, and no seal forbids it."""
        if fcntl.fcntl(self.fd, fcntl.F_GETFL) & os.O_ACCMODE != os.O_RDWR:
            return False
        try:
            seals = fcntl.fcntl(self.fd, fcntl.F_GET_SEALS)
        except OSError:  # not a memfd: memory that has a name
            return True
        return not seals & (fcntl.F_SEAL_WRITE | _F_SEAL_FUTURE_WRITE)

    def map(self, *, writable: bool, keep: object = None) -> Bytes:
        """Map the region: a one-dimensional uint8 array of `size` bytes.

        Every array derived from the result keeps the mapping alive; it goes with the last of them. One
        readable page follows the region. The mapping is not inherited by fork.

        Args:
            writable: whether the array, and the pages, can be written.
            keep: stays referenced as long as the mapping is there.

        Raises:
            ResourceExhausted: the kernel refuses the mapping.
        """
        view: Bytes = np.frombuffer(self.map_memory(writable=writable, keep=keep), dtype=np.uint8)
        return view

    def map_memory(self, *, writable: bool, keep: object = None) -> memoryview:
        """As `map`, for those who need no array of it: `size` bytes of format "B"."""
        address = lib.nnb_pool_map(self.fd, self.size, writable)
        if address == ffi.NULL:
            raise ResourceExhausted(f"cannot map {self.size} bytes: {os.strerror(ffi.errno)}")
        # What is made of a buffer keeps the pointer, and with that the mapping.
        owner = ffi.gc(address, partial(_unmap, self.size, os.getpid(), keep))
        memory = memoryview(ffi.buffer(owner, self.size))
        return memory if writable else memory.toreadonly()

    def duplicate(self) -> Self:
        """A second object for the same region with an fd of its own."""
        return type(self)(fcntl.fcntl(self.fd, fcntl.F_DUPFD_CLOEXEC, 0), self.size)

    def close(self) -> None:
        """Close the fd; idempotent. Views stay valid."""
        fd, self._fd = self._fd, -1
        if fd >= 0:
            os.close(fd)

    def __del__(self) -> None:
        # The object owns nothing but a number, so dropping it must not leak the fd behind it.
        fd = getattr(self, "_fd", -1)
        if fd >= 0:
            os.close(fd)


def address_of(memory: Bytes | memoryview) -> int:
    """Where memory lies that something else keeps."""
    return int(ffi.cast("uintptr_t", ffi.from_buffer(memory)))


def _unmap(size: int, owner: int, _keep: object, address: Any) -> None:  # noqa: ANN401 - cffi's
    # A forked child never had the mapping: by now something else of its own may lie there. And while a
    # process ends, its threads may still use what it has mapped.
    if os.getpid() == owner and not sys.is_finalizing():
        lib.nnb_pool_unmap(address, size)


def checked_size(fd: int, *, is_final: bool = False) -> int:
    """Size of a sealed memfd.

    Args:
        fd: any descriptor; it stays open.
        is_final: whether nothing may write to it any more, either.

    Raises:
        InvalidArgument: not a regular memfd, seals missing, hugetlb, or empty.
    """
    wanted, names = SIZE_SEALS, "SHRINK, GROW and SEAL"
    if is_final:
        wanted, names = CONTENT_SEALS, "SHRINK, GROW, WRITE and SEAL"
    try:
        # TRUST: only memfds answer F_GET_SEALS; the seals make fstat's answer, and the content, final.
        seals = fcntl.fcntl(fd, fcntl.F_GET_SEALS)
    except OSError as error:
        raise InvalidArgument("fd: not a memfd") from error
    if seals & wanted != wanted:
        raise InvalidArgument(f"memfd lacks the seals {names}")
    status = os.fstat(fd)
    # Not st_blksize, which is also large if the kernel gives ordinary memfds huge pages by itself.
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
#: Elements times quantum that a queue may have; far above any use, far below overflow.
_MAX_DATA_BYTES: Final = 1 << 32


class Flavor(IntEnum):
    """Whether a queue has one reader, which is never overrun, or any number (NNAPI: MQFlavor)."""

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
        return max(g.offset + g.extent for g in self.grantors if g.fd_index == 0)

    @property
    def is_broadcast(self) -> bool:
        """Whether readers map all but the event flag read-only: it alone lies in fd 1."""
        return len(self.grantors) > 3 and [g.fd_index for g in self.grantors[:4]] == [0, 0, 0, 1]


#: Grantors, quantum and flavour, then each grantor as fmq/MQDescriptor.h has it in memory, whose offset has
#: padding behind it. For C programs (csrc/client/queue_end.c).
_RECORD: Final = struct.Struct("<IIII" + 5 * "IIQQ")
RECORD_BYTES: Final = _RECORD.size


def to_record(descriptor: MQDescriptor) -> bytes:
    """A descriptor in `RECORD_BYTES` bytes of fixed layout."""
    words = [
        word for g in descriptor.grantors for word in (g.flags, g.fd_index, g.offset, g.extent)
    ]
    head = (len(descriptor.grantors), descriptor.quantum, descriptor.flags, 0)
    return _RECORD.pack(*head, *words, *(20 - len(words)) * (0,))


def from_record(record: bytes) -> MQDescriptor:
    """The descriptor of a record, which `check` is for.

    Raises:
        InvalidArgument: another length or number of grantors.
    """
    if len(record) != RECORD_BYTES:
        raise InvalidArgument(f"record has {len(record)} bytes, expected {RECORD_BYTES}")
    count, quantum, flags, _, *words = _RECORD.unpack(record)
    if not 3 <= count <= 5:
        raise InvalidArgument(f"{count} grantors, expected 3 to 5: the region describes no queue")
    grantors = (GrantorDescriptor(*words[at : at + 4]) for at in range(0, 4 * count, 4))
    return MQDescriptor(tuple(grantors), quantum, flags)


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
    ends: bool = False,
    original: bool = False,
    start: int = 0,
    flag_start: int = 0,
) -> MQDescriptor:
    """The descriptor of a new queue in one region.

    With `ends`, an unsynchronized one has its flag in another region: its readers, which sleep on the flag,
    can map everything else read-only.

    Args:
        quantum: bytes of an element, at least 1.
        capacity: elements, at least 1; need not be a power of two.
        flavor: synchronized or not.
        event_flag: reserve a word to wait on.
        ends: reserve the words of both ends as well, which needs an event flag.
        original: lay it out as the original does: both counters on one cache line.
        start: offset of the first part, a multiple of 64.
        flag_start: offset of the event flag if it lies in a region of its own.

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
