"""Vendor extensions (1.2): what a device reports about them, and the codes of their types and operations."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, Self

import msgspec

from nnburst.hal.imports import late_numpy as np

if TYPE_CHECKING:
    import numpy.typing as npt

#: NNAPI: IDevice::EXTENSION_TYPE_LOW_BITS_TYPE; above them lies the prefix that a model maps to a name.
LOW_BITS_TYPE: Final = 16
_LOW_MASK: Final = (1 << LOW_BITS_TYPE) - 1


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


class ExtensionCode(int):
    """Code of an extension's operation inside one process: a number with a name, like an enum's member.

    Attributes:
        name: for messages.
    """

    name: str

    def __new__(cls, code: int, name: str) -> Self:
        """Give `code` a name."""
        self = super().__new__(cls, code)
        self.name = name
        return self

    @property
    def value(self) -> int:
        """The plain number."""
        return int(self)


class ExtensionOperandType(ExtensionCode):
    """Code of an extension's operand type inside one process.

    Attributes:
        dtype: of its elements.
        is_tensor: whether it has dimensions.
    """

    dtype: np.dtype[Any]
    is_tensor: bool

    @classmethod
    def make(cls, code: int, name: str, dtype: npt.DTypeLike, *, is_tensor: bool) -> Self:
        """A type whose elements are `dtype`."""
        self = cls(code, name)
        self.dtype = np.dtype(dtype)
        self.is_tensor = is_tensor
        return self


def extension_code(prefix: int, number: int) -> int:
    """The code that type or operation `number` of an extension has if `prefix` stands for it.

    NNAPI: ExtensionTypeEncoding; HIDL has 16 bits for the prefix, AIDL 15, as its codes are signed.
    """
    return prefix << LOW_BITS_TYPE | number


def prefix_of(code: int) -> int:
    """The prefix in a code; 0 in those of the core."""
    return (code & 0xFFFFFFFF) >> LOW_BITS_TYPE


def number_of(code: int) -> int:
    """The number of a type or an operation within its extension."""
    return code & _LOW_MASK
