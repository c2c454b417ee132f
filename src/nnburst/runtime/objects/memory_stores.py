"""Keeps the bytes of a memory in a pool that drivers share, or behind a descriptor that is copied."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import mmap
import operator
import os
from typing import Any, Final, Protocol

import numpy as np
import numpy.typing as npt

from nnburst.client.memory import Memory as Pool
from nnburst.client.memory import pool_over
from nnburst.fmq.shared_memory import SIZE_SEALS, SharedMemory
from nnburst.hal.errors import GeneralFailure, InvalidArgument, Unmappable
from nnburst.hal.utils import Scarce

Bytes = npt.NDArray[np.uint8]

_BOTH: Final = mmap.PROT_READ | mmap.PROT_WRITE
#: Bytes of the longest file that a kernel counts (`off_t`).
_LONGEST_FILE: Final = 2**63 - 1


class MemoryStore(Protocol):
    """The bytes of a memory of known size."""

    @property
    def in_place(self) -> bool:
        """Whether `read` gives the bytes themselves, in a pool."""

    def read(self, offset: int, length: int) -> Bytes:
        """Bytes for a computation: in place, or a copy of the present contents."""

    def write(self, offset: int, content: Bytes) -> None:
        """Store what a computation wrote into what `read` gave; nothing to do in place."""

    def close(self) -> None:
        """Give it up."""


class PoolStore:
    """A sealed memfd, shared with drivers as it is.

    Attributes:
        pool: attached to each driver that uses it.
    """

    in_place: Final = True

    def __init__(self, pool: Pool, *, owns: bool = True) -> None:
        """Use `pool`, and close it in the end if it is owned."""
        self.pool = pool
        self._owns = owns

    def read(self, offset: int, length: int) -> Bytes:
        """The bytes themselves."""
        found: Bytes = self.pool.array(np.uint8, (length,), offset)
        return found

    def write(self, offset: int, content: Bytes) -> None:
        """Nothing: `content` is in place."""

    def close(self) -> None:
        """Close the pool if it is owned; views keep its mapping."""
        if self._owns:
            self.pool.close()


class DescriptorStore:
    """A file, or a memfd without seals: read before and written back after each computation.

    No driver ever maps it, and this process neither: what can shrink can kill a process that maps it.
    """

    in_place: Final = False

    def __init__(self, fd: int, prot: int, offset: int) -> None:
        """Own `fd`, whose contents begin at `offset`."""
        self._fd = fd
        self._prot = prot
        self._offset = offset

    def read(self, offset: int, length: int) -> Bytes:
        """A copy.

        Raises:
            Unmappable: `prot` does not allow it, the descriptor cannot be read, or it is too short.
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
        """Write back.

        Raises:
            Unmappable: `prot` does not allow it, or the descriptor cannot be written.
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
    """Make a store of a foreign descriptor; a memfd that has the size seals is shared as it is.

    Args:
        size: bytes.
        prot: `mmap.PROT_READ`, `PROT_WRITE`, or both.
        fd: stays the caller's.
        offset: where its contents begin.
        seal: whether a memfd that has no seals yet is to get those that its sharing needs.

    Raises:
        InvalidArgument: a number makes no sense.
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
    """Whether it is a memfd of ordinary pages that can never shrink, or has just become one."""
    try:
        seals = fcntl.fcntl(fd, fcntl.F_GET_SEALS)
    except OSError as error:
        if error.errno == errno.EINVAL:
            return False  # no memfd
        raise GeneralFailure(f"fd: {error}") from None
    status = os.fstat(fd)
    if os.fstatvfs(fd).f_bsize != mmap.PAGESIZE or status.st_size < size:
        return False
    if fcntl.fcntl(fd, fcntl.F_GETFL) & os.O_ACCMODE != os.O_RDWR:
        return False
    if seal and seals & SIZE_SEALS != SIZE_SEALS:
        with contextlib.suppress(OSError):  # it takes no seals, and is staged
            fcntl.fcntl(fd, fcntl.F_ADD_SEALS, SIZE_SEALS & ~seals)
        seals = fcntl.fcntl(fd, fcntl.F_GET_SEALS)
    return seals & SIZE_SEALS == SIZE_SEALS


def new_pool(size: int) -> PoolStore:
    """A new pool of `size` zeroed bytes.

    Raises:
        ResourceExhausted: there is not so much memory.
    """
    return PoolStore(Pool(size))


def filled_pool(content: Any) -> Pool:  # noqa: ANN401 - anything that numpy copies
    """A new pool with these bytes."""
    source = np.frombuffer(content, np.uint8)
    pool = Pool(source.size)
    np.asarray(pool)[...] = source
    return pool
