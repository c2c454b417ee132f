"""Writes tables of the .tflite format as a flatbuffer, each before the tables that it refers to."""

from __future__ import annotations

from array import array
from collections.abc import Iterator
from struct import Struct
from typing import Any, Final, NamedTuple

from nnburst.formats.tflite_reader import IDENTIFIER, NUMBERS, read_format

_OFFSET: Final = Struct("<I")
#: Bytes of a table's field table and of the table itself; and the distance from the table back to the former.
_BOUNDS: Final = Struct("<HH")
_BACK: Final = Struct("<i")
_PLACE: Final = Struct("<H")
#: Alignment of vectors of bytes, which the format requires for constants.
_ALIGNMENT: Final = 16


class NewTable:
    """A table that is to be written.

    Attributes:
        kind: the table's name in the format.
        fields: values by the format's names: numbers, bytes of strings, sequences of numbers, tables, lists
            of tables; None for an omitted field.
    """

    __slots__ = ("fields", "kind")

    def __init__(self, kind: str, **fields: Any) -> None:  # noqa: ANN401 - of any kind
        """See the attributes."""
        self.kind = kind
        self.fields = fields


class _Field(NamedTuple):
    """A field's slot in the table of fields, its bytes, and the part that its offset points to."""

    place: int
    content: bytes
    refers_to: tuple[str, list[Any], Any] | None = None


def write(root: NewTable) -> bytes:
    """Write a file; returns its bytes.

    Args:
        root: the root table, which refers to all others.

    Raises:
        KeyError: a table or a field is not in the format.
    """
    return _Writer(root).written()


class _Writer:
    """A file being written."""

    def __init__(self, root: NewTable) -> None:
        self._tables = read_format().tables
        self._content = bytearray(_OFFSET.size) + IDENTIFIER
        self._refer(0, self._table(root))

    def written(self) -> bytes:
        return bytes(self._content)

    def _refer(self, at: int, to: int) -> None:
        """Make the offset at `at` point to `to`."""
        _OFFSET.pack_into(self._content, at, to - at)

    def _align(self, size: int, ahead: int) -> None:
        """Pad, so that the position `ahead` bytes further is a multiple of `size`."""
        self._content += bytes(-(len(self._content) + ahead) % size)

    def _table(self, table: NewTable) -> int:
        """Write a table and the parts that it refers to; returns its position."""
        fields = sorted(self._fields(table), key=lambda field: -len(field.content))
        places = bytearray(
            max((field.place for field in fields), default=_PLACE.size) + _PLACE.size
        )
        body = bytearray(_BACK.pack(len(places)))
        for field in fields:  # the widest first, so that each is aligned to its size
            _PLACE.pack_into(places, field.place, len(body))
            body += field.content
        _BOUNDS.pack_into(places, 0, len(places), len(body))
        widest = max((len(field.content) for field in fields), default=_OFFSET.size)
        self._align(max(widest, _OFFSET.size), len(places) + _BACK.size)
        self._content += places
        start = len(self._content)
        self._content += body
        for field in fields:
            if field.refers_to is not None:
                at = start + _PLACE.unpack_from(places, field.place)[0]
                self._refer(at, self._value(*field.refers_to))
        return start

    def _fields(self, table: NewTable) -> Iterator[_Field]:
        """The fields whose values are not the defaults."""
        rules = self._tables[table.kind]
        for name, value in table.fields.items():
            place, kind, *about = rules[name]
            if value is None:
                continue
            if kind != "number":
                yield _Field(place, bytes(_OFFSET.size), (kind, about, value))
            elif value != about[1]:
                yield _Field(place, NUMBERS[about[0]].packing.pack(value))

    def _value(self, kind: str, about: list[Any], value: Any) -> int:  # noqa: ANN401
        """Write the part that a field refers to; returns its position."""
        if kind in ("table", "union"):
            return self._table(value)
        if kind == "tables":
            return self._vector(value)
        if kind == "string":
            self._align(_OFFSET.size, 0)
            start = len(self._content)
            self._content += _OFFSET.pack(len(value)) + value + b"\0"
            return start
        return self._numbers(_vector_of(value, NUMBERS[about[0]].code))

    def _vector(self, tables: list[NewTable]) -> int:
        self._align(_OFFSET.size, 0)
        start = len(self._content)
        self._content += _OFFSET.pack(len(tables)) + bytes(_OFFSET.size * len(tables))
        for number, table in enumerate(tables, 1):
            self._refer(start + number * _OFFSET.size, self._table(table))
        return start

    def _numbers(self, numbers: memoryview) -> int:
        size = _ALIGNMENT if numbers.itemsize == 1 else max(numbers.itemsize, _OFFSET.size)
        self._align(size, _OFFSET.size)
        start = len(self._content)
        self._content += _OFFSET.pack(len(numbers))
        self._content += numbers.cast("B") if numbers else b""
        return start


def _vector_of(value: Any, code: str) -> memoryview:  # noqa: ANN401 - a sequence or a buffer of numbers
    """Numbers as bytes of a file; not copied if they already are a buffer in that form."""
    try:
        given = memoryview(value)
    except TypeError:
        return memoryview(array("B" if code == "?" else code, value))
    if given.ndim == 1 and given.format == code and given.c_contiguous:
        return given
    return memoryview(array("B" if code == "?" else code, given.tolist()))
