"""What lies at addresses that a program passed: numbers, structs, strings and bytes.

The library has refused the nulls; that an address is the program's own and is as long as announced is the
program's word, as in every C interface.
"""

from __future__ import annotations

from typing import Any, Final, cast

from nnburst._native import ffi
from nnburst.capi.interface.structs import OPERAND_TYPE, PER_CHANNEL
from nnburst.hal.errors import InvalidArgument
from nnburst.runtime.objects.operand_description import OperandDescription

#: No list of operands or dimensions that a program passes is longer.
MOST_ENTRIES: Final = 1 << 24
MOST_BYTES: Final = 1 << 56
_UINT64: Final = (1 << 64) - 1

_operand_type: Final = OPERAND_TYPE.layout
_per_channel: Final = PER_CHANNEL.layout


def content(address: int, length: int) -> memoryview:
    """`length` bytes in place, writable.

    Raises:
        InvalidArgument: no memory is so long.
    """
    if length > MOST_BYTES:
        raise InvalidArgument(f"length: {length} bytes, no memory has more than {MOST_BYTES}")
    return memoryview(ffi.buffer(ffi.cast("uint8_t *", address), length))


def optional(address: int, length: int) -> memoryview | None:
    """The same; None for a null address (whose length the library has found to be 0)."""
    return content(address, length) if address else None


def string(address: int) -> str:
    """A string up to its 0.

    Raises:
        InvalidArgument: it is not UTF-8.
    """
    raw: bytes = ffi.string(ffi.cast("char *", address))
    try:
        return raw.decode()
    except UnicodeDecodeError:
        raise InvalidArgument(f"string {raw!r}: expected UTF-8") from None


def numbers(name: str, address: int, count: int) -> tuple[int, ...]:
    """`count` values of type uint32_t.

    Raises:
        InvalidArgument: there are more than any call has.
    """
    if count > MOST_ENTRIES:
        raise InvalidArgument(f"{name}: {count} entries, the limit is {MOST_ENTRIES}")
    return tuple(memoryview(content(address, 4 * count)).cast("I")) if count else ()


def scales(address: int) -> tuple[list[float] | None, int]:
    """Scales and dimension of a struct of per-channel parameters; None if null and count disagree."""
    dimension, count, place = _per_channel.unpack(content(address, _per_channel.size))
    if not place or not 0 < count <= MOST_ENTRIES:
        return None, dimension
    return list(content(place, 4 * count).cast("f")), dimension


def operand_type(address: int) -> OperandDescription | None:
    """The struct of an operand type; None for null. Dimensions are None if null and count disagree."""
    if not address:
        return None
    kind, count, place, scale, zero_point = _operand_type.unpack(
        content(address, _operand_type.size)
    )
    contradiction = bool(place) != bool(count)  # NNAPI: RT:M3
    dimensions = None if contradiction else numbers("dimensions", place, count)
    return OperandDescription(kind, dimensions, scale, zero_point)


def unsigned(word: int) -> int:
    """A uint64_t or size_t that came as a signed word."""
    return word & _UINT64


def store(ctype: str, address: int, value: int) -> None:
    """Store a number if the program wants it."""
    cast("Any", ffi.cast(f"{ctype} *", address))[0] = value


def store_all(ctype: str, address: int, values: tuple[int, ...]) -> None:
    """Store numbers one behind the other."""
    place = cast("Any", ffi.cast(f"{ctype} *", address))
    for index, value in enumerate(values):
        place[index] = value
