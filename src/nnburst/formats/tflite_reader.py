"""Reads the tables of a .tflite file and checks every offset before it is used.

A flatbuffer is a graph of offsets; in a hostile one a thousand entries may point at one table, or vectors may
overlap. Two rules keep that harmless. Every read lies inside the file. And all that is made of the file's
contents (objects, names, converted constants) is charged to the file before it is made: `File.spend`. The sum
of the charges is bounded in proportion to the file's size, and so are memory and time.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from struct import Struct
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeAlias

import msgspec

from nnburst.formats.budget import Budget
from nnburst.hal import late_numpy as np
from nnburst.hal.errors import InvalidArgument

if TYPE_CHECKING:
    import numpy.typing as npt


#: Bytes 4 to 8 of a file.
IDENTIFIER: Final = b"TFL3"


# -- The format: tables with their fields, enumerations, and kinds of numbers ----------------------
# `format.json` has them. `tools/tflite_format.py` extracts them from the 20,000 lines of code that the
# format's authors generate, so that neither an importer nor a driver has to load that code.


class Format(msgspec.Struct, frozen=True):
    """The tables and enumerations of the .tflite format.

    Attributes:
        tables: by table name and field, the field's slot in the table of fields, its kind, and the details of
            that kind.
        enumerations: by name, the members and their values.
    """

    tables: dict[str, dict[str, tuple[Any, ...]]]
    enumerations: dict[str, dict[str, int]]


class Number(NamedTuple):
    """A kind of number: its code in `struct`, its packing, and its size in bytes."""

    code: str
    packing: Struct
    size: int

    @property
    def dtype(self) -> np.dtype[Any]:
        """Numpy's type of such numbers."""
        return np.dtype(f"<{self.code}")


def _number_of(code: str) -> Number:
    packing = Struct(f"<{code}")
    return Number(code, packing, packing.size)


#: Numbers of the format by their names.
NUMBERS: Final = {
    name: _number_of(code)
    for name, code in {
        "bool": "?", "int8": "b", "uint8": "B", "int16": "h", "uint16": "H", "int32": "i", "uint32": "I",
        "int64": "q", "uint64": "Q", "float32": "f", "float64": "d",
    }.items()
}  # fmt: skip

_decode: Final = msgspec.json.Decoder(Format).decode


@functools.cache
def read_format() -> Format:
    """Read the format from `format.json`, once, when it is first needed."""
    return _decode(Path(__file__).with_name("format.json").read_bytes())


# -- Checked access to a flatbuffer ----------------------------------------------------------------


_Numbers: TypeAlias = "npt.NDArray[Any]"


class MalformedTflite(InvalidArgument):
    """The bytes are not an intact .tflite file."""

    def __init__(self, reason: str) -> None:
        """Keep the reason, which describes the bytes."""
        super().__init__(f"not an intact .tflite file: {reason}")


class File(Budget):
    """The bytes of a file, and the memory and work spent on them.

    Attributes:
        content: the bytes.
    """

    __slots__ = ("content",)

    def __init__(self, content: bytes | bytearray | memoryview) -> None:
        """Begin a file that nothing is charged to yet."""
        super().__init__(len(content))
        self.content = content

    def check(self, offset: int, length: int, what: str) -> None:
        """Raise MalformedTflite, naming `what`, unless the range lies in the file."""
        if offset < 0 or length < 0 or offset + length > self.size:
            raise MalformedTflite(
                f"{what} at byte {offset} needs {length} bytes, the file has {self.size}"
            )

    def slice(self, offset: int, length: int, what: str) -> npt.NDArray[np.uint8]:
        """A read-only view of a range."""
        self.check(offset, length, what)
        return np.frombuffer(self.content, np.uint8, length, offset)


class CheckedTable:
    """A table somewhere in a file, with every offset and length checked.

    Method names are those of `flatbuffers.table.Table`, which this class replaces.
    """

    __slots__ = ("Bytes", "Pos")

    def __init__(self, buf: File, pos: int) -> None:
        """A table at byte `pos` of the file `buf`."""
        self.Bytes = buf
        self.Pos = pos

    def Offset(self, slot: int) -> int:  # noqa: N802
        """The offset of a field from the table's start; 0 if it is absent."""
        vtable = self.Pos - self._integer(self.Pos, 4, signed=True, what="table")
        length = self._integer(vtable, 2, what="table of fields")
        self.Bytes.check(vtable, max(length, 4), "table of fields")
        return self._integer(vtable + slot, 2, what="field") if slot + 2 <= length else 0

    def Indirect(self, at: int) -> int:  # noqa: N802
        """The position that the offset at `at` points to."""
        return at + self._integer(at, 4, what="offset")

    def String(self, at: int) -> bytes:  # noqa: N802
        """The string that the offset at `at` points to; charged."""
        start = self.Indirect(at)
        length = self._integer(start, 4, what="string")
        self.Bytes.check(start + 4, length, "string")
        self.Bytes.spend(64 + length)
        return bytes(self.Bytes.content[start + 4 : start + 4 + length])

    def VectorLen(self, field: int) -> int:  # noqa: N802
        """Number of elements of the vector in a field; each is at least one byte of the file."""
        start = self.Indirect(self.Pos + field)
        length = self._integer(start, 4, what="vector")
        self.Bytes.check(start + 4, length, "vector")
        return length

    def Vector(self, field: int) -> int:  # noqa: N802
        """The position of the first element of the vector in a field."""
        return self.Indirect(self.Pos + field) + 4

    def Union(self, table: CheckedTable, field: int) -> None:  # noqa: N802
        """Move `table` to the table that the union in a field holds."""
        table.Bytes, table.Pos = self.Bytes, self.Indirect(self.Pos + field)

    def Get(self, number: Number, at: int) -> Any:  # noqa: ANN401, N802 - of any kind
        """The number at `at`."""
        self.Bytes.check(at, number.size, "number")
        return number.packing.unpack_from(self.Bytes.content, at)[0]

    def GetVectorAsNumpy(self, number: Number, field: int) -> _Numbers:  # noqa: N802
        """The vector of numbers in a field: a read-only view."""
        start, length = self.Vector(field), self.VectorLen(field)
        self.Bytes.check(start, length * number.size, "vector")
        return np.frombuffer(self.Bytes.content, number.dtype, length, start)

    def _integer(self, at: int, size: int, *, what: str, signed: bool = False) -> int:
        self.Bytes.check(at, size, what)
        return int.from_bytes(self.Bytes.content[at : at + size], "little", signed=signed)


# -- Tables of the format as classes ---------------------------------------------------------------
# These classes read a file without the engine, whose wheel has the classes that the format's authors
# generate, which read without checks. Methods have the same names: a field by its name, a vector's elements
# by position, `…Length`, `…AsNumpy`.


#: Bytes of an offset; vectors of tables and strings consist of offsets.
_OFFSET: Final = 4


class Table:
    """A table of the format. `Init` sets its position in a file."""

    __slots__ = ("_tab",)

    def Init(self, content: File, at: int) -> None:  # noqa: N802
        """Set the table's position to byte `at` of a file."""
        self._tab = CheckedTable(content, at)


_Method = Callable[..., Any]


@functools.cache
def schema() -> Any:  # noqa: ANN401 - made of a file, without types
    """Classes of tables, and enumerations, as attributes."""
    found = read_format()
    made = SimpleNamespace(
        **{name: SimpleNamespace(**members) for name, members in found.enumerations.items()}
    )
    for name, fields in found.tables.items():
        methods = [_methods(made, field, rule) for field, rule in fields.items()]
        members = {key: value for group in methods for key, value in group.items()}
        setattr(made, name, type(name, (Table,), {"__slots__": (), **members}))
    return made


def root_table(file: File) -> Any:  # noqa: ANN401 - as `schema`
    """The file's root table, a `Model`, which refers to all others."""
    found = schema().Model()
    found.Init(file, int.from_bytes(file.content[:4], "little"))
    return found


@functools.cache
def names(enumeration: str) -> dict[int, str]:
    """Name of every value of one of the format's enumerations ("BuiltinOperator", …)."""
    return {value: name for name, value in vars(getattr(schema(), enumeration)).items()}


def _methods(tables: SimpleNamespace, name: str, rule: Sequence[Any]) -> Mapping[str, _Method]:
    """Make the methods of one field from its slot, its kind and the details of that kind."""
    place, kind, *about = rule
    make = _KINDS[kind]
    first = make(tables, place, *about)
    if kind not in ("numbers", "tables", "strings"):
        return {name: first}
    methods = {name: first, f"{name}Length": _length(place), f"{name}IsNone": _is_none(place)}
    if kind == "numbers":
        methods[f"{name}AsNumpy"] = _as_numpy(place, about[0])
    return methods


def _number_method(_tables: SimpleNamespace, place: int, kind: str, default: object) -> _Method:
    number = NUMBERS[kind]

    def read(self: Table) -> Any:  # noqa: ANN401 - a number of any kind
        at = self._tab.Offset(place)
        return self._tab.Get(number, at + self._tab.Pos) if at else default

    return read


def _string(_tables: SimpleNamespace, place: int) -> _Method:
    def read(self: Table) -> bytes | None:
        at = self._tab.Offset(place)
        return self._tab.String(at + self._tab.Pos) if at else None

    return read


def _table(tables: SimpleNamespace, place: int, kind: str) -> _Method:
    def read(self: Table) -> Table | None:
        at = self._tab.Offset(place)
        if not at:
            return None
        found: Table = getattr(tables, kind)()
        found.Init(self._tab.Bytes, self._tab.Indirect(at + self._tab.Pos))
        return found

    return read


def _union(_tables: SimpleNamespace, place: int) -> _Method:
    def read(self: Table) -> CheckedTable | None:
        at = self._tab.Offset(place)
        if not at:
            return None
        found = CheckedTable(self._tab.Bytes, 0)
        self._tab.Union(found, at)
        return found

    return read


def _numbers(_tables: SimpleNamespace, place: int, kind: str) -> _Method:
    number = NUMBERS[kind]

    def read(self: Table, position: int) -> Any:  # noqa: ANN401 - a number of any kind
        at = self._tab.Offset(place)
        return self._tab.Get(number, self._tab.Vector(at) + position * number.size) if at else 0

    return read


def _tables(tables: SimpleNamespace, place: int, kind: str) -> _Method:
    def read(self: Table, position: int) -> Table | None:
        at = self._tab.Offset(place)
        if not at:
            return None
        found: Table = getattr(tables, kind)()
        element = self._tab.Vector(at) + position * _OFFSET
        found.Init(self._tab.Bytes, self._tab.Indirect(element))
        return found

    return read


def _strings(_tables: SimpleNamespace, place: int) -> _Method:
    def read(self: Table, position: int) -> bytes | str:
        at = self._tab.Offset(place)
        return self._tab.String(self._tab.Vector(at) + position * _OFFSET) if at else ""

    return read


def _length(place: int) -> _Method:
    def read(self: Table) -> int:
        at = self._tab.Offset(place)
        return self._tab.VectorLen(at) if at else 0

    return read


def _is_none(place: int) -> _Method:
    def read(self: Table) -> bool:
        return self._tab.Offset(place) == 0

    return read


def _as_numpy(place: int, kind: str) -> _Method:
    number = NUMBERS[kind]

    def read(self: Table) -> Any:  # noqa: ANN401 - an array, or 0 without the vector
        at = self._tab.Offset(place)
        return self._tab.GetVectorAsNumpy(number, at) if at else 0

    return read


_KINDS: Final[Mapping[str, Callable[..., _Method]]] = {
    "number": _number_method,
    "numbers": _numbers,
    "string": _string,
    "strings": _strings,
    "table": _table,
    "tables": _tables,
    "union": _union,
}
