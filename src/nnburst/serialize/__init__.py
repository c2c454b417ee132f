"""Turns requests and results into FMQ datums and back, byte-identical to the original on every defined byte.

Pure functions over arrays; this package has no queues and no file descriptors.
`docs/wire_format.md` describes every byte and how malformed packets are read.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from nnburst.serialize import wire
from nnburst.serialize.packets import (
    deserialize_request,
    deserialize_result,
    normalize_result,
    serialize_request,
    serialize_result,
    serialize_result_bytes,
)
from nnburst.serialize.wire import DATUM_BYTES

if TYPE_CHECKING:
    from nnburst.serialize.wire import REQUEST_DATUM, RESULT_DATUM

__all__ = [
    "serialize_request",
    "deserialize_request",
    "serialize_result",
    "serialize_result_bytes",
    "deserialize_result",
    "normalize_result",
    "REQUEST_DATUM",
    "RESULT_DATUM",
    "DATUM_BYTES",
]


def __getattr__(name: str) -> object:
    if name not in ("REQUEST_DATUM", "RESULT_DATUM"):
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = globals()[name] = getattr(wire, name)
    return value
