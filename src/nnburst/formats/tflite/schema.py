"""Tables of the .tflite format as classes that read through `CheckedTable`, and its enumerations.

So a file is read without the engine, whose wheel carries the classes that the format's authors generate: they
would read unchecked.
Methods are called as theirs: a field by its name, a vector's elements by position, `…Length`, `…AsNumpy`.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from types import SimpleNamespace
from typing import Any, Final

from nnburst.formats.tflite.format import NUMBERS, read_format
from nnburst.formats.tflite.reader import CheckedTable, File

#: Bytes of an offset, which is what vectors of tables and strings hold.
_OFFSET: Final = 4


class Table:
    """A table of the format. `Init` puts it somewhere in a file."""

    __slots__ = ("_tab",)

    def Init(self, content: File, at: int) -> None:  # noqa: N802
        """Lie at byte `at` of a file."""
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
    """The table `Model` that all others of a file hang on."""
    found = schema().Model()
    found.Init(file, int.from_bytes(file.content[:4], "little"))
    return found


@functools.cache
def names(enumeration: str) -> dict[int, str]:
    """Name of every value of one of the format's enumerations ("BuiltinOperator", …)."""
    return {value: name for name, value in vars(getattr(schema(), enumeration)).items()}


def _methods(tables: SimpleNamespace, name: str, rule: Sequence[Any]) -> Mapping[str, _Method]:
    """The methods of one field: its place, its kind, and what that is about."""
    place, kind, *about = rule
    make = _KINDS[kind]
    first = make(tables, place, *about)
    if kind not in ("numbers", "tables", "strings"):
        return {name: first}
    methods = {name: first, f"{name}Length": _length(place), f"{name}IsNone": _is_none(place)}
    if kind == "numbers":
        methods[f"{name}AsNumpy"] = _as_numpy(place, about[0])
    return methods


def _number(_tables: SimpleNamespace, place: int, kind: str, default: object) -> _Method:
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
    "number": _number,
    "numbers": _numbers,
    "string": _string,
    "strings": _strings,
    "table": _table,
    "tables": _tables,
    "union": _union,
}
