"""Attributes of vendor extensions: hints about one preparation or one execution (AIDL version 4)."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

import msgspec

from nnburst.hal.configs import TokenValuePair
from nnburst.hal.errors import InvalidArgument
from nnburst.hal.extensions import extension_code
from nnburst.hal.model import ExtensionNameAndPrefix


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
