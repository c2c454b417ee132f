"""The token under which a prepared model is cached, and its files' names (RT:K1 and K3)."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from enum import IntEnum
from struct import pack
from typing import Final

from nnburst.hal.enums import ExecutionPreference, Priority
from nnburst.hal.extensions.attributes import ExtensionAttribute
from nnburst.hal.validation.values import validate_cache_token

#: What the NDK calls the priorities; tokens hold these numbers.
_PRIORITIES: Final = {Priority.LOW: 90, Priority.MEDIUM: 100, Priority.HIGH: 110}


class CacheKind(IntEnum):
    """Which of a compilation's files."""

    MODEL = 1
    DATA = 2


def cache_token(
    client: bytes,
    operations: Sequence[tuple[int, int]],
    device: str,
    version: str,
    *,
    preference: ExecutionPreference,
    priority: Priority,
    attributes: Sequence[ExtensionAttribute] = (),
) -> bytes:
    """The token of one part of a plan, 32 bytes.

    Args:
        client: the application's token, 32 bytes.
        operations: `token_operations` of the part: empty for a simple plan.
        device: its name.
        version: its version string.
        preference: the compilation's.
        priority: the compilation's.
        attributes: the compilation's; their order does not count.

    Raises:
        InvalidArgument: `client` has not 32 bytes.
    """
    validate_cache_token(client)
    hashed = hashlib.sha256(client)
    for source_model, operation in operations:
        hashed.update(pack("<Ii", source_model, operation))
    hashed.update(device.encode())
    hashed.update(version.encode())
    hashed.update(pack("<ii", preference, _PRIORITIES[priority]))
    for attribute in sorted(attributes, key=lambda a: (a.extension.encode(), a.code)):
        hashed.update(attribute.extension.encode())
        hashed.update(pack("<H", attribute.code))
        hashed.update(attribute.value)
    return hashed.digest()


def cache_file_name(token: bytes, kind: CacheKind, number: int) -> str:
    """Name of file `number` of a kind, to be appended to the directory: letters, kind, number."""
    letters = "".join(chr(ord("A") + half) for byte in token for half in (byte & 15, byte >> 4))
    return f"{letters}{int(kind)}{number}"
