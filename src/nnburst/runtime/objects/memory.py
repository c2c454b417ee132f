"""Keeps memory for constants, inputs and outputs, and the uses that it was made for.

The bytes lie in a pool that drivers share, in a file that is copied, or in a buffer of one device.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import mmap
import operator
import os
import threading
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Final, Protocol

import numpy as np
import numpy.typing as npt

from nnburst.client.execution.buffer import Buffer, parameter_of
from nnburst.client.memory import Memory as Pool
from nnburst.client.memory import pool_over
from nnburst.fmq.shared_memory import SIZE_SEALS, SharedMemory
from nnburst.hal import vlog
from nnburst.hal.enums import OperandType
from nnburst.hal.errors import (
    GeneralFailure,
    InvalidArgument,
    NnburstError,
    UnexpectedNull,
    Unmappable,
)
from nnburst.hal.model import Operand, is_extension, size_bytes
from nnburst.hal.utils import Scarce
from nnburst.hal.validation.request import combine_dimensions
from nnburst.hal.validation.values import Broken
from nnburst.runtime.planning.plan import Direction
from nnburst.runtime.runtime_object import RuntimeObject

Bytes = npt.NDArray[np.uint8]

_BOTH: Final = mmap.PROT_READ | mmap.PROT_WRITE
#: Greatest size of a file in bytes (`off_t`).
_LONGEST_FILE: Final = 2**63 - 1


class MemoryStore(Protocol):
    """The bytes of a memory of known size."""

    @property
    def in_place(self) -> bool:
        """Whether `read` returns the bytes in place, in a pool."""

    def read(self, offset: int, length: int) -> Bytes:
        """Bytes for a computation: in place, or a copy of the present contents."""

    def write(self, offset: int, content: Bytes) -> None:
        """Store bytes that a computation wrote into a copy from `read`; do nothing if they are in place."""

    def close(self) -> None:
        """Release the memory."""


class PoolStore:
    """A sealed memfd, which drivers map.

    Attributes:
        pool: attached to each driver that uses it.
    """

    in_place: Final = True

    def __init__(self, pool: Pool) -> None:
        """Own `pool`."""
        self.pool = pool

    def read(self, offset: int, length: int) -> Bytes:
        """The bytes in place."""
        found: Bytes = self.pool.array(np.uint8, (length,), offset)
        return found

    def write(self, offset: int, content: Bytes) -> None:
        """Do nothing: `content` is in place."""

    def close(self) -> None:
        """Close the pool; views keep its mapping."""
        self.pool.close()


class DescriptorStore:
    """A file, or a memfd without seals: read before and written back after each computation.

    Neither drivers nor this process map the file: if it shrinks, a process that maps it can be killed.
    """

    in_place: Final = False

    def __init__(self, fd: int, prot: int, offset: int) -> None:
        """Own `fd`, whose contents begin at `offset`."""
        self._fd = fd
        self._prot = prot
        self._offset = offset

    def read(self, offset: int, length: int) -> Bytes:
        """A copy of the bytes.

        Raises:
            Unmappable: `prot` does not allow reading, or the descriptor cannot be read, or not far enough.
        """
        self._check(mmap.PROT_READ, "read")
        content = np.empty(length, np.uint8)
        view, done = content.data, 0
        while done < length:
            try:
                count = os.preadv(self._fd, [view[done:]], self._offset + offset + done)
            except OSError as error:
                raise Unmappable(f"fd: it cannot be read: {error.strerror}") from None
            if not count:
                raise Unmappable(f"fd: it ends after {offset + done} of {offset + length} bytes")
            done += count
        return content

    def write(self, offset: int, content: Bytes) -> None:
        """Write the bytes to the file.

        Raises:
            Unmappable: `prot` does not allow writing, or the descriptor cannot be written.
        """
        self._check(mmap.PROT_WRITE, "written")
        view, done = content.data, 0
        while done < len(view):
            try:
                done += os.pwrite(self._fd, view[done:], self._offset + offset + done)
            except OSError as error:
                raise Unmappable(f"fd: it cannot be written: {error.strerror}") from None

    def _check(self, needed: int, what: str) -> None:
        if not self._prot & needed:
            raise Unmappable(f"fd: prot does not allow that it is {what}")

    def close(self) -> None:
        """Close the descriptor."""
        fd, self._fd = self._fd, -1
        if fd >= 0:
            os.close(fd)

    def __del__(self) -> None:
        if getattr(self, "_fd", -1) >= 0:
            self.close()


def adopt(size: int, prot: int, fd: int, offset: int, *, seal: bool) -> PoolStore | DescriptorStore:
    """Make a store from a foreign descriptor; only a memfd with sealed size is shared, others are copied.

    Args:
        size: number of bytes.
        prot: `mmap.PROT_READ`, `PROT_WRITE`, or both.
        fd: the descriptor, which stays the caller's.
        offset: offset of the first byte in the file.
        seal: whether a memfd without seals gets the seals that sharing needs.

    Raises:
        InvalidArgument: a number is not valid.
        GeneralFailure: the descriptor cannot be duplicated.
    """
    size, offset = operator.index(size), operator.index(offset)
    if size <= 0 or operator.index(fd) < 0:
        raise InvalidArgument(
            f"size: {size}, fd: {fd}, expected more than 0 bytes and a descriptor"
        )
    if offset < 0:
        raise InvalidArgument(f"offset: {offset} is negative")
    if offset + size > _LONGEST_FILE:
        raise InvalidArgument(
            f"offset: {offset} and size: {size} end behind {_LONGEST_FILE}, where any file has ended"
        )
    if prot & ~_BOTH:
        raise InvalidArgument(f"prot: {prot}, expected PROT_READ (1), PROT_WRITE (2), or both")
    try:
        with Scarce(f"fd: {fd} cannot be duplicated"):
            own = fcntl.fcntl(fd, fcntl.F_DUPFD_CLOEXEC, 0)
    except (OSError, OverflowError) as error:
        raise GeneralFailure(f"fd: {fd} cannot be duplicated: {error}") from None
    if prot == _BOTH and not offset and _can_be_shared(own, size, seal=seal):
        shared = SharedMemory.adopt(own)
        return PoolStore(pool_over(shared, writable=shared.is_writable))
    return DescriptorStore(own, prot, offset)


def _can_be_shared(fd: int, size: int, *, seal: bool) -> bool:
    """Whether a descriptor is a memfd of ordinary pages that can never shrink, or was just made one."""
    try:
        seals = fcntl.fcntl(fd, fcntl.F_GET_SEALS)
    except OSError as error:
        if error.errno == errno.EINVAL:
            return False  # not a memfd
        raise GeneralFailure(f"fd: {error}") from None
    status = os.fstat(fd)
    if os.fstatvfs(fd).f_bsize != mmap.PAGESIZE or status.st_size < size:
        return False
    if fcntl.fcntl(fd, fcntl.F_GETFL) & os.O_ACCMODE != os.O_RDWR:
        return False
    if seal and seals & SIZE_SEALS != SIZE_SEALS:
        with contextlib.suppress(OSError):  # it cannot be sealed, and is staged
            fcntl.fcntl(fd, fcntl.F_ADD_SEALS, SIZE_SEALS & ~seals)
        seals = fcntl.fcntl(fd, fcntl.F_GET_SEALS)
    return seals & SIZE_SEALS == SIZE_SEALS


def new_pool(size: int) -> PoolStore:
    """Allocate a pool of `size` zeroed bytes.

    Raises:
        ResourceExhausted: there is not enough memory.
    """
    return PoolStore(Pool(size))


def filled_pool(content: Any) -> Pool:  # noqa: ANN401 - anything that numpy copies
    """Allocate a pool with a copy of these bytes."""
    source = np.frombuffer(content, np.uint8)
    pool = Pool(source.size)
    np.asarray(pool)[...] = source
    return pool


@dataclass(frozen=True, slots=True)
class Role:
    """One use of a memory: as an input or an output of a compilation.

    Attributes:
        compilation: the compilation's executable.
        direction: input or output.
        index: index among the inputs or the outputs.
    """

    compilation: object
    direction: Direction
    index: int

    @property
    def key(self) -> tuple[int, Direction, int]:
        """The compilation, direction and index, which identify a role."""
        return id(self.compilation), self.direction, self.index

    def __str__(self) -> str:
        return f"{self.direction.value.lower()} {self.index} of this compilation"


@dataclass(frozen=True)
class MemoryRoles:
    """All uses of one memory.

    Attributes:
        roles: the uses, which keep their compilations alive.
        operand: common type and quantisation, and the dimensions that all uses give together.
    """

    roles: tuple[Role, ...]
    operand: Operand
    keys: frozenset[tuple[int, Direction, int]] = field(init=False)

    def __post_init__(self) -> None:
        """Collect the keys."""
        object.__setattr__(self, "keys", frozenset(role.key for role in self.roles))

    def size_bytes(self, dimensions: tuple[int, ...]) -> int:
        """Bytes of the operand with these dimensions; 0 if a dimension is unknown."""
        if is_extension(self.operand.type):
            return 0
        return size_bytes(OperandType(self.operand.type), dimensions)

    def same_operand(self, other: MemoryRoles) -> bool:
        """Whether type and quantisation are equal."""
        a, b = self.operand, other.operand
        return (a.type, a.scale, a.zero_point, a.extra_params) == (
            b.type,
            b.scale,
            b.zero_point,
            b.extra_params,
        )


# -- memory ----------------------------------------------------------------------------------------


class Memory(RuntimeObject):
    """Bytes that arguments lie in: shared memory, a descriptor from outside, or a driver's own memory.

    It belongs to no device; each driver that uses it attaches it. Made by `allocate`, `from_fd`, and
    `MemoryDesc.create_memory`. Arrays made from it keep its mapping alive. Thread-safe except for its bytes.

    NNAPI: RT:Y1 to Y9, Memory.cpp.

    Attributes:
        size: number of bytes; 0 if it is the driver's alone.
    """

    def __init__(
        self,
        size: int,
        store: MemoryStore | None,
        roles: MemoryRoles | None = None,
        buffer: Buffer | None = None,
    ) -> None:
        """Use `allocate`, `from_fd` or `MemoryDesc.create_memory`.

        Args:
            size: number of bytes; 0 if not known.
            store: the store of the bytes; None if a driver keeps them.
            roles: the uses, if the memory was made from a `MemoryDesc`.
            buffer: the driver's buffer, if a driver keeps the bytes.
        """
        super().__init__()
        self.size = size
        self._store = store
        self._roles = roles
        self._buffer = buffer
        self._lock = threading.RLock()  # a signal handler may compute while its thread is in here
        self._initialized = roles is None
        self._dimensions: tuple[int, ...] = roles.operand.dimensions if roles else ()

    @classmethod
    def allocate(cls, size: int) -> Memory:
        """Allocate zeroed shared memory.

        Raises:
            InvalidArgument: `size` is not positive.
            ResourceExhausted: there is not enough memory.
        """
        vlog.write("memory", "shared memory of %d bytes", size)
        return cls(size, new_pool(size))

    @classmethod
    def _of_pool(cls, pool: Pool) -> Memory:
        """Make a memory that owns a pool."""
        return cls(pool.size, PoolStore(pool))

    @classmethod
    def from_fd(
        cls, size: int, fd: int, *, prot: int = _BOTH, offset: int = 0, seal: bool = False
    ) -> Memory:
        """Make a memory from a descriptor (NNAPI: ANeuralNetworksMemory_createFromFd).

        Drivers map a memfd of ordinary pages that has the seals SHRINK, GROW and SEAL, if `prot` allows
        reading and writing and `offset` is 0. Everything else (files, memfds without seals, other `prot` or
        `offset`) is staged: read before and written back after each computation.

        Args:
            size: number of bytes.
            fd: the descriptor, which stays the caller's and may be closed at once.
            prot: `mmap.PROT_READ`, `PROT_WRITE`, or both.
            offset: offset of the first byte in the file.
            seal: whether a memfd may be sealed, so that it can never be resized and drivers can map it.

        Raises:
            InvalidArgument: `size`, `prot` or `offset` is not valid, or `fd` is negative; BAD_DATA.
            GeneralFailure: `fd` is not open; OP_FAILED.
        """
        return cls(size, adopt(size, prot, fd, offset, seal=seal))

    # -- bytes -----------------------------------------------------------------------------------------------

    @property
    def is_shared(self) -> bool:
        """Whether drivers map the memory, so that nothing is copied."""
        return isinstance(self._store, PoolStore)

    @property
    def bytes(self) -> Bytes:
        """All bytes in place as a uint8 array.

        Raises:
            Unmappable: the memory is staged, or a driver keeps the bytes.
        """
        self._check_open()
        if not isinstance(self._store, PoolStore):
            raise Unmappable("memory: it is not mapped here: use `read` and `write`")
        return self._store.read(0, self.size)

    def read(self, offset: int = 0, length: int = 0) -> Bytes:
        """Bytes as a uint8 array: in place if the memory is shared, else a copy.

        Args:
            offset: offset of the first byte.
            length: number of bytes; 0 for all up to the end. A driver's buffer is always read whole.

        Raises:
            InvalidArgument: the range does not lie in shared memory.
            Unmappable: the bytes cannot be read.
        """
        self._check_open()
        if self._store is None:
            return self._buffer_bytes()
        return self._store.read(offset, length or self.size - offset)

    def _room(self, offset: int = 0, length: int = 0) -> Bytes:
        """Bytes for a computation that writes: as `read`, but zeros if the memory cannot be read."""
        with contextlib.suppress(Unmappable):
            return self.read(offset, length)
        return np.zeros(length or self.size - offset, np.uint8)

    def write(self, offset: int, content: Bytes) -> None:
        """Write back the bytes that a computation wrote into a copy; do nothing if they are in place.

        Args:
            offset: offset of the first byte.
            content: a uint8 array.

        Raises:
            Unmappable: the memory cannot be written.
        """
        if self._store is not None:
            self._store.write(offset, content)

    def _constants(self) -> Pool:
        """A pool with the present bytes: the memory's own pool if it is shared, else a copy."""
        if isinstance(self._store, PoolStore):
            return self._store.pool
        return filled_pool(self.read())

    def _buffer_bytes(self) -> Bytes:
        assert self._buffer is not None
        found: Bytes = np.ascontiguousarray(self._buffer.copy_to()).reshape(-1).view(np.uint8)
        return found

    # -- permitted uses --------------------------------------------------------------------------------------

    def _check_constant(self, offset: int, length: int) -> None:
        """Refuse a range that is not valid for a constant (RT:Y2, Y4)."""
        self._check_open()
        if self._roles is not None:
            raise InvalidArgument("memory: one that was made from a descriptor holds no constants")
        self._check_range(offset, length)

    def _check_argument(
        self, role: Role, dimensions: Sequence[int] | None, offset: int, length: int
    ) -> None:
        """Refuse a range that is not valid, or a use that the memory was not made for (RT:Y2, Y4).

        Args:
            role: compilation, direction and index.
            dimensions: dimensions of the argument's type; None without a type.
            offset: offset of the range.
            length: length of the range.
        """
        self._check_open()
        if self._roles is None:
            self._check_range(offset, length)
            return
        if role.key not in self._roles.keys:
            raise InvalidArgument(f"memory: {role} is not a role that it was made for")
        if offset or length:
            raise InvalidArgument(
                "memory: one that was made from a descriptor is used whole: 0 and 0"
            )
        if dimensions:
            try:
                combine_dimensions(self._roles.operand.dimensions, tuple(dimensions))
            except Broken as broken:
                raise broken.at("memory") from None

    def _check_range(self, offset: int, length: int) -> None:
        if offset < 0 or length < 0 or offset + length > self.size:
            raise InvalidArgument(
                f"memory: offset {offset} and length {length} lie outside of its {self.size} bytes"
            )
        if not offset and not length:
            raise InvalidArgument("memory: offset and length are both 0")

    # -- state -----------------------------------------------------------------------------------------------

    @property
    def _is_described(self) -> bool:
        """Whether the memory was made from a `MemoryDesc`."""
        return self._roles is not None

    @property
    def is_initialized(self) -> bool:
        """Whether the memory holds a value (RT:Y8); always True unless `MemoryDesc.create_memory` made it."""
        return self._initialized

    @property
    def dimensions(self) -> tuple[int, ...]:
        """Dimensions of the value written last, or those that the uses give; empty if unknown."""
        return self._dimensions

    def _written(self, dimensions: Sequence[int] | None) -> None:
        """Note the dimensions that an execution or a copy has written; None if it has failed (RT:Y8).

        Raises:
            GeneralFailure: the dimensions do not fit the uses.
        """
        if self._roles is None:
            return
        with self._lock:
            self._initialized = False
            if dimensions is None:
                self._dimensions = self._roles.operand.dimensions
                return
            try:
                self._dimensions = combine_dimensions(
                    self._roles.operand.dimensions, tuple(dimensions)
                )
            except Broken as broken:
                raise GeneralFailure(str(broken.at("memory"))) from None
            self._initialized = True

    def _metadata(self) -> tuple[int, MemoryRoles | None, tuple[int, ...]]:
        if self._roles is None:
            return self.size, None, ()
        size = self._roles.size_bytes(self._dimensions)
        return size, self._roles, self._dimensions

    def _takes(self, size: int, roles: MemoryRoles | None, dimensions: tuple[int, ...]) -> None:
        """Refuse a source that cannot be copied into this memory (RT:Y7)."""
        if self._roles is None:
            if size and size != self.size:
                raise InvalidArgument(f"dst: {self.size} bytes, the source has {size}")
            return
        if roles is not None and not self._roles.same_operand(roles):
            raise InvalidArgument(
                "dst: its operand differs in type or quantisation from the source's"
            )
        try:
            combined = combine_dimensions(self._roles.operand.dimensions, dimensions)
        except Broken as broken:
            raise broken.at("dst") from None
        needed = self._roles.size_bytes(combined)
        if not needed and self._buffer is not None:
            raise InvalidArgument(
                f"dst: its dimensions are {list(combined)}, and the source has none for those that are 0"
            )
        if needed and size and needed != size:
            raise InvalidArgument(f"dst: {needed} bytes, the source has {size}")

    @staticmethod
    def copy(src: Memory, dst: Memory) -> None:
        """Copy the whole content of `src` to `dst` (NNAPI: ANeuralNetworksMemory_copy).

        After a failure, a `dst` from `MemoryDesc.create_memory` holds no value.

        Raises:
            UnexpectedNull: a memory is None.
            InvalidArgument: RT:Y7: `src` holds no value, or `dst` cannot hold it; BAD_DATA.
            Unmappable: a memory cannot be read or written.
            NnburstError: the driver failed.
        """
        if src is None or dst is None:
            raise UnexpectedNull("copy: src or dst is None")
        src._check_open()
        dst._check_open()
        if src is dst:
            return
        try:
            if not src.is_initialized:
                raise InvalidArgument("src: it holds nothing")  # noqa: TRY301 - RT:Y7: of a copy, too
            size, roles, dimensions = src._metadata()
            dst._takes(size, roles, dimensions)
            dst._fill(src.read()[: size or None], dimensions)
        except BaseException:
            dst._spoiled()
            raise
        dst._written(dimensions or (dst._roles.operand.dimensions if dst._roles else ()))

    def _spoiled(self) -> None:
        with contextlib.suppress(NnburstError):
            self._written(None)

    def _fill(self, content: Bytes, dimensions: tuple[int, ...]) -> None:
        if self._store is not None:
            if content.size > self.size:
                raise InvalidArgument(f"dst: {self.size} bytes, the source has {content.size}")
            if self._store.in_place:
                self._store.read(0, content.size)[...] = content
            else:
                self._store.write(0, content)
            return
        assert self._buffer is not None
        parameter = parameter_of(self._buffer)
        shape = dimensions or parameter.dimensions
        self._buffer.copy_from(content.view(parameter.dtype).reshape(shape))

    # -- closing ---------------------------------------------------------------------------------------------

    def _release(self) -> None:
        if self._buffer is not None:
            self._buffer.close()
        if self._store is not None:
            self._store.close()

    def __repr__(self) -> str:
        kind = "described" if self._roles else "shared" if self.is_shared else "staged"
        return f"<nnburst.runtime.Memory: {self.size} bytes, {kind}>"
