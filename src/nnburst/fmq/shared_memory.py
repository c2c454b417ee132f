"""Shared memory that cannot shrink under its reader: a memfd with every size seal.

    memory = SharedMemory.create(4096)
    view = memory.map(writable=True)      # numpy bytes; the mapping lives as long as any view of it
    memory.close()                        # the fd only

A foreign fd is accepted only as such a memfd (`adopt`): then no access can raise SIGBUS, and nothing has a
name that could outlive its users.
"""

from __future__ import annotations

import fcntl
import os
import sys
from functools import partial
from typing import TYPE_CHECKING, Any, Final, Self, TypeAlias

from nnburst._native import ffi, lib
from nnburst.hal.closing import Closing
from nnburst.hal.errors import Closed, InvalidArgument, ResourceExhausted
from nnburst.hal.imports import late_numpy as np

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
