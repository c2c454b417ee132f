"""Memory: HIDL names its kinds, AIDL has a union of them; the canonical ones are kinds of MemoryPool.

Descriptors travel beside a message; all structs here have only its place among them.

NNAPI: utils/common SharedMemory, aidl Memory. DEVIATES: hardware buffers do not exist on Linux. They
are carried between HIDL versions (OpaqueMemory), but never valid.
"""

from __future__ import annotations

from typing import Final

import msgspec

from nnburst.compat.layouts.levels import HalStruct, check_range, is_aidl
from nnburst.hal.enums import FeatureLevel
from nnburst.hal.errors import InvalidArgument
from nnburst.hal.limits import INT32_MAX, UINT32_MAX, UINT64_MAX
from nnburst.hal.model import BufferToken, MemoryPool

ASHMEM: Final = "ashmem"
MMAP_FD: Final = "mmap_fd"
HARDWARE_BUFFERS: Final = frozenset({"hardware_buffer_blob", "hardware_buffer"})

_INT64_MAX: Final = 2**63 - 1


class HidlMemory(msgspec.Struct, frozen=True):
    """hidl_memory: a kind by name, a size in bytes, and a native handle of descriptors and ints.

    "ashmem" has 1 descriptor; "mmap_fd" 1 and the ints protection, offset low, offset high.
    """

    name: str
    size: int
    fds: tuple[int, ...] = ()
    ints: tuple[int, ...] = ()


class Ashmem(msgspec.Struct, frozen=True, tag="ashmem"):
    """AIDL: sealed anonymous memory (a memfd) of `size` bytes."""

    fd: int
    size: int


class MappableFile(msgspec.Struct, frozen=True, tag="mappable_file"):
    """AIDL: `length` bytes at `offset` of a file, to be mapped with `prot`."""

    length: int
    prot: int
    fd: int
    offset: int


class MappedFile(MemoryPool, frozen=True, kw_only=True):
    """Canonical memory in an ordinary file.

    Attributes:
        protection: PROT_READ | PROT_WRITE, or one of them, or 0.
        offset: first byte of the file.
    """

    protection: int
    offset: int = 0


class OpaqueMemory(MemoryPool, frozen=True, kw_only=True):
    """Memory of a kind that cannot be mapped here; never valid, only carried between versions."""

    name: str
    fds: tuple[int, ...] = ()
    ints: tuple[int, ...] = ()


Memory = HidlMemory | Ashmem | MappableFile | BufferToken


def to_canonical(memory: Memory | MemoryPool, level: FeatureLevel) -> MemoryPool:
    """From a version's memory.

    Raises:
        InvalidArgument: not of that version, or its handle is not what its kind has (M3).
    """
    if isinstance(memory, BufferToken) and level >= FeatureLevel.V1_3:
        check_range("token", (memory.token,), 0, INT32_MAX if is_aidl(level) else UINT32_MAX)
        return memory
    if isinstance(memory, HidlMemory) and not is_aidl(level):
        return _from_hidl(memory)
    if isinstance(memory, Ashmem) and is_aidl(level):
        check_range("memory", (memory.fd, memory.size), 0, _INT64_MAX)
        return MemoryPool(memory.size, memory.fd)
    if isinstance(memory, MappableFile) and is_aidl(level):
        check_range("memory", (memory.length, memory.fd, memory.offset), 0, _INT64_MAX)
        return MappedFile(memory.length, memory.fd, protection=memory.prot, offset=memory.offset)
    raise InvalidArgument(
        f"validation:M3: {level.name} has no memory of type {type(memory).__name__}"
    )


def to_hal(pool: MemoryPool, level: FeatureLevel) -> HalStruct:
    """Into a version's memory.

    Raises:
        InvalidArgument: the version has no such memory, or a number does not fit its field.
    """
    if isinstance(pool, BufferToken):
        if level < FeatureLevel.V1_3:
            raise InvalidArgument(f"validation:R2: {level.name} has no buffer tokens")
        return to_canonical(pool, level)  # the same struct everywhere
    return _to_aidl(pool, level) if is_aidl(level) else _to_hidl(pool)


def _from_hidl(memory: HidlMemory) -> MemoryPool:
    check_range("memory.size", (memory.size,), 0, UINT64_MAX)
    check_range("memory.ints", memory.ints, -INT32_MAX - 1, INT32_MAX)
    kind = memory.name, len(memory.fds), len(memory.ints)
    if kind == (ASHMEM, 1, 0):
        return MemoryPool(memory.size, memory.fds[0])
    if kind == (MMAP_FD, 1, 3):
        protection, low, high = memory.ints
        offset = low & UINT32_MAX | (high & UINT32_MAX) << 32
        return MappedFile(memory.size, memory.fds[0], protection=protection, offset=offset)
    if memory.name in (ASHMEM, MMAP_FD):
        raise InvalidArgument(
            f"validation:M3: memory {memory.name!r} with {kind[1]} descriptors and {kind[2]} ints"
        )
    return OpaqueMemory(memory.size, name=memory.name, fds=memory.fds, ints=memory.ints)


def _to_hidl(pool: MemoryPool) -> HidlMemory:
    if isinstance(pool, OpaqueMemory):
        return HidlMemory(pool.name, pool.size, pool.fds, pool.ints)
    if isinstance(pool, MappedFile):
        check_range("memory.offset", (pool.offset,), 0, UINT64_MAX)
        ints = (pool.protection, _signed(pool.offset & UINT32_MAX), _signed(pool.offset >> 32))
        return HidlMemory(MMAP_FD, pool.size, (pool.fd_index,), ints)
    return HidlMemory(ASHMEM, pool.size, (pool.fd_index,))


def _to_aidl(pool: MemoryPool, level: FeatureLevel) -> Memory:
    check_range("memory.size", (pool.size,), 0, _INT64_MAX)
    if isinstance(pool, OpaqueMemory):
        raise InvalidArgument(f"validation:M3: {level.name} has no memory {pool.name!r} on Linux")
    if isinstance(pool, MappedFile):
        check_range("memory.offset", (pool.offset,), 0, _INT64_MAX)
        return MappableFile(pool.size, pool.protection, pool.fd_index, pool.offset)
    return Ashmem(pool.fd_index, pool.size)


def _signed(word: int) -> int:
    """The int32 with the same bits as a uint32 (a native handle holds C ints)."""
    return word - 2**32 if word > INT32_MAX else word
