"""Arguments of the interface's functions: what C sees of each, and what the library checks before a call.

NNAPI: RT:L1. A null where an object or a result pointer is required is UNEXPECTED_NULL before all else.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import IntEnum
from typing import Final

PREFIX: Final = "ANeuralNetworks"


class HandleKind(IntEnum):
    """Kinds of objects that a program holds by opaque pointers; each value is four bits of a handle."""

    Device = 1
    Model = 2
    Compilation = 3
    Execution = 4
    Burst = 5
    Event = 6
    MemoryDesc = 7
    Memory = 8


class Pass(IntEnum):
    """How an argument reaches the Python side."""

    VALUE = 0  # a number
    POINTER = 1  # an address whose content the Python side reads or writes
    HANDLE = 2  # a living object
    HANDLES = 3  # an array of living objects
    NEW_HANDLE = 4  # the room for an object that the call makes
    RESULT = 5  # the room for another result


_OPAQUE: Final = re.compile(rf"(?:const )?{PREFIX}({'|'.join(kind.name for kind in HandleKind)})")
#: `name`, `name?` (may be null), `name[count]` (may be null if the argument `count` is 0).
_NAME: Final = re.compile(r"(\w+)(\?)?(?:\[(\w+)\])?(!)?")
_RESULT: Final = re.compile(
    r"(?:bool|int|u?int\d+_t|const char\*|ANeuralNetworks(OperationType|Device\*))\*"
)


@dataclass(frozen=True)
class Argument:
    """One argument.

    Attributes:
        ctype: its type as the header has it.
        name: its name.
        passing: how it reaches the Python side.
        kind: of the handle, if it is one.
        required: null is UNEXPECTED_NULL.
        count: name of the argument that counts it: null is UNEXPECTED_NULL unless that is 0.
    """

    ctype: str
    name: str
    passing: Pass
    kind: HandleKind | None
    required: bool
    count: str | None

    @property
    def declaration(self) -> str:
        """As in a prototype."""
        return f"{self.ctype} {self.name}"


def parse(text: str) -> Argument:
    """An argument from its line in the table: `TYPE NAME`, with `?`, `[count]` and `!` behind the name.

    `!` marks an array that is required even if it is counted by 0.
    """
    ctype, _, rest = text.rpartition(" ")
    found = _NAME.fullmatch(rest)
    if found is None:
        raise ValueError(f"argument {text!r}: expected TYPE NAME with ?, [count] or ! behind it")
    name, optional, count, always = found.groups()
    passing, kind = _passing(ctype)
    required = "*" in ctype and not optional and (count is None or bool(always))
    return Argument(ctype, name, passing, kind, required, count)


def _passing(ctype: str) -> tuple[Pass, HandleKind | None]:
    if "*" not in ctype:
        return Pass.VALUE, None
    if _RESULT.fullmatch(ctype):  # a device, too: the list's, which no call makes
        return Pass.RESULT, None
    opaque = _OPAQUE.match(ctype)
    if opaque is None:
        return Pass.POINTER, None
    rest = ctype[opaque.end() :]
    kinds = {"*": Pass.HANDLE, "**": Pass.NEW_HANDLE, "* const*": Pass.HANDLES}
    if rest not in kinds:  # a struct whose name begins like that of an object
        return Pass.POINTER, None
    return kinds[rest], HandleKind[opaque[1]]
