"""Defines the layouts of datums in one table, from which dtypes, unpackers and the C header are made.

NNAPI: FmqRequestDatum and FmqResultDatum of 1.2/types.hal, laid out as the original's interface
compiler lays out a safe union: a discriminator byte, then the variant, little-endian, 24 bytes.
"""

from __future__ import annotations

import functools
import struct
from typing import TYPE_CHECKING, Final, NamedTuple

from nnburst.hal import late_numpy as np

if TYPE_CHECKING:
    import numpy.typing as npt

#: Bytes of one datum of either kind (the quantum of both queues).
DATUM_BYTES: Final = 24

#: Formats of each field type for numpy and for struct. A bool is one byte, always 0 or 1.
_NUMPY: Final = {"bool": "u1", "u32": "<u4", "i32": "<i4", "u64": "<u8"}
_STRUCT: Final = {"bool": "B", "u32": "I", "i32": "i", "u64": "Q"}


class Field(NamedTuple):
    """One member of a variant: its name, its byte offset in the datum and its type."""

    name: str
    offset: int
    type: str

    @property
    def width(self) -> int:
        """Size of the field in bytes."""
        return struct.calcsize(f"<{_STRUCT[self.type]}")


class Variant(NamedTuple):
    """One alternative of a datum union."""

    name: str
    discriminator: int
    fields: tuple[Field, ...]

    def layout(self) -> struct.Struct:
        """Packs and unpacks one whole datum: discriminator, then the fields; padding is 0."""
        form, at = "<B", 1
        for field in self.fields:
            form += f"{field.offset - at}x{_STRUCT[field.type]}"
            at = field.offset + field.width
        return struct.Struct(f"{form}{DATUM_BYTES - at}x")

    def view(self, datums: npt.NDArray[np.void]) -> npt.NDArray[np.void]:
        """View the same memory with this variant's fields by name, whatever the discriminators are."""
        return datums.view(_named_fields(self))


@functools.cache
def _named_fields(variant: Variant) -> np.dtype[np.void]:
    fields = variant.fields
    return np.dtype(
        {
            "names": ["discriminator", *(f.name for f in fields)],
            "formats": ["u1", *(_NUMPY[f.type] for f in fields)],
            "offsets": [0, *(f.offset for f in fields)],
            "itemsize": DATUM_BYTES,
        }
    )


class DatumUnion(NamedTuple):
    """A datum type: its prefix in the C header and its variants in declaration order."""

    name: str
    prefix: str
    variants: tuple[Variant, ...]

    def dtype(self) -> np.dtype[np.void]:
        """24-byte items: `discriminator`, `padding` and `body`, read through `Variant.view`.

        The fields cover every byte and do not overlap: numpy copies structured items field by
        field, so bytes that no field covers would be left uninitialised and leak memory.
        """
        body = min(f.offset for v in self.variants for f in v.fields)
        return np.dtype(
            [
                ("discriminator", "u1"),
                ("padding", f"V{body - 1}"),
                ("body", f"V{DATUM_BYTES - body}"),
            ]
        )


_REQUEST_OPERAND: Final = (
    Field("has_no_value", 4, "bool"),
    Field("pool_index", 8, "u32"),
    Field("offset", 12, "u32"),
    Field("length", 16, "u32"),
    Field("number_of_dimensions", 20, "u32"),
)

REQUEST: Final = DatumUnion(
    "FmqRequestDatum",
    "NNB_REQUEST",
    (
        Variant(
            "packet_information",
            0,
            (
                Field("packet_size", 4, "u32"),
                Field("number_of_input_operands", 8, "u32"),
                Field("number_of_output_operands", 12, "u32"),
                Field("number_of_pools", 16, "u32"),
            ),
        ),
        Variant("input_operand_information", 1, _REQUEST_OPERAND),
        Variant("input_operand_dimension_value", 2, (Field("value", 4, "u32"),)),
        Variant("output_operand_information", 3, _REQUEST_OPERAND),
        Variant("output_operand_dimension_value", 4, (Field("value", 4, "u32"),)),
        Variant("pool_identifier", 5, (Field("value", 4, "i32"),)),
        Variant("measure_timing", 6, (Field("value", 4, "i32"),)),
    ),
)

RESULT: Final = DatumUnion(
    "FmqResultDatum",
    "NNB_RESULT",
    (
        Variant(
            "packet_information",
            0,
            (
                Field("packet_size", 8, "u32"),
                Field("error_status", 12, "i32"),
                Field("number_of_operands", 16, "u32"),
            ),
        ),
        Variant(
            "operand_information",
            1,
            (Field("is_sufficient", 8, "bool"), Field("number_of_dimensions", 12, "u32")),
        ),
        Variant("operand_dimension_value", 2, (Field("value", 8, "u32"),)),
        Variant(
            "execution_timing",
            3,
            (Field("time_on_device", 8, "u64"), Field("time_in_driver", 16, "u64")),
        ),
    ),
)

if TYPE_CHECKING:
    #: Dtype of the request ring's elements; made at its first use.
    REQUEST_DATUM: np.dtype[np.void]
    #: Dtype of the result ring's elements; made at its first use.
    RESULT_DATUM: np.dtype[np.void]


def __getattr__(name: str) -> object:
    if name not in ("REQUEST_DATUM", "RESULT_DATUM"):
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    made = (REQUEST if name == "REQUEST_DATUM" else RESULT).dtype()
    globals()[name] = made
    return made
