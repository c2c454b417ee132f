"""Protobuf's encoding: the fields of a message, one after the other.

A message is bytes; a field is a number, a kind and a value. The reader gives the numbers their meaning.
Nothing is copied: what has a length comes as a view. Each field is charged, so that a file of empty
messages costs what it may and no more.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt

from nnburst.formats.budget import Budget
from nnburst.hal.errors import InvalidArgument

#: Charge for a field, generously rounded up.
_FIELD_COST: Final = 16
_VARINT, _EIGHT, _LENGTH, _FOUR = 0, 1, 2, 5
#: Deepest nesting of messages (graphs in attributes of nodes of graphs …).
DEEPEST: Final = 64


class Malformed(InvalidArgument):
    """The bytes are not an intact ONNX file."""

    def __init__(self, reason: str) -> None:
        """Keep what is wrong with the bytes."""
        super().__init__(f"not an intact ONNX file: {reason}")


class Field(NamedTuple):
    """A field of a message.

    Attributes:
        number: which.
        integer: its value as unsigned 64 bit; the length of a view.
        view: its bytes, if it has a length or a fixed size; else empty.
        packed: whether it has a length, as strings, messages and packed numbers do.
    """

    number: int
    integer: int
    view: memoryview
    packed: bool


_EMPTY: Final = memoryview(b"")


class Message:
    """A message that is read once, field by field.

    Attributes:
        view: its bytes.
        budget: is charged.
        depth: how many messages it lies in.
    """

    __slots__ = ("budget", "depth", "view")

    def __init__(self, view: memoryview, budget: Budget, depth: int = 0) -> None:
        """Of bytes that stay as they are."""
        if depth > DEEPEST:
            raise Malformed(f"messages are nested more than {DEEPEST} deep")
        self.view, self.budget, self.depth = view, budget, depth

    def inner(self, field: Field) -> Message:
        """The message that a field holds."""
        if not field.packed:
            raise Malformed(f"field {field.number} is a number, expected a message")
        return Message(field.view, self.budget, self.depth + 1)

    def fields(self) -> Iterator[Field]:
        """All fields in order."""
        view, at, end = self.view, 0, len(self.view)
        while at < end:
            self.budget.spend(_FIELD_COST)
            tag, at = varint(view, at)
            if tag > 0xFFFFFFFF:
                raise Malformed(f"a field has the number {tag >> 3}, expected 1 to 2**29 - 1")
            number, kind = tag >> 3, tag & 7
            if kind == _VARINT:
                value, at = varint(view, at)
                yield Field(number, value, _EMPTY, packed=False)
                continue
            packed = kind == _LENGTH
            if packed:
                size, at = varint(view, at)
            elif kind in (_FOUR, _EIGHT):
                size = 4 if kind == _FOUR else 8
            else:
                raise Malformed(f"field {number} at byte {at} is of the unknown kind {kind}")
            if size > end - at:
                raise Malformed(f"field {number} has {size} bytes, only {end - at} are left")
            yield Field(number, size, view[at : at + size], packed=packed)
            at += size


def once(what: str, before: object) -> None:
    """Refuse a second occurrence of what may be there once: other readers take both together."""
    if before is not None:
        raise Malformed(f"{what} comes twice")


def varint(view: memoryview, at: int) -> tuple[int, int]:
    """The integer at byte `at`, as unsigned 64 bit, and where the next field begins."""
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
    """The signed integers of a repeated field: one, or packed ones."""
    if not field.packed:
        return [signed(field.integer)]
    budget.spend(64 * len(field.view))
    found, at = [], 0
    while at < len(field.view):
        value, at = varint(field.view, at)
        found.append(signed(value))
    return found


def reals(field: Field, dtype: npt.DTypeLike) -> npt.NDArray[np.generic]:
    """The floating-point numbers of a repeated field: one, or packed ones; a view of the file."""
    kind = np.dtype(dtype)
    if len(field.view) % kind.itemsize or (not field.packed and len(field.view) != kind.itemsize):
        raise Malformed(f"field {field.number} has {len(field.view)} bytes of {kind}")
    return np.frombuffer(field.view, kind)


def real(field: Field) -> float:
    """A 32-bit floating-point number."""
    if field.packed or len(field.view) != 4:
        raise Malformed(f"field {field.number} is not a 32-bit number")
    return float(struct.unpack("<f", field.view)[0])


def text(field: Field, budget: Budget) -> str:
    """A string; what is not UTF-8 shows as such."""
    if not field.packed:
        raise Malformed(f"field {field.number} is a number, expected a string")
    budget.spend(64 + 4 * len(field.view))
    return bytes(field.view).decode(errors="backslashreplace")
