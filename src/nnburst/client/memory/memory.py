"""Pools of shared memory that driver and client both map, with numpy views on the client's side.

    memory = device.allocate(4096)            # zeroed; so is Memory(4096)
    memory = Memory.from_fd(sealed_memfd)     # what another program writes to, where it is
    memory = Memory.from_file("weights.bin")  # copied once
    memory = Memory.from_dlpack(tensor)       # copied once

A pool belongs to no driver: it is attached to each that uses it, by the first call that names it.
"""

from __future__ import annotations

import contextlib
import itertools
import math
import operator
import os
import threading
import weakref
from collections.abc import Callable, Sequence
from typing import Any, Final, Self

import numpy as np
import numpy.typing as npt

from nnburst.client.memory.foreign_memory import adopt_memfd, open_file, read_all, readable_array
from nnburst.fmq.shared_memory import SharedMemory
from nnburst.hal.closing import Closing
from nnburst.hal.errors import Closed, InvalidArgument, ResourceExhausted

Array = npt.NDArray[Any]
_numbers: Final = itertools.count(1)


class _State:
    """What outlives a Memory object until its descriptor is closed."""

    def __init__(self, shared: SharedMemory) -> None:
        self.shared = shared
        self.lock = threading.Lock()
        self.closed = False
        self.callbacks: list[Callable[[int], None]] = []

    def close(self, number: int) -> None:
        with self.lock:
            if self.closed:
                return
            self.closed = True
            callbacks, self.callbacks = self.callbacks, []
            self.shared.close()
        for callback in callbacks:
            callback(number)


class Memory(Closing):
    """A pool of shared memory: a sealed memfd, mapped. Thread-safe but for the bytes. A context manager.

    Made by `Device.allocate`, or by `from_fd`, `from_file` and `from_dlpack` of what exists. Arrays made
    from it keep the mapping alive, whatever happens to this object; drivers find such arrays where they
    lie and nothing is copied. Supports `numpy.asarray(memory)` and DLPack.

    Attributes:
        size: in bytes.
    """

    _instead = "send its descriptor over a Unix socket and use Memory.from_fd there"

    def __init__(self, size: int) -> None:
        """Allocate `size` > 0 bytes, zeroed.

        Raises:
            InvalidArgument: `size` is not a positive integer.
            ResourceExhausted: there is not so much memory.
        """
        try:
            size = operator.index(size)
        except TypeError:
            raise InvalidArgument(f"size: {size!r}, expected a number of bytes") from None
        if size <= 0:
            raise InvalidArgument(f"size: {size} bytes, expected more than 0")
        self._own(SharedMemory.create(size, name="pool"), writable=True)

    @classmethod
    def _adopt(cls, shared: SharedMemory, *, writable: bool) -> Self:
        """Take over a sealed region.

        Args:
            shared: closed if it cannot be mapped.
            writable: whether arrays can be written.

        Raises:
            ResourceExhausted: it cannot be mapped.
        """
        memory = cls.__new__(cls)
        try:
            memory._own(shared, writable=writable)
        except BaseException:
            shared.close()
            raise
        return memory

    def _own(self, shared: SharedMemory, *, writable: bool) -> None:
        self.size = shared.size
        self._number = next(_numbers)  # unique in this process, never used again
        self._state = _State(shared)
        # Not at exit: a forked child would wait for a lock that another thread held at the fork.
        weakref.finalize(self, self._state.close, self._number).atexit = False
        self._bytes: npt.NDArray[np.uint8] = shared.map(writable=writable)[: self.size]
        self._address: int = self._bytes.__array_interface__["data"][0]

    @staticmethod
    def from_fd(fd: int, *, seal: bool = False) -> Memory:
        """Make a pool of an existing memfd in place: nothing is copied.

        It needs the seals SHRINK, GROW and SEAL, or it could vanish under its readers. Arrays are read-only
        if it is open for reading only or sealed against writing; such a pool holds inputs and constants.

        Args:
            fd: stays the caller's, who may close it at once.
            seal: whether to add the seals that it lacks, after which its owner can never resize it again.

        Raises:
            InvalidArgument: `fd` is not a memfd, is not sealed and may not or cannot be, is empty, of huge
                pages, or cannot be read; nothing was sealed.
            ResourceExhausted: it cannot be mapped.
        """
        shared, writable = adopt_memfd(fd, seal=seal)
        return Memory._adopt(shared, writable=writable)

    @staticmethod
    def from_file(path: str | os.PathLike[str]) -> Memory:
        """A new pool with the bytes of a file, which the kernel copies once.

        A file may shrink under its reader, which kills processes that map it; so it is never mapped.

        Args:
            path: of a regular file.

        Raises:
            InvalidArgument: it is not a regular file, is empty, or became shorter meanwhile.
            ResourceExhausted: there is not so much memory.
            OSError: it cannot be read.
        """
        with open_file(path) as (file, size):
            memory = Memory(size)
            try:
                read_all(file, memory.view())
            except BaseException:
                memory.close()
                raise
        return memory

    @staticmethod
    def from_dlpack(array: object) -> Memory:
        """A new pool with the numbers of an array, in C order, which are copied once.

        `memory.array(dtype, shape)` is the array again.

        Args:
            array: anything with `__dlpack__` in the CPU's memory (numpy, torch, jax, another pool), of
                any strides.

        Raises:
            InvalidArgument: it offers no DLPack, lies elsewhere, is of a type that numpy lacks, or empty.
            ResourceExhausted: there is not so much memory.
        """
        source = readable_array(array)
        memory = Memory(source.nbytes)
        memory.array(source.dtype, source.shape)[...] = source
        return memory

    @property
    def __array_interface__(self) -> dict[str, Any]:
        """What numpy needs to make an array whose `base` is this object."""
        return self._bytes.__array_interface__

    def array(self, dtype: npt.DTypeLike, shape: Sequence[int], offset: int = 0) -> Array:
        """A view of part of the pool, which keeps the mapping alive.

        Args:
            dtype: of the elements.
            shape: of the view; row-major, no padding.
            offset: of its first byte.

        Raises:
            InvalidArgument: the view would not lie in the pool.
            Closed: the pool is closed.
        """
        self._check_open()
        kind, extents = np.dtype(dtype), tuple(int(extent) for extent in shape)
        if offset < 0 or any(extent < 0 for extent in extents):
            raise InvalidArgument(f"offset {offset} and shape {extents} must not be negative")
        length = kind.itemsize * math.prod(extents)
        if offset + length > self.size:
            raise InvalidArgument(
                f"offset: {length} bytes from {offset} do not fit a pool of {self.size}"
            )
        return np.asarray(self)[offset : offset + length].view(kind).reshape(extents)

    def view(self) -> memoryview:
        """All bytes, read-only if the pool is: classes have no buffer protocol in Python 3.11.

        Raises:
            Closed: the pool is closed.
        """
        self._check_open()
        return np.asarray(self).data

    def __dlpack__(self, **options: Any) -> Any:  # noqa: ANN401 - a capsule
        """The bytes as a DLPack capsule of uint8."""
        self._check_open()
        return np.asarray(self).__dlpack__(**options)

    def __dlpack_device__(self) -> tuple[int, int]:
        """The CPU."""
        kind, number = self._bytes.__dlpack_device__()
        return int(kind), int(number)

    def duplicate(self) -> int:
        """A descriptor of the pool that the caller owns and closes.

        Raises:
            Closed: the pool is closed.
            ResourceExhausted: this process may have no more descriptors.
        """
        with self._state.lock:
            self._check_open()
            try:
                return os.dup(self._state.shared.fd)
            except OSError as error:
                raise ResourceExhausted(
                    f"the pool's descriptor cannot be duplicated: {error}"
                ) from error

    def _on_close(self, callback: Callable[[int], None]) -> None:
        """Call `callback(number)` once when the pool is closed or cannot be reached any more.

        Raises:
            Closed: that has happened.
        """
        with self._state.lock:
            self._check_open()
            self._state.callbacks.append(callback)

    def _remove_callback(self, callback: Callable[[int], None]) -> None:
        """Do not call `callback` any more; unknown ones are ignored."""
        with self._state.lock, contextlib.suppress(ValueError):
            self._state.callbacks.remove(callback)

    @property
    def closed(self) -> bool:
        """Whether `close` was called."""
        return self._state.closed

    def close(self) -> None:
        """Release descriptor and slots at once, and the mapping with its last view.

        Live views stay valid. Twice is fine.
        """
        self._state.close(self._number)

    def __repr__(self) -> str:
        state = "closed" if self.closed else "open"
        return f"<nnburst.Memory {self._number}: {self.size} bytes, {state}>"

    def _check_open(self) -> None:
        if self._state.closed:
            raise Closed("the pool is closed")


def find_memory(array: Array) -> tuple[Memory, int] | None:
    """The pool that an array lies in and the offset of its first byte; None for other arrays.

    Follows `base`, so it takes the same time for any number of pools.
    """
    base: object = array.base
    while isinstance(base, np.ndarray | memoryview):
        base = base.base if isinstance(base, np.ndarray) else base.obj
    if not isinstance(base, Memory) or base.closed:
        return None
    return base, int(array.__array_interface__["data"][0]) - base._address
