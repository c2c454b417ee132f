"""Describes vendor extensions: types and operations, attributes of requests, and custom operators."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, NamedTuple, Protocol, Self, runtime_checkable

import msgspec

from nnburst.hal import late_numpy as np
from nnburst.hal.errors import InvalidArgument
from nnburst.hal.limits import UINT16_MAX
from nnburst.hal.model import ExtensionNameAndPrefix
from nnburst.hal.types import TokenValuePair
from nnburst.hal.utils import check_integer, listed

if TYPE_CHECKING:
    import numpy.typing as npt


#: NNAPI: IDevice::EXTENSION_TYPE_LOW_BITS_TYPE; the bits above are the prefix that a model maps to a name.
LOW_BITS_TYPE: Final = 16
_LOW_MASK: Final = (1 << LOW_BITS_TYPE) - 1


_NAME_CHARACTERS: Final = frozenset("abcdefghijklmnopqrstuvwxyz0123456789_.")


def is_extension_name(name: object) -> bool:
    """Whether it is a text of a-z, 0-9, '_' and '.' alone, with at least one '.'."""
    return isinstance(name, str) and "." in name and _NAME_CHARACTERS.issuperset(name)


class ExtensionOperandTypeInformation(msgspec.Struct, frozen=True):
    """One operand type of an extension.

    Attributes:
        type: the low 16 bits of the type's code; the high bits are the prefix in a model.
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
        name: its name in messages.
    """

    name: str

    def __new__(cls, code: int, name: str) -> Self:
        """Make a code with a name."""
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
        dtype: dtype of its elements.
        is_tensor: whether it has dimensions.
    """

    dtype: np.dtype[Any]
    is_tensor: bool

    @classmethod
    def make(cls, code: int, name: str, dtype: npt.DTypeLike, *, is_tensor: bool) -> Self:
        """Make a type with elements of `dtype`."""
        self = cls(code, name)
        self.dtype = np.dtype(dtype)
        self.is_tensor = is_tensor
        return self


def extension_code(prefix: int, number: int) -> int:
    """The code of an extension's type or operation `number` in a model that uses `prefix` for the extension.

    NNAPI: ExtensionTypeEncoding; HIDL has 16 bits for the prefix, AIDL 15, as its codes are signed.
    """
    return prefix << LOW_BITS_TYPE | number


def prefix_of(code: int) -> int:
    """The prefix in a code; 0 for core types and operations."""
    return (code & 0xFFFFFFFF) >> LOW_BITS_TYPE


def number_of(code: int) -> int:
    """The number of a type or an operation within its extension."""
    return code & _LOW_MASK


class ExtensionAttribute(NamedTuple):
    """One attribute for a device, which reads its bytes or ignores it.

    Attributes:
        extension: name of the extension.
        code: code of the attribute within the extension, 16 bits.
        value: bytes of the attribute.
    """

    extension: str
    code: int
    value: bytes = b""


class Hints(msgspec.Struct, frozen=True):
    """Attributes as they are sent (NNAPI: compilationHints, executionHints and extensionNameToPrefix).

    Attributes:
        pairs: unique tokens with values; a token is the extension's prefix followed by the attribute's code.
        extension_name_to_prefix: one-to-one map of the extensions of these attributes.
    """

    pairs: tuple[TokenValuePair, ...]
    extension_name_to_prefix: tuple[ExtensionNameAndPrefix, ...]


def hints_of(attributes: Sequence[ExtensionAttribute]) -> Hints | msgspec.UnsetType:
    """Convert attributes for a message; UNSET, which takes no byte, if there are no attributes.

    Raises:
        InvalidArgument: as for `check_attributes`.
    """
    if not attributes:
        return msgspec.UNSET
    checked = check_attributes(attributes)
    names = dict.fromkeys(attribute.extension for attribute in checked)
    prefix_of = {name: prefix for prefix, name in enumerate(names, 1)}
    pairs = tuple(
        TokenValuePair(extension_code(prefix_of[a.extension], a.code), a.value) for a in checked
    )
    entries = tuple(ExtensionNameAndPrefix(name, prefix) for name, prefix in prefix_of.items())
    return Hints(pairs, entries)


def check_attributes(attributes: Iterable[ExtensionAttribute]) -> tuple[ExtensionAttribute, ...]:
    """Check attributes, and return them with their values as bytes.

    Raises:
        InvalidArgument: it is no list of attributes; or an extension is no name, a code has more than 16 bits
            or is given twice, or a value is not bytes.
    """
    checked: dict[tuple[str, int], ExtensionAttribute] = {}
    for at, attribute in enumerate(listed("attributes", attributes)):
        name = f"attributes[{at}]"
        if not isinstance(attribute, ExtensionAttribute):
            raise InvalidArgument(f"{name} is {attribute!r}, expected an ExtensionAttribute")
        extension, code, value = attribute
        if not is_extension_name(extension):
            raise InvalidArgument(f"{name}: extension is {extension!r}, expected vendor.extension")
        code = check_integer(f"{name}: code", code, 0, UINT16_MAX)
        if (extension, code) in checked:
            raise InvalidArgument(f"{name}: code {code} of {extension} is given twice")
        try:
            content = bytes(memoryview(value))
        except (TypeError, ValueError):  # numpy's times have no buffer
            raise InvalidArgument(f"{name}: value is {value!r}, expected bytes") from None
        checked[extension, code] = ExtensionAttribute(extension, code, content)
    return tuple(checked.values())


#: Group of entry points: name of an extension to its `module:attribute`.
GROUP: Final = "nnburst.extensions"

#: A function that translates one operator of a file, an `nnburst.importer.tflite.operator.Operator`.
Lowering = Callable[[Any], None]


class CustomOperator(msgspec.Struct, frozen=True):
    """The translation of a custom operator: an operation of the extension, or a function's core operations.

    Attributes:
        operation: number of the extension's operation, with the operator's inputs and outputs.
        options: number of an operand type with elements of one byte: the operator's options become the last
            input, of this type, without a value if the file has none. None to drop the options.
        lowering: translates the operator to core operations instead.
    """

    operation: int = 0
    options: int | None = None
    lowering: Lowering | None = None


@runtime_checkable
class ClaimsOperators(Protocol):
    """An extension that translates custom operators, as an importer uses it.

    Attributes:
        name: its unique name in reverse-domain order.
        custom_operators: the operators that it translates, by their names in files.
    """

    name: str
    custom_operators: Mapping[str, CustomOperator]
