"""Makes the memory that client and driver share, or adopts memory of other programs.

    memory = device.allocate(4096)            # zeroed; so is Memory(4096)
    memory = Memory.from_fd(sealed_memfd)     # memory of another program, used in place
    memory = Memory.from_file("weights.bin")  # copied once
    memory = Memory.from_dlpack(tensor)       # copied once

A memory is a pool that driver and client both map, with numpy views on the client's side. It belongs to no
driver: the first call with the pool attaches it to the driver that is called.

A pool must never shrink while a process reads it. Only the size seals of a memfd guarantee that, so a memfd
that accepts them becomes a pool without a copy; files, arrays and other shared memory are copied once.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import functools
import io
import itertools
import math
import operator
import os
import threading
import weakref
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Final, NamedTuple, Self

import numpy as np
import numpy.typing as npt

from nnburst.fmq.shared_memory import SIZE_SEALS, SharedMemory
from nnburst.hal.errors import Closed, InvalidArgument, ResourceExhausted
from nnburst.hal.model import checked_dtype, refuse_masked
from nnburst.hal.regular_file import kind_of, open_regular_file
from nnburst.hal.utils import Closing, Scarce, check_integer, check_integers, check_owner

_COPY_INSTEAD: Final = "Memory.from_file and Memory.from_dlpack copy what cannot be sealed"


def adopt_memfd(fd: int, *, seal: bool) -> tuple[SharedMemory, bool]:
    """Duplicate the descriptor of a sealed memfd; if allowed, seal it first.

    A memfd that is refused is not sealed.

    Args:
        fd: stays the caller's.
        seal: whether the memfd may be sealed.

    Returns:
        The region, and whether it can be written to.

    Raises:
        InvalidArgument: `fd` is not a memfd, lacks seals and may not or cannot be sealed, is empty, is of
            huge pages, or cannot be read.
    """
    own = _duplicate(fd)
    try:
        _check_sealed(own, seal=seal)
    except BaseException:
        os.close(own)
        raise
    shared = SharedMemory.adopt(own)
    return shared, shared.is_writable


def _duplicate(fd: int) -> int:
    try:
        with Scarce(f"fd: {fd} cannot be duplicated"):
            return fcntl.fcntl(operator.index(fd), fcntl.F_DUPFD_CLOEXEC, 0)
    except TypeError:
        raise InvalidArgument(f"fd: {fd!r}, expected a file descriptor") from None
    except (OSError, ValueError, OverflowError) as error:
        raise InvalidArgument(f"fd: {fd} is not open: {error}") from None


def _check_sealed(fd: int, *, seal: bool) -> None:
    """Check the seals, and add the missing ones if `seal`; all other checks come first."""
    try:
        seals = fcntl.fcntl(fd, fcntl.F_GET_SEALS)
    except OSError:
        kind = kind_of(os.fstat(fd).st_mode)
        raise InvalidArgument(
            f"fd: {kind} is not a memfd and may shrink while it is read; {_COPY_INSTEAD}"
        ) from None
    if os.fstatvfs(fd).f_bsize != os.sysconf("SC_PAGESIZE"):
        raise InvalidArgument("fd: a memfd of huge pages is not accepted")
    if os.fstat(fd).st_size == 0:
        raise InvalidArgument("fd: the memfd has 0 bytes")
    access = fcntl.fcntl(fd, fcntl.F_GETFL) & os.O_ACCMODE
    if access == os.O_WRONLY:
        raise InvalidArgument("fd: the memfd is open for writing only, expected reading, too")
    missing = SIZE_SEALS & ~seals
    if not missing:
        return
    if seals & fcntl.F_SEAL_SEAL:
        raise InvalidArgument(
            "fd: may shrink while it is read and takes no seals: not a memfd, or made without"
            f" MFD_ALLOW_SEALING; {_COPY_INSTEAD}"
        )
    if access != os.O_RDWR:
        raise InvalidArgument(
            "fd: the memfd lacks the seals SHRINK, GROW and SEAL and is open for reading only,"
            " so that they cannot be added"
        )
    if not seal:
        raise InvalidArgument(
            "fd: the memfd may shrink while it is read: it lacks the seals SHRINK, GROW and SEAL;"
            " seal=True adds them, and it can never be resized from then on"
        )
    try:
        fcntl.fcntl(fd, fcntl.F_ADD_SEALS, missing)
    except OSError as error:
        raise InvalidArgument(f"fd: the memfd cannot be sealed: {error.strerror}") from None


@contextmanager
def open_file(path: str | os.PathLike[str]) -> Iterator[tuple[io.FileIO, int]]:
    """Open a regular file; returns it and its size in bytes, at least 1.

    Raises:
        InvalidArgument: it is not a regular file, or empty.
        OSError: it cannot be opened.
    """
    with open_regular_file(path) as file:
        size = os.fstat(file.fileno()).st_size
        if size == 0:
            raise InvalidArgument(f"path: {os.fspath(path)} is empty")
        yield file, size


def read_all(file: io.FileIO, target: memoryview) -> None:
    """Fill `target` with the file's first bytes; the kernel copies them.

    Raises:
        InvalidArgument: the file became shorter.
        ResourceExhausted: there is not enough memory.
    """
    done = 0
    while done < len(target):
        try:
            count = file.readinto(target[done:])
        except OSError as error:
            if error.errno in (errno.EFAULT, errno.ENOMEM):
                raise ResourceExhausted(
                    f"this process has no memory for {len(target)} bytes"
                ) from error
            raise
        if not count:
            raise InvalidArgument(
                f"path: {file.name} has shrunk to {done} of {len(target)} bytes while it was read"
            )
        done += count


def readable_array(array: object) -> npt.NDArray[Any]:
    """A numpy view of an object that offers DLPack.

    Raises:
        InvalidArgument: it offers no DLPack, lies in a device's memory, has a type that numpy lacks, or is
            empty.
    """
    refuse_masked("array", array)
    if isinstance(array, np.ndarray):
        view: npt.NDArray[Any] = array  # also if read-only ones cannot be exported
        if view.dtype.hasobject:
            raise InvalidArgument(f"array: dtype {view.dtype} holds references, expected numbers")
    elif not hasattr(array, "__dlpack__") or not hasattr(array, "__dlpack_device__"):
        raise InvalidArgument(
            f"array: of type {type(array).__name__}, expected one with __dlpack__"
        )
    else:
        try:
            view = np.from_dlpack(array)
        except (BufferError, RuntimeError, TypeError, ValueError) as error:
            raise InvalidArgument(f"array: numpy cannot read it in place: {error}") from error
    if view.nbytes == 0:
        raise InvalidArgument(f"array: shape {view.shape} has 0 bytes")
    return view


# -- memory ----------------------------------------------------------------------------------------


Array = npt.NDArray[Any]
_numbers: Final = itertools.count(1)


class _State:
    """The part of a Memory object that outlives it, until the descriptor is closed."""

    def __init__(self, shared: SharedMemory) -> None:
        self.shared = shared
        # Reentrant: a signal handler of the program may use the pool while its thread is in here.
        self.lock = threading.RLock()
        self.closed = False
        self.callbacks: list[Callable[[int], None]] = []

    def close(self, number: int) -> None:
        with self.lock:
            self.closed = True
            self.shared.close()
        # Taken in one step, so that this thread alone calls them: making a list may let other threads run.
        none: list[Callable[[int], None]] = []
        callbacks, self.callbacks = self.callbacks, none
        try:
            while callbacks:
                callbacks[0](number)
                del callbacks[0]
        finally:  # the next call goes on with what an interruption has left
            self.callbacks += callbacks


class Memory(Closing):
    """A pool of shared memory: a sealed memfd, mapped. Thread-safe but for the bytes. A context manager.

    Made by `Device.allocate`, or from existing data by `from_fd`, `from_file` and `from_dlpack`. Arrays of
    the pool keep the mapping alive, even after this object is closed; drivers use such arrays in place,
    without a copy. Supports `numpy.asarray(memory)` and DLPack; once it is closed it makes no arrays.

    A forked child maps neither the pool nor its arrays: it gets no array from this object, and crashes if it
    reads or writes one of its parent's. `Memory.from_fd(memory.duplicate())` maps the pool there.

    Attributes:
        size: in bytes.
    """

    _instead = "send its descriptor over a Unix socket and use Memory.from_fd there"

    def __init__(self, size: int) -> None:
        """Allocate `size` > 0 bytes, zeroed.

        Raises:
            InvalidArgument: `size` is not a positive integer.
            ResourceExhausted: there is not enough memory.
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
        self._owner = os.getpid()
        self._number = next(_numbers)  # unique in this process, never used again
        self._state = _State(shared)
        # Not at exit: a forked child would wait for a lock that another thread held at the fork.
        weakref.finalize(self, self._state.close, self._number).atexit = False
        self._bytes: npt.NDArray[np.uint8] = shared.map(writable=writable)[: self.size]
        self._address: int = self._bytes.__array_interface__["data"][0]

    @staticmethod
    def from_fd(fd: int, *, seal: bool = False) -> Memory:
        """Make a pool of an existing memfd in place, without a copy.

        The memfd needs the seals SHRINK, GROW and SEAL, since a process that reads it would crash if it
        shrank. If it is open for reading only or sealed against writing, its arrays are read-only, and the
        pool can hold inputs and constants only.

        Args:
            fd: stays the caller's, who may close it at once.
            seal: whether to add missing seals, after which nothing can resize the memfd.

        Raises:
            InvalidArgument: `fd` is not a memfd, lacks seals and may not or cannot be sealed, is empty, is of
                huge pages, or cannot be read; nothing was sealed.
            ResourceExhausted: it cannot be mapped.
        """
        shared, writable = adopt_memfd(fd, seal=seal)
        return Memory._adopt(shared, writable=writable)

    @staticmethod
    def from_file(path: str | os.PathLike[str]) -> Memory:
        """Make a new pool with the bytes of a file, which the kernel copies once.

        The file is never mapped: if it shrank, processes that map it would crash.

        Args:
            path: path of a regular file.

        Raises:
            InvalidArgument: it is not a regular file, is empty, or became shorter meanwhile.
            ResourceExhausted: there is not enough memory.
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
        """Make a new pool with a copy of an array's elements, in C order.

        `memory.array(dtype, shape)` views them as the same array.

        Args:
            array: an object with `__dlpack__` in the CPU's memory (numpy, torch, jax, another pool), with
                any strides.

        Raises:
            InvalidArgument: it offers no DLPack, lies in a device's memory, has a type that numpy lacks, or
                is empty.
            ResourceExhausted: there is not enough memory.
        """
        source = readable_array(array)
        memory = Memory(source.nbytes)
        memory.array(source.dtype, source.shape)[...] = source
        return memory

    @property
    def __array_interface__(self) -> dict[str, Any]:
        """The description from which numpy makes an array whose `base` is this object.

        Raises:
            Closed: the pool is closed, or this is a forked child.
        """
        self._check_open()
        check_owner(self._owner, "the pool")
        return self._bytes.__array_interface__

    def array(self, dtype: npt.DTypeLike, shape: Sequence[int], offset: int = 0) -> Array:
        """A view of part of the pool, which keeps the mapping alive.

        Args:
            dtype: dtype of the elements.
            shape: shape of the view; row-major, no padding.
            offset: offset of its first byte in the pool.

        Raises:
            InvalidArgument: the view would not lie within the pool, or its elements have no bytes there.
            Closed: the pool is closed, or this is a forked child.
        """
        self._check_open()
        kind, extents = checked_dtype(dtype), check_integers("shape", shape)
        offset = check_integer("offset", offset)
        if offset < 0 or any(extent < 0 for extent in extents):
            raise InvalidArgument(f"offset {offset} and shape {extents} must not be negative")
        if not kind.itemsize:
            raise InvalidArgument(f"dtype is {kind}, expected one with a size")
        length = kind.itemsize * math.prod(extents)
        if offset + length > self.size:
            raise InvalidArgument(
                f"offset: {length} bytes from {offset} do not fit a pool of {self.size}"
            )
        raw = np.asarray(self)[offset : offset + length]
        try:
            return raw.view(kind).reshape(extents)
        except ValueError as error:  # more extents, or larger ones, than numpy has
            raise InvalidArgument(f"shape is {extents}: {error}") from None

    def view(self) -> memoryview:
        """A view of all bytes, read-only if the pool is; classes lack a buffer protocol in Python 3.11.

        Raises:
            Closed: the pool is closed, or this is a forked child.
        """
        return np.asarray(self).data

    def __dlpack__(self, **options: Any) -> Any:  # noqa: ANN401 - a capsule
        """The bytes as a DLPack capsule of uint8.

        Raises:
            Closed: the pool is closed, or this is a forked child.
        """
        return np.asarray(self).__dlpack__(**options)

    def __dlpack_device__(self) -> tuple[int, int]:
        """The device of the bytes in DLPack: the CPU."""
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
        """Call `callback(number)` once when the pool is closed or collected; again if that is interrupted.

        Raises:
            Closed: the pool is closed.
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
        """Release descriptor and slots at once; the mapping goes with the last view.

        Live views stay valid. Twice is fine.
        """
        self._state.close(self._number)

    def __repr__(self) -> str:
        state = "closed" if self.closed else "open"
        return f"<nnburst.Memory {self._number}: {self.size} bytes, {state}>"

    @functools.cached_property
    def _identity(self) -> tuple[int, int]:
        """Device and inode of the memory, which several pools may map.

        Raises:
            Closed: the pool is closed.
        """
        with self._state.lock:
            self._check_open()
            status = os.fstat(self._state.shared.fd)
        return status.st_dev, status.st_ino

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


def share(pool: Memory) -> Memory:
    """Another pool over the same memory, which is closed on its own.

    Raises:
        Closed: the pool is closed.
        ResourceExhausted: there are no more descriptors, or it cannot be mapped.
    """
    shared = SharedMemory(pool.duplicate(), pool.size)
    return Memory._adopt(shared, writable=pool._bytes.flags.writeable)


def refuse_overlap(inputs: Sequence[Any], outputs: Sequence[Any]) -> None:
    """Refuse an output that shares bytes with another output or, in a pool, with an input.

    An executor writes an output in a pool in place, and may read the input later. Outputs in no pool are
    copied one after the other, so only one of them would last; inputs in no pool are copied before the
    execution.

    Raises:
        InvalidArgument: two of them overlap.
    """
    extents = _extents("outputs", outputs)
    if len(extents) < 2 and not any(extent.is_pool for extent in extents):
        return
    extents = sorted([*extents, *_extents("inputs", inputs)])
    for memory, found in itertools.groupby(extents, key=operator.attrgetter("memory")):
        end, last, output_end, last_output = 0, "", 0, ""
        for _, start, stop, name, is_output in found:
            other = last if is_output and start < end else last_output if start < output_end else ""
            if other:
                where = " in a pool" if memory != _OWN else ""
                raise InvalidArgument(
                    f"{name} overlaps {other}{where}, expected outputs with places of their own"
                )
            if stop > end:
                end, last = stop, name
            if is_output:
                output_end, last_output = stop, name


#: Stands for the memory of arrays in no pool.
_OWN: Final = (0, 0)


class _Extent(NamedTuple):
    """The bytes of an array.

    Attributes:
        memory: the pool's memory, which other pools may map elsewhere; _OWN for an array in no pool.
        start: offset of the first byte in that memory; the address of an array in no pool.
        stop: offset or address behind the last byte.
        name: the argument's name.
        is_output: whether it is an output.
    """

    memory: tuple[int, int]
    start: int
    stop: int
    name: str
    is_output: bool

    @property
    def is_pool(self) -> bool:
        """Whether the array lies in a pool."""
        return self.memory != _OWN


def _extents(kind: str, arrays: Sequence[Any]) -> list[_Extent]:
    """The extents of all outputs, or of the inputs in pools."""
    is_output, found = kind == "outputs", []
    for number, array in enumerate(arrays):
        if not isinstance(array, np.ndarray):
            continue
        place = find_memory(array)
        if place is not None:
            memory, start = place[0]._identity, place[1]
        else:
            memory, start = _OWN, int(array.__array_interface__["data"][0])
        if place is not None or is_output:
            name = f"{kind}[{number}]"
            found.append(_Extent(memory, start, start + array.nbytes, name, is_output))
    return found


#: From this number of arrays on, sorting their addresses is faster than comparing each two of them.
_MANY: Final = 9


def may_overlap(arrays: Sequence[Any]) -> bool:
    """Whether contiguous arrays share bytes: what each execution on similar arrays can afford to look for.

    Objects of other types, such as None, are skipped.
    """
    if len(arrays) < 2:
        return False
    found = [array for array in arrays if isinstance(array, np.ndarray)]
    if len(found) == 2:
        return np.may_share_memory(found[0], found[1])
    if all(array.base is None for array in found):  # each has memory of its own
        return len(set(map(id, found))) < len(found)
    if len(found) < _MANY:
        return any(itertools.starmap(np.may_share_memory, itertools.combinations(found, 2)))
    ends = sorted((extent.start, extent.stop) for extent in _extents("outputs", found))
    return any(stop > start for (_, stop), (start, _) in itertools.pairwise(ends))


def pool_over(shared: SharedMemory, *, writable: bool) -> Memory:
    """A pool that takes over a sealed region; see `Memory._adopt`."""
    return Memory._adopt(shared, writable=writable)
