"""Checked access to a flatbuffer: no read outside the file, no work that the file does not pay for.

A flatbuffer is a graph of offsets, and a hostile one lets a thousand entries point at one table, or at
a vector that overlaps itself. Two rules keep that harmless. Every read lies inside the file. And
whatever is made of the file's contents (objects, names, converted constants) is charged to the file
before it is made: `File.spend`. What the charges may sum up to is proportional to the file's size, so
memory and time are, too.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeAlias

from nnburst.formats.budget import Budget
from nnburst.formats.tflite.format import Number
from nnburst.hal.errors import InvalidArgument
from nnburst.hal.imports import late_numpy as np

if TYPE_CHECKING:
    import numpy.typing as npt

_Numbers: TypeAlias = "npt.NDArray[Any]"


class MalformedTflite(InvalidArgument):
    """The bytes are not an intact .tflite file."""

    def __init__(self, reason: str) -> None:
        """Keep what is wrong with the bytes."""
        super().__init__(f"not an intact .tflite file: {reason}")


class File(Budget):
    """The bytes of a file, and what has been spent on them.

    Attributes:
        content: the bytes.
    """

    __slots__ = ("content",)

    def __init__(self, content: bytes | bytearray | memoryview) -> None:
        """Start with the whole allowance."""
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

    Method names are those of `flatbuffers.table.Table`, whose place this takes.
    """

    __slots__ = ("Bytes", "Pos")

    def __init__(self, buf: File, pos: int) -> None:
        """A table at byte `pos` of the file `buf`."""
        self.Bytes = buf
        self.Pos = pos

    def Offset(self, slot: int) -> int:  # noqa: N802
        """Where a field lies, from the table's start; 0 if it is absent."""
        vtable = self.Pos - self._integer(self.Pos, 4, signed=True, what="table")
        length = self._integer(vtable, 2, what="table of fields")
        self.Bytes.check(vtable, max(length, 4), "table of fields")
        return self._integer(vtable + slot, 2, what="field") if slot + 2 <= length else 0

    def Indirect(self, at: int) -> int:  # noqa: N802
        """What the offset at `at` points to."""
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
        """Where the elements of the vector in a field begin."""
        return self.Indirect(self.Pos + field) + 4

    def Union(self, table: CheckedTable, field: int) -> None:  # noqa: N802
        """Let `table` be what the union in a field holds."""
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
