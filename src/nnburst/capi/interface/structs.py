"""The two structs that programs fill in.

NNAPI: NeuralNetworksTypes.h.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from typing import Final

#: Letters of `struct` for the C types of fields.
_LETTERS: Final = {"int32_t": "i", "uint32_t": "I", "float": "f"}


@dataclass(frozen=True)
class Struct:
    """One struct: name and fields, each as (C type, name, what it means)."""

    name: str
    fields: tuple[tuple[str, str, str], ...]

    @property
    def layout(self) -> struct.Struct:
        """Its bytes in memory; pointers are numbers."""
        letters = (_LETTERS.get(ctype, "P") for ctype, _, _ in self.fields)
        return struct.Struct("".join([*letters, "0P"]))


OPERAND_TYPE: Final = Struct(
    "ANeuralNetworksOperandType",
    (
        ("int32_t", "type", "an OperandCode, or the code of an extension's type"),
        ("uint32_t", "dimensionCount", "rank; 0 for a scalar or an unknown rank"),
        ("const uint32_t*", "dimensions", "0 for one that is unknown"),
        ("float", "scale", "of a quantised tensor"),
        ("int32_t", "zeroPoint", "of a quantised tensor"),
    ),
)
PER_CHANNEL: Final = Struct(
    "ANeuralNetworksSymmPerChannelQuantParams",
    (
        ("uint32_t", "channelDim", "the dimension that has a scale for each index"),
        ("uint32_t", "scaleCount", "as many as that dimension has indices"),
        ("const float*", "scales", "each above 0"),
    ),
)
STRUCTS: Final = (PER_CHANNEL, OPERAND_TYPE)
