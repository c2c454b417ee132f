"""Describes vendor extensions: types and operations, attributes of requests, and custom operators."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, NamedTuple, Protocol, Self, runtime_checkable

import msgspec

from nnburst.hal import late_numpy as np
from nnburst.hal.errors import InvalidArgument
from nnburst.hal.model import ExtensionNameAndPrefix
from nnburst.hal.types import TokenValuePair

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


class ExtensionAttribute(NamedTuple):
    """One attribute. The device reads its bytes, or ignores it.

    Attributes:
        extension: name of the extension.
        code: of the attribute within the extension, 16 bits.
        value: its bytes.
    """

    extension: str
    code: int
    value: bytes = b""


class Hints(msgspec.Struct, frozen=True):
    """Attributes as they are sent (NNAPI: compilationHints, executionHints and extensionNameToPrefix).

    Attributes:
        pairs: a token is an extension's prefix, and below it the attribute's code; each once.
        extension_name_to_prefix: one-to-one map of the extensions that they belong to.
    """

    pairs: tuple[TokenValuePair, ...]
    extension_name_to_prefix: tuple[ExtensionNameAndPrefix, ...]


def hints_of(attributes: Sequence[ExtensionAttribute]) -> Hints | msgspec.UnsetType:
    """The message's part for attributes; UNSET, which no byte is sent for, without one.

    Raises:
        InvalidArgument: two have the same extension and code, or a code has more than 16 bits.
    """
    if not attributes:
        return msgspec.UNSET
    check_attributes(attributes)
    names = dict.fromkeys(attribute.extension for attribute in attributes)
    prefix_of = {name: prefix for prefix, name in enumerate(names, 1)}
    pairs = tuple(
        TokenValuePair(extension_code(prefix_of[a.extension], a.code), bytes(a.value))
        for a in attributes
    )
    entries = tuple(ExtensionNameAndPrefix(name, prefix) for name, prefix in prefix_of.items())
    return Hints(pairs, entries)


def check_attributes(attributes: Iterable[ExtensionAttribute]) -> None:
    """Refuse a code of more than 16 bits, and one that is given twice.

    Raises:
        InvalidArgument: there is one.
    """
    seen: set[tuple[str, int]] = set()
    for extension, code, _ in attributes:
        if not isinstance(code, int) or not 0 <= code <= 0xFFFF:
            raise InvalidArgument(f"attribute of {extension}: code is {code!r}, expected 16 bits")
        if (extension, code) in seen:
            raise InvalidArgument(f"attribute {code} of {extension}: it is given twice")
        seen.add((extension, code))


#: Entry points: name of an extension → `module:attribute` of it.
GROUP: Final = "nnburst.extensions"

#: Translates one operator of a file, an `nnburst.importer.tflite.operator.Operator`.
Lowering = Callable[[Any], None]


class CustomOperator(msgspec.Struct, frozen=True):
    """The translation of a custom operator: an operation of the extension, or a function's core operations.

    Attributes:
        operation: number of the extension's operation, whose inputs and outputs are the operator's.
        options: number of the extension's operand type of one byte an element, which the operator's options
            are given as, as the last input; without a value if the file has none. None if they are dropped.
        lowering: translates it to core operations instead.
    """

    operation: int = 0
    options: int | None = None
    lowering: Lowering | None = None


@runtime_checkable
class ClaimsOperators(Protocol):
    """An extension as an importer sees it.

    Attributes:
        name: in reverse-domain order, unique.
        custom_operators: the operators that it translates, by the names in files.
    """

    name: str
    custom_operators: Mapping[str, CustomOperator]
