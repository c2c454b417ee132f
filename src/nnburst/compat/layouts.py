"""Converts the structs that several HAL versions share: locations and memory; has facts about operand types.

Functions that all conversions use come first.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final, TypeVar

import msgspec

from nnburst.hal.enums import FeatureLevel, OperandType
from nnburst.hal.errors import InvalidArgument
from nnburst.hal.limits import INT32_MAX, UINT32_MAX, UINT64_MAX
from nnburst.hal.model import (
    BufferToken,
    DataLocation,
    MemoryPool,
    Operand,
    is_extension,
    is_scalar,
    size_bytes,
)

T = TypeVar("T")

#: A struct of some version; only the feature level shows which.
HalStruct = Any

HIDL: Final = (FeatureLevel.V1_0, FeatureLevel.V1_1, FeatureLevel.V1_2, FeatureLevel.V1_3)


def is_aidl(level: FeatureLevel) -> bool:
    """Whether the level belongs to the AIDL interface, whose versions share their structs."""
    return level >= FeatureLevel.AIDL_V1


def latest(table: Mapping[FeatureLevel, T], level: FeatureLevel) -> T:
    """The entry of the highest level up to `level`; there must be one."""
    return table[max(known for known in table if known <= level)]


def pick(struct: type[HalStruct], fields: Mapping[str, object]) -> HalStruct:
    """Make a `struct` from the given fields, without those that it lacks."""
    return struct(**{name: fields[name] for name in struct.__struct_fields__})


def check_type(value: object, expected: type[Any], level: FeatureLevel) -> None:
    """Refuse a struct of another version.

    Raises:
        InvalidArgument: `value` is not an `expected`.
    """
    if type(value) is not expected:
        found, wanted = (f"{t.__module__}.{t.__name__}" for t in (type(value), expected))
        raise InvalidArgument(f"value: {found} is not {level.name}'s {wanted}")


def check_range(name: str, values: tuple[int, ...], low: int, high: int) -> None:
    """Refuse integers that a version's field cannot hold.

    Raises:
        InvalidArgument: a value is outside [low, high].
    """
    for value in values:
        if not low <= value <= high:
            raise InvalidArgument(f"{name}: {value} is outside the field's {low} to {high}")


def check_numbers(name: str, values: tuple[int, ...], level: FeatureLevel) -> None:
    """Refuse integers that a version's 32-bit fields cannot hold; the fields are signed in AIDL.

    Raises:
        InvalidArgument: a value is negative or too large.
    """
    check_range(name, values, 0, INT32_MAX if is_aidl(level) else UINT32_MAX)


_INT64_MAX: Final = 2**63 - 1


class PaddedLocation(DataLocation, frozen=True):
    """A location with usable bytes after the data.

    This is AIDL's DataLocation; it is canonical if `padding` is not 0.
    """

    padding: int = 0


def location_to_canonical(location: DataLocation, level: FeatureLevel) -> DataLocation:
    """Convert from a version's location.

    Raises:
        InvalidArgument: the struct is of another version, or a number does not fit a field.
    """
    check_type(location, PaddedLocation if is_aidl(level) else DataLocation, level)
    _check_location(location, level)
    if isinstance(location, PaddedLocation) and not location.padding:
        return DataLocation(location.pool_index, location.offset, location.length)
    return location


def location_to_hal(location: DataLocation, level: FeatureLevel) -> HalStruct:
    """Convert to a version's location; HIDL has no padding, so it is left out.

    Raises:
        InvalidArgument: a number does not fit the version's field.
    """
    _check_location(location, level)
    pool, offset, length = location.pool_index, location.offset, location.length
    if is_aidl(level):
        return PaddedLocation(pool, offset, length, padding(location))
    return DataLocation(pool, offset, length)


def padding(location: DataLocation) -> int:
    """The number of bytes after the data; 0 if the location has no padding."""
    return location.padding if isinstance(location, PaddedLocation) else 0


def _check_location(location: DataLocation, level: FeatureLevel) -> None:
    largest = _INT64_MAX if is_aidl(level) else UINT32_MAX
    check_numbers("location.pool_index", (location.pool_index,), level)
    check_range("location", (location.offset, location.length, padding(location)), 0, largest)


# -- Memory: kinds by name in HIDL, a union in AIDL, kinds of MemoryPool in canonical form ---------
# Descriptors are sent beside a message; the structs here have only an index among them.
# NNAPI: utils/common SharedMemory, aidl Memory. DEVIATES: hardware buffers do not exist on Linux. They are
# # converted between HIDL versions (OpaqueMemory), but are never valid.

ASHMEM: Final = "ashmem"
MMAP_FD: Final = "mmap_fd"
HARDWARE_BUFFERS: Final = frozenset({"hardware_buffer_blob", "hardware_buffer"})


class HidlMemory(msgspec.Struct, frozen=True):
    """hidl_memory: a kind by name, a size in bytes, and a native handle of descriptors and ints.

    "ashmem" has 1 descriptor; "mmap_fd" has 1, and the ints protection, offset low, offset high.
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
    """Memory of a kind that cannot be mapped here; it is never valid, only converted between versions."""

    name: str
    fds: tuple[int, ...] = ()
    ints: tuple[int, ...] = ()


Memory = HidlMemory | Ashmem | MappableFile | BufferToken


def memory_to_canonical(memory: Memory | MemoryPool, level: FeatureLevel) -> MemoryPool:
    """Convert from a version's memory.

    Raises:
        InvalidArgument: the memory is not of that version, or its handle does not fit its kind (M3).
    """
    if isinstance(memory, BufferToken) and level >= FeatureLevel.V1_3:
        check_numbers("token", (memory.token,), level)
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


def memory_to_hal(pool: MemoryPool, level: FeatureLevel) -> HalStruct:
    """Convert to a version's memory.

    Raises:
        InvalidArgument: the version has no such memory, or a number does not fit its field.
    """
    if isinstance(pool, BufferToken):
        if level < FeatureLevel.V1_3:
            raise InvalidArgument(f"validation:R2: {level.name} has no buffer tokens")
        return memory_to_canonical(pool, level)  # the same struct in all versions
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
    """The int32 with the bits of a uint32, since a native handle has C ints."""
    return word - 2**32 if word > INT32_MAX else word


# -- The originals' functions on operand types, under their names ----------------------------------
# NNAPI: LegacyUtils.h (R: Utils.h). DEVIATES: InvalidArgument is raised where the original aborts the
# process.


def is_extension_operand_type(kind: int) -> bool:
    """Whether an operand type belongs to an extension."""
    return is_extension(kind)


def is_extension_operation_type(kind: int) -> bool:
    """Whether an operation type belongs to an extension."""
    return is_extension(kind)


def non_extension_operand_type_is_scalar(kind: int) -> bool:
    """Whether a core type is a scalar.

    Raises:
        InvalidArgument: `kind` is not a core type.
    """
    return is_scalar(_core(kind))


def non_extension_size_of_data(kind: int, dimensions: Sequence[int]) -> int:
    """Bytes of the data; 0 if a dimension or the rank is unknown.

    Raises:
        InvalidArgument: `kind` is not a core type, or the size does not fit uint32.
    """
    size = size_bytes(_core(kind), dimensions)
    if size > UINT32_MAX:
        raise InvalidArgument(
            f"validation:O5: dimensions: {size} bytes, at most {UINT32_MAX} are possible"
        )
    return size


def non_extension_operand_size_of_data(operand: Operand) -> int:
    """Call `non_extension_size_of_data` with an operand's type and dimensions."""
    return non_extension_size_of_data(operand.type, operand.dimensions)


def non_extension_operand_size_of_data_overflows_uint32(
    kind: int, dimensions: Sequence[int]
) -> bool:
    """Whether the data would have more than 2**32 - 1 bytes.

    Raises:
        InvalidArgument: `kind` is not a core type.
    """
    return size_bytes(_core(kind), dimensions) > UINT32_MAX


def tensor_has_unspecified_dimensions(kind: int, dimensions: Sequence[int]) -> bool:
    """Whether a tensor's rank or one of its dimensions is unknown.

    A type of an extension counts as a tensor: only the extension defines its scalars.

    Raises:
        InvalidArgument: `kind` is a core scalar.
    """
    if not is_extension(kind) and is_scalar(_core(kind)):
        raise InvalidArgument(f"kind: {OperandType(kind).name} is not a tensor")
    return not dimensions or 0 in dimensions


def _core(kind: int) -> OperandType:
    try:
        return OperandType(kind)
    except ValueError:
        raise InvalidArgument(f"kind: {kind:#x} is not a core operand type") from None
