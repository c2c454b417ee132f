"""What lies in cache files, as pure functions.

The data cache is the constants and nothing else. The model cache is a header and a payload:

    offset  bytes
    0       8      magic
    8       4      version of the format, little-endian like all numbers
    12      4      0
    16      8      bytes of the payload, which ends the file
    24      8      bytes of the data cache
    32      32     SHA-256 of the data cache
    64      32     HMAC-SHA-256 with the user's key of all that steers: who wrote it, the token, the header
                   up to here, the payload
    96             payload: msgpack of `Entry`

Nothing of a file is looked at, beyond its length, before the HMAC has been compared.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable
from typing import Final

import msgspec

from nnburst.executor.caching import Cached, Octets
from nnburst.hal.enums import ExecutionPreference, Priority
from nnburst.hal.errors import GeneralFailure
from nnburst.hal.model import Model

FORMAT_VERSION: Final = 1
_MAGIC: Final = b"nnbcache"
_HEADER: Final = struct.Struct("<8sIIQQ32s")
_MAC_BYTES: Final = 32
#: Bytes of a model cache before its payload.
PREFIX_BYTES: Final = _HEADER.size + _MAC_BYTES


class Entry(msgspec.Struct, frozen=True, array_like=True):
    """What a driver needs, beside constants, to prepare a model once more.

    Attributes:
        model: what requests are validated against.
        preference: what the model was prepared for.
        priority: likewise.
        num_threads: likewise.
        program: the executor's own bytes.
    """

    model: Model
    preference: ExecutionPreference
    priority: Priority
    num_threads: int
    program: bytes


_encode: Final = msgspec.msgpack.Encoder().encode
_decode: Final = msgspec.msgpack.Decoder(Entry).decode


def seal(entry: Entry, constants: Octets, *, writer: str, token: bytes, key: bytes) -> bytes:
    """The model cache of `entry`, whose data cache is `constants`.

    Args:
        entry: what to keep.
        constants: bytes of the data cache.
        writer: identity of the driver; another one cannot open it.
        token: 32 bytes of the client's.
        key: the user's.
    """
    payload = _encode(entry)
    digest = sha256(constants)
    header = _HEADER.pack(_MAGIC, FORMAT_VERSION, 0, len(payload), len(constants), digest)
    return b"".join((header, _mac(writer, token, (header, payload), key), payload))


def unseal(
    model_cache: Octets, constants: Octets, *, writer: str, token: bytes, key: bytes
) -> tuple[Entry, Cached]:
    """What `seal` was given.

    Args:
        model_cache: a private copy of the file; it cannot be changed from elsewhere.
        constants: a private copy of the data cache.
        writer: identity of this driver.
        token: 32 bytes of the client's.
        key: the user's.

    Raises:
        GeneralFailure: not one byte of either file may be different, nor writer, token or key.
    """
    if len(model_cache) < PREFIX_BYTES:
        raise GeneralFailure(f"a model cache of {len(model_cache)} bytes, at least {PREFIX_BYTES}")
    view = memoryview(model_cache)
    header, mac = view[: _HEADER.size], view[_HEADER.size : PREFIX_BYTES]
    payload = view[PREFIX_BYTES:]
    if not _are_equal(_mac(writer, token, (header, payload), key), mac):
        raise GeneralFailure(
            "the model cache is not what this driver wrote for this token: it was changed, or comes"
            " from another driver, version or user, or belongs to another model"
        )
    magic, version, zero, payload_bytes, data_bytes, digest = _HEADER.unpack(header)
    expected = (_MAGIC, FORMAT_VERSION, 0, len(payload))
    if (magic, version, zero, payload_bytes) != expected:
        raise GeneralFailure("the model cache is of another format than this driver's")
    # DEVIATES: NNAPI lets a data cache that was changed give wrong results; here it is not used.
    if len(constants) != data_bytes or sha256(constants) != digest:
        raise GeneralFailure("the data cache is not the one that belongs to the model cache")
    try:
        entry = _decode(payload)
    except (msgspec.MsgspecError, ValueError, RecursionError) as error:
        raise GeneralFailure(f"the model cache cannot be read: {error}") from error
    return entry, Cached(entry.model, entry.program, constants)


def sha256(data: Octets) -> bytes:
    """A digest. OpenSSL is loaded here: 10 ms of every start that drivers without a cache are spared."""
    import hashlib

    return hashlib.sha256(data).digest()


def _are_equal(one: bytes, other: bytes | memoryview) -> bool:
    """Takes as long wherever they differ."""
    import hmac

    return hmac.compare_digest(one, other)


def _mac(writer: str, token: bytes, parts: Iterable[bytes | memoryview], key: bytes) -> bytes:
    import hmac

    made = hmac.new(key, digestmod="sha256")
    for name in (writer.encode(), token):
        made.update(struct.pack("<Q", len(name)) + name)
    for part in parts:  # the header has the payload's length
        made.update(part)
    return made.digest()
