"""What a device says about the extensions it supports (1.2)."""

from __future__ import annotations

import msgspec


class ExtensionOperandTypeInformation(msgspec.Struct, frozen=True):
    """One operand type of an extension.

    Attributes:
        type: low 16 bits of the type's code; a model's prefix makes the high ones.
        is_tensor: whether it has dimensions.
        byte_size: bytes of one element (or of the scalar).
    """

    type: int
    is_tensor: bool
    byte_size: int


class Extension(msgspec.Struct, frozen=True):
    """An extension: its name ("vendor.extension") and its operand types."""

    name: str
    operand_types: tuple[ExtensionOperandTypeInformation, ...] = ()
