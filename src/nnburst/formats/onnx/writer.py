"""Writing an ONNX file: protobuf's encoding, and the messages of a graph."""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence

Attribute = int | float | str | Sequence[int]

_FLOAT, _INT, _STRING, _INTS = 1, 2, 3, 7
_EXTERNAL = 1


def varint(number: int) -> bytes:
    """An integer of 64 bits; negative ones in two's complement."""
    number &= 0xFFFFFFFFFFFFFFFF
    found = bytearray()
    while number > 0x7F:
        found.append(number & 0x7F | 0x80)
        number >>= 7
    return bytes([*found, number])


def field(number: int, value: bytes) -> bytes:
    """A field of bytes: a string, a message or packed numbers."""
    return varint(number << 3 | 2) + varint(len(value)) + value


def _integer(number: int, value: int) -> bytes:
    return varint(number << 3) + varint(value)


def _text(number: int, value: str) -> bytes:
    return field(number, value.encode())


def _packed(number: int, values: Sequence[int]) -> bytes:
    return field(number, b"".join(varint(value) for value in values))


def described(name: str, element: int, extents: Sequence[int]) -> bytes:
    """An input or output (ValueInfoProto) of known extents; `element` is ONNX's number of its type."""
    shape = b"".join(field(1, _integer(1, extent)) for extent in extents)
    return _text(1, name) + field(2, field(1, _integer(1, element) + field(2, shape)))


def tensor(name: str, element: int, extents: Sequence[int], values: bytes) -> bytes:
    """An initializer (TensorProto) with its elements, little-endian."""
    return _tensor_head(name, element, extents) + field(9, values)


def tensor_elsewhere(
    name: str, element: int, extents: Sequence[int], place: tuple[str, int, int]
) -> bytes:
    """An initializer whose elements lie in another file: its name, the offset and the length."""
    keys = zip(("location", "offset", "length"), place, strict=True)
    entries = b"".join(field(13, _text(1, key) + _text(2, str(value))) for key, value in keys)
    return _tensor_head(name, element, extents) + entries + _integer(14, _EXTERNAL)


def _tensor_head(name: str, element: int, extents: Sequence[int]) -> bytes:
    return _packed(1, extents) + _integer(2, element) + _text(8, name)


def node(
    kind: str, inputs: Sequence[str], outputs: Sequence[str], attributes: Mapping[str, Attribute]
) -> bytes:
    """An operator (NodeProto) of the standard; an input that is left out is called ""."""
    parts = [_text(1, name) for name in inputs] + [_text(2, name) for name in outputs]
    parts += [_text(4, kind)]
    parts += [field(5, _attribute(name, value)) for name, value in attributes.items()]
    return b"".join(parts)


def _attribute(name: str, value: Attribute) -> bytes:
    if isinstance(value, float):
        rest = varint(2 << 3 | 5) + struct.pack("<f", value) + _integer(20, _FLOAT)
    elif isinstance(value, int):
        rest = _integer(3, value) + _integer(20, _INT)
    elif isinstance(value, str):
        rest = _text(4, value) + _integer(20, _STRING)
    else:
        rest = b"".join(_integer(8, each) for each in value) + _integer(20, _INTS)
    return _text(1, name) + rest


def model(
    nodes: Sequence[bytes],
    initializers: Sequence[bytes],
    inputs: Sequence[bytes],
    outputs: Sequence[bytes],
    *,
    opset: int,
    version: int,
) -> bytes:
    """A file (ModelProto) with one graph.

    Args:
        nodes: in order.
        initializers: constants.
        inputs: as `described`.
        outputs: likewise.
        opset: version of the standard's operators.
        version: of the format.
    """
    graph = b"".join(
        [
            *(field(1, each) for each in nodes),
            _text(2, "network"),
            *(field(5, each) for each in initializers),
            *(field(11, each) for each in inputs),
            *(field(12, each) for each in outputs),
        ]
    )
    operators = _text(1, "") + _integer(2, opset)
    return _integer(1, version) + _text(2, "nnburst") + field(7, graph) + field(8, operators)
