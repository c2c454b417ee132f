"""Reads and writes protobuf's encoding, as files of ONNX and of Perfetto use it.

A message is bytes; a field is a number, a kind and a value. The code that reads a message gives the
numbers their meaning. Nothing is copied: values with a length are views. `Message` charges each field
to the budget of a file, so a file of empty messages costs no more than its size allows.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence
from typing import Final, NamedTuple

from nnburst.formats.budget import Budget
from nnburst.hal.errors import InvalidArgument

#: Bytes charged for a field, rounded up generously.
_FIELD_COST: Final = 16
_VARINT, _EIGHT, _LENGTH, _FOUR = 0, 1, 2, 5
#: Deepest nesting of messages (graphs in attributes of nodes of graphs …).
DEEPEST: Final = 64


class Malformed(InvalidArgument):
    """The bytes are not an intact file."""

    def __init__(self, reason: str) -> None:
        """Keep the reason, which describes the bytes."""
        super().__init__(f"not an intact file: {reason}")


class Field(NamedTuple):
    """A field of a message.

    Attributes:
        number: the field's number.
        integer: its value as unsigned 64 bit, or its length if it has one.
        view: its bytes, if it has a length or a fixed size; else empty.
        packed: whether it has a length, as strings, messages and packed numbers do.
        start: byte of the message at which it begins.
        end: first byte behind it.
    """

    number: int
    integer: int
    view: memoryview
    packed: bool
    start: int
    end: int


_EMPTY: Final = memoryview(b"")


class Message:
    """A message whose fields are read once, in order.

    Attributes:
        view: its bytes.
        budget: the budget that fields are charged to.
        depth: number of messages around it.
    """

    __slots__ = ("budget", "depth", "view")

    def __init__(self, view: memoryview, budget: Budget, depth: int = 0) -> None:
        """Begin with bytes that must not change."""
        if depth > DEEPEST:
            raise Malformed(f"messages are nested more than {DEEPEST} deep")
        self.view, self.budget, self.depth = view, budget, depth

    def inner(self, field: Field) -> Message:
        """The message that a field holds."""
        if not field.packed:
            raise Malformed(f"field {field.number} is a number, expected a message")
        return Message(field.view, self.budget, self.depth + 1)

    def fields(self) -> Iterator[Field]:
        """All fields in order; each is charged."""
        for field_ in fields(self.view):
            self.budget.spend(_FIELD_COST)
            yield field_


def fields(view: memoryview) -> Iterator[Field]:
    """All fields of a message in order; they are views of it.

    Raises:
        Malformed: the bytes are not an intact message.
    """
    at, size = 0, len(view)
    while at < size:
        start = at
        tag, at = varint(view, at)
        if tag > 0xFFFFFFFF:
            raise Malformed(f"a field has the number {tag >> 3}, expected 1 to 2**29 - 1")
        number, kind = tag >> 3, tag & 7
        if kind == _VARINT:
            value, at = varint(view, at)
            yield Field(number, value, _EMPTY, False, start, at)
            continue
        packed = kind == _LENGTH
        if packed:
            count, at = varint(view, at)
        elif kind in (_FOUR, _EIGHT):
            count = 4 if kind == _FOUR else 8
        else:
            raise Malformed(f"field {number} at byte {at} is of the unknown kind {kind}")
        if count > size - at:
            raise Malformed(f"field {number} has {count} bytes, only {size - at} are left")
        part = view[at : at + count]
        at += count
        value = count if packed else int.from_bytes(part, "little")
        yield Field(number, value, part, packed, start, at)


def once(what: str, before: object) -> None:
    """Refuse a second occurrence of a single field, which other readers would merge with the first."""
    if before is not None:
        raise Malformed(f"{what} comes twice")


def varint(view: memoryview, at: int) -> tuple[int, int]:
    """The integer at byte `at`, as unsigned 64 bit, and the position behind it."""
    value = shift = 0
    while shift < 70:
        if at >= len(view):
            raise Malformed("the message ends within an integer")
        byte = view[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value & 0xFFFFFFFFFFFFFFFF, at
        shift += 7
    raise Malformed("an integer has more than ten bytes")


def signed(value: int) -> int:
    """An unsigned 64-bit integer as a signed one."""
    return value - (1 << 64) if value >= 1 << 63 else value


def integers(field: Field, budget: Budget) -> list[int]:
    """The signed integers of a repeated field, which may be packed."""
    if not field.packed:
        return [signed(field.integer)]
    budget.spend(64 * len(field.view))
    found, at = [], 0
    while at < len(field.view):
        value, at = varint(field.view, at)
        found.append(signed(value))
    return found


def real(field: Field) -> float:
    """The value of a 32-bit floating-point field."""
    if field.packed or len(field.view) != 4:
        raise Malformed(f"field {field.number} is not a 32-bit number")
    return float(struct.unpack("<f", field.view)[0])


def text(field: Field, budget: Budget) -> str:
    """The value of a string field; bytes that are not UTF-8 are escaped."""
    if not field.packed:
        raise Malformed(f"field {field.number} is a number, expected a string")
    budget.spend(64 + 4 * len(field.view))
    return bytes(field.view).decode(errors="backslashreplace")


def encoded_varint(number: int) -> bytes:
    """Encode an integer of 64 bits; negative ones in two's complement."""
    number &= 0xFFFFFFFFFFFFFFFF
    found = bytearray()
    while number > 0x7F:
        found.append(number & 0x7F | 0x80)
        number >>= 7
    found.append(number)
    return bytes(found)


def field(number: int, value: float | str | bytes) -> bytes:
    """Encode a field: an integer of 64 bits, a 32-bit floating-point number, a string, or bytes."""
    if isinstance(value, int):
        return encoded_varint(number << 3 | _VARINT) + encoded_varint(value)
    if isinstance(value, float):
        return encoded_varint(number << 3 | _FOUR) + struct.pack("<f", value)
    if isinstance(value, str):
        value = value.encode()
    return encoded_varint(number << 3 | _LENGTH) + encoded_varint(len(value)) + value


def packed(number: int, values: Sequence[int]) -> bytes:
    """Encode a repeated field of integers, packed."""
    return field(number, b"".join(encoded_varint(value) for value in values))


def fixed64(number: int, value: int) -> bytes:
    """Encode a field of fixed64: an unsigned 64-bit integer in eight bytes."""
    return encoded_varint(number << 3 | _EIGHT) + value.to_bytes(8, "little")


def message(*parts: tuple[int, int | float | str | bytes]) -> bytes:
    """Encode a message of fields, each given by number and value."""
    return b"".join(field(number, value) for number, value in parts)
