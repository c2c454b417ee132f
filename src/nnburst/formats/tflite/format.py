"""What the .tflite format consists of: its tables with their fields, its enumerations, and its numbers.

`format.json` has them; `tools/tflite_format.py` reads them out of what the format's authors generate: 20,000
lines, which neither an importer nor a driver has to load.
"""

from __future__ import annotations

import functools
from pathlib import Path
from struct import Struct
from typing import Any, Final, NamedTuple

import msgspec

from nnburst.hal.imports import late_numpy as np

#: Bytes 4 to 8 of a file.
IDENTIFIER: Final = b"TFL3"


class Format(msgspec.Struct, frozen=True):
    """The format.

    Attributes:
        tables: by their names, for each field its place in the table of fields, its kind, and what that
            is about.
        enumerations: by their names, the members and their values.
    """

    tables: dict[str, dict[str, tuple[Any, ...]]]
    enumerations: dict[str, dict[str, int]]


class Number(NamedTuple):
    """A kind of number: what `struct` calls it, how it is packed, and its bytes."""

    code: str
    packing: Struct
    size: int

    @property
    def dtype(self) -> np.dtype[Any]:
        """Its type in an array."""
        return np.dtype(f"<{self.code}")


def _number(code: str) -> Number:
    packing = Struct(f"<{code}")
    return Number(code, packing, packing.size)


#: Numbers of the format by their names.
NUMBERS: Final = {
    name: _number(code)
    for name, code in {
        "bool": "?", "int8": "b", "uint8": "B", "int16": "h", "uint16": "H", "int32": "i", "uint32": "I",
        "int64": "q", "uint64": "Q", "float32": "f", "float64": "d",
    }.items()
}  # fmt: skip

_decode: Final = msgspec.json.Decoder(Format).decode


@functools.cache
def read_format() -> Format:
    """Read once, when it is first needed."""
    return _decode(Path(__file__).with_name("format.json").read_bytes())
