"""The token under which a prepared model is cached, and its files' names (RT:K1 and K3).

NNAPI: TokenHasher.cpp, CompilationBuilder.cpp, ExecutionPlan.cpp (the framework's part).
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from struct import pack

from nnburst.hal.configs import NumberOfCacheFiles
from nnburst.hal.enums import NDK_PRIORITIES, ExecutionPreference, Priority
from nnburst.hal.extensions.attributes import ExtensionAttribute, check_attributes
from nnburst.hal.validation.values import validate_cache_token


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
    """The token that a driver gets, 32 bytes: another one for all that makes another compilation.

    Args:
        client: the application's token, 32 bytes, which names the model.
        operations: source model and number of those that a step of a plan has; empty for a whole model.
        device: its name.
        version: its version string.
        preference: that it is compiled for.
        priority: likewise.
        attributes: whatever else it is compiled with; their order does not count.

    Raises:
        InvalidArgument: validation:S11: `client` has not 32 bytes; or attributes that `check_attributes`
            refuses.
    """
    import hashlib  # OpenSSL: programs without a cache have no use for it

    validate_cache_token(client)
    check_attributes(attributes)
    hashed = hashlib.sha256(client)
    for source_model, operation in operations:
        hashed.update(pack("<Ii", source_model, operation))
    hashed.update(device.encode() + version.encode())
    hashed.update(pack("<ii", preference, NDK_PRIORITIES[priority]))
    for extension, code, value in sorted(attributes):
        hashed.update(extension.encode() + pack("<H", code) + value)
    return hashed.digest()


def cache_paths(
    folder: Path, token: bytes, needed: NumberOfCacheFiles
) -> tuple[list[Path], list[Path]]:
    """Names of the model and data files of one compilation: letters of the token, kind, number."""
    letters = "".join(f"{chr(65 + (byte & 15))}{chr(65 + (byte >> 4))}" for byte in token)
    return (
        [folder / f"{letters}1{at}" for at in range(needed.model_cache)],
        [folder / f"{letters}2{at}" for at in range(needed.data_cache)],
    )
