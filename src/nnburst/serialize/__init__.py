"""Requests and results as FMQ datums, byte-identical to the original on every defined byte.

Pure functions over arrays; this package has no queues and no file descriptors.
`docs/wire_format.md` describes every byte and how malformed packets are read.
"""

from nnburst.serialize.request import deserialize_request, serialize_request
from nnburst.serialize.result import deserialize_result, normalize_result, serialize_result
from nnburst.serialize.wire import DATUM_BYTES, REQUEST_DATUM, RESULT_DATUM

__all__ = [
    "serialize_request",
    "deserialize_request",
    "serialize_result",
    "deserialize_result",
    "normalize_result",
    "REQUEST_DATUM",
    "RESULT_DATUM",
    "DATUM_BYTES",
]
