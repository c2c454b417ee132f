"""Reads and writes protobuf's encoding, as ONNX files use it.

A message is bytes; a field is a number, a kind and a value. The code that reads a message gives the
numbers their meaning. Nothing is copied: values with a length are views. Each field is charged to the
file's budget, so a file of empty messages costs no more than its size allows.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt

from nnburst.formats.budget import Budget
from nnburst.hal.errors import InvalidArgument

#: Charge for a field, generously rounded up.
_FIELD_COST: Final = 16
_VARINT, _EIGHT, _LENGTH, _FOUR = 0, 1, 2, 5
#: Deepest nesting of messages (graphs in attributes of nodes of graphs …).
DEEPEST: Final = 64


class Malformed(InvalidArgument):
    """The bytes are not an intact ONNX file."""

    def __init__(self, reason: str) -> None:
        """Keep the reason, which describes the bytes."""
        super().__init__(f"not an intact ONNX file: {reason}")


class Field(NamedTuple):
    """A field of a message.

    Attributes:
        number: which.
        integer: its value as unsigned 64 bit; the length of a view.
        view: its bytes, if it has a length or a fixed size; else empty.
        packed: whether it has a length, as strings, messages and packed numbers do.
    """

    number: int
    integer: int
    view: memoryview
    packed: bool


_EMPTY: Final = memoryview(b"")


class Message:
    """A message that is read once, field by field.

    Attributes:
        view: its bytes.
        budget: is charged.
        depth: how many messages it lies in.
    """

    __slots__ = ("budget", "depth", "view")

    def __init__(self, view: memoryview, budget: Budget, depth: int = 0) -> None:
        """Of bytes that stay as they are."""
        if depth > DEEPEST:
            raise Malformed(f"messages are nested more than {DEEPEST} deep")
        self.view, self.budget, self.depth = view, budget, depth

    def inner(self, field: Field) -> Message:
        """The message that a field holds."""
        if not field.packed:
            raise Malformed(f"field {field.number} is a number, expected a message")
        return Message(field.view, self.budget, self.depth + 1)

    def fields(self) -> Iterator[Field]:
        """All fields in order."""
        view, at, end = self.view, 0, len(self.view)
        while at < end:
            self.budget.spend(_FIELD_COST)
            tag, at = varint(view, at)
            if tag > 0xFFFFFFFF:
                raise Malformed(f"a field has the number {tag >> 3}, expected 1 to 2**29 - 1")
            number, kind = tag >> 3, tag & 7
            if kind == _VARINT:
                value, at = varint(view, at)
                yield Field(number, value, _EMPTY, packed=False)
                continue
            packed = kind == _LENGTH
            if packed:
                size, at = varint(view, at)
            elif kind in (_FOUR, _EIGHT):
                size = 4 if kind == _FOUR else 8
            else:
                raise Malformed(f"field {number} at byte {at} is of the unknown kind {kind}")
            if size > end - at:
                raise Malformed(f"field {number} has {size} bytes, only {end - at} are left")
            yield Field(number, size, view[at : at + size], packed=packed)
            at += size


def once(what: str, before: object) -> None:
    """Refuse a second occurrence of a single field, which other readers would merge with the first."""
    if before is not None:
        raise Malformed(f"{what} comes twice")


def varint(view: memoryview, at: int) -> tuple[int, int]:
    """The integer at byte `at`, as unsigned 64 bit, and where the next field begins."""
    value = shift = 0
    while shift < 70:
        if at >= len(view):
            raise Malformed("the message ends within an integer")
        byte = view[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value & 0xFFFFFFFFFFFFFFFF, at
        shift += 7
    raise Malformed("an integer has more than ten bytes")


def signed(value: int) -> int:
    """An unsigned 64-bit integer as a signed one."""
    return value - (1 << 64) if value >= 1 << 63 else value


def integers(field: Field, budget: Budget) -> list[int]:
    """The signed integers of a repeated field: one, or packed ones."""
    if not field.packed:
        return [signed(field.integer)]
    budget.spend(64 * len(field.view))
    found, at = [], 0
    while at < len(field.view):
        value, at = varint(field.view, at)
        found.append(signed(value))
    return found


def reals(field: Field, dtype: npt.DTypeLike) -> npt.NDArray[np.generic]:
    """The floating-point numbers of a repeated field: one, or packed ones; a view of the file."""
    kind = np.dtype(dtype)
    if len(field.view) % kind.itemsize or (not field.packed and len(field.view) != kind.itemsize):
        raise Malformed(f"field {field.number} has {len(field.view)} bytes of {kind}")
    return np.frombuffer(field.view, kind)


def real(field: Field) -> float:
    """A 32-bit floating-point number."""
    if field.packed or len(field.view) != 4:
        raise Malformed(f"field {field.number} is not a 32-bit number")
    return float(struct.unpack("<f", field.view)[0])


def text(field: Field, budget: Budget) -> str:
    """A string; bytes that are not UTF-8 are escaped."""
    if not field.packed:
        raise Malformed(f"field {field.number} is a number, expected a string")
    budget.spend(64 + 4 * len(field.view))
    return bytes(field.view).decode(errors="backslashreplace")


# -- Writing ONNX files ----------------------------------------------------------------------------


Attribute = int | float | str | Sequence[int]

_FLOAT, _INT, _STRING, _INTS = 1, 2, 3, 7
_EXTERNAL = 1


def encoded_varint(number: int) -> bytes:
    """An integer of 64 bits; negative ones in two's complement."""
    number &= 0xFFFFFFFFFFFFFFFF
    found = bytearray()
    while number > 0x7F:
        found.append(number & 0x7F | 0x80)
        number >>= 7
    return bytes([*found, number])


def field(number: int, value: bytes) -> bytes:
    """A field of bytes: a string, a message or packed numbers."""
    return encoded_varint(number << 3 | 2) + encoded_varint(len(value)) + value


def _integer(number: int, value: int) -> bytes:
    return encoded_varint(number << 3) + encoded_varint(value)


def _text_field(number: int, value: str) -> bytes:
    return field(number, value.encode())


def _packed(number: int, values: Sequence[int]) -> bytes:
    return field(number, b"".join(encoded_varint(value) for value in values))


def described(name: str, element: int, extents: Sequence[int | str]) -> bytes:
    """An input or output (ValueInfoProto); extents that are open have names.

    Args:
        name: of it.
        element: ONNX's number of its type.
        extents: of it.
    """
    shape = b"".join(
        field(1, _text_field(2, each) if isinstance(each, str) else _integer(1, each))
        for each in extents
    )
    return _text_field(1, name) + field(2, field(1, _integer(1, element) + field(2, shape)))


def tensor(name: str, element: int, extents: Sequence[int], values: bytes) -> bytes:
    """An initializer (TensorProto) with its elements, little-endian."""
    return _tensor_head(name, element, extents) + field(9, values)


def tensor_elsewhere(
    name: str, element: int, extents: Sequence[int], place: tuple[str, int, int]
) -> bytes:
    """An initializer whose elements lie in another file: its name, the offset and the length."""
    keys = zip(("location", "offset", "length"), place, strict=True)
    entries = b"".join(
        field(13, _text_field(1, key) + _text_field(2, str(value))) for key, value in keys
    )
    return _tensor_head(name, element, extents) + entries + _integer(14, _EXTERNAL)


def _tensor_head(name: str, element: int, extents: Sequence[int]) -> bytes:
    return _packed(1, extents) + _integer(2, element) + _text_field(8, name)


def node(
    kind: str,
    inputs: Sequence[str],
    outputs: Sequence[str],
    attributes: Mapping[str, Attribute],
    domain: str = "",
) -> bytes:
    """An operator (NodeProto), of the standard unless a domain is given; an input left out is called ""."""
    parts = [_text_field(1, name) for name in inputs] + [_text_field(2, name) for name in outputs]
    parts += [_text_field(4, kind)]
    parts += [field(5, _attribute(name, value)) for name, value in attributes.items()]
    if domain:
        parts += [_text_field(7, domain)]
    return b"".join(parts)


def _attribute(name: str, value: Attribute) -> bytes:
    if isinstance(value, float):
        rest = encoded_varint(2 << 3 | 5) + struct.pack("<f", value) + _integer(20, _FLOAT)
    elif isinstance(value, int):
        rest = _integer(3, value) + _integer(20, _INT)
    elif isinstance(value, str):
        rest = _text_field(4, value) + _integer(20, _STRING)
    else:
        rest = b"".join(_integer(8, each) for each in value) + _integer(20, _INTS)
    return _text_field(1, name) + rest


def model(
    nodes: Sequence[bytes],
    initializers: Sequence[bytes],
    inputs: Sequence[bytes],
    outputs: Sequence[bytes],
    *,
    opset: int,
    version: int,
    domains: Sequence[str] = (),
) -> bytes:
    """A file (ModelProto) with one graph.

    Args:
        nodes: in order.
        initializers: constants.
        inputs: as `described`.
        outputs: likewise.
        opset: version of the standard's operators.
        version: of the format.
        domains: others whose operators, of version 1, are used.
    """
    graph = b"".join(
        [
            *(field(1, each) for each in nodes),
            _text_field(2, "network"),
            *(field(5, each) for each in initializers),
            *(field(11, each) for each in inputs),
            *(field(12, each) for each in outputs),
        ]
    )
    opsets = [("", opset), *((domain, 1) for domain in domains)]
    operators = b"".join(field(8, _text_field(1, name) + _integer(2, n)) for name, n in opsets)
    return _integer(1, version) + _text_field(2, "nnburst") + field(7, graph) + operators


# -- Changing the shapes in a file -----------------------------------------------------------------


_GRAPH, _INPUT, _NAME, _TYPE, _TENSOR, _SHAPE = 7, 11, 1, 2, 1, 2
_NODE, _OUTPUT, _INT64 = 1, 12, 7
_SIZES = {1: 8, 5: 4}


def with_shapes(content: bytes, shapes: Mapping[str, Sequence[int]]) -> bytes:
    """The file with these dimensions of its inputs, so that an engine can infer those of its outputs.

    Args:
        content: of a file that was read.
        shapes: by name of input.

    Raises:
        Malformed: the bytes are not an intact file.
    """

    def shape(view: memoryview, extents: Sequence[int]) -> bytes:
        dims = b"".join(field(1, b"\x08" + encoded_varint(extent)) for extent in extents)
        return _without(view, _SHAPE) + field(_SHAPE, dims)

    def named(view: memoryview) -> bytes:
        extents = shapes.get(_read_text(view))
        if extents is None:
            return bytes(view)
        return _rewritten(
            view, _TYPE, lambda kind: _rewritten(kind, _TENSOR, lambda t: shape(t, extents))
        )

    view = memoryview(content)
    return _rewritten(view, _GRAPH, lambda graph: _rewritten(graph, _INPUT, named))


def with_largest(content: bytes, outputs: Mapping[str, tuple[str, Sequence[int | str]]]) -> bytes:
    """The file with the index of the largest along the last axis (INT64) in place of some outputs.

    Args:
        content: of a file that was read.
        outputs: new names and extents, by names.

    Raises:
        Malformed: the bytes are not an intact file.
    """

    def changed(graph: memoryview) -> bytes:
        parts: list[bytes | memoryview] = []
        for number, start, value, end in _fields(graph):
            known = outputs.get(_read_text(graph[value:end])) if number == _OUTPUT else None
            parts.append(
                graph[start:end]
                if known is None
                else field(_OUTPUT, described(known[0], _INT64, known[1]))
            )
        nodes = [
            field(_NODE, node("ArgMax", [before], [after], {"axis": -1, "keepdims": 0}))
            for before, (after, _) in outputs.items()
        ]
        return b"".join([*parts, *nodes])

    return _rewritten(memoryview(content), _GRAPH, changed)


def _rewritten(view: memoryview, number: int, change: Callable[[memoryview], bytes]) -> bytes:
    """A message whose fields of this number, themselves messages, are changed."""
    parts: list[bytes | memoryview] = []
    for found, start, value, end in _fields(view):
        parts.append(field(number, change(view[value:end])) if found == number else view[start:end])
    return b"".join(parts)


def _without(view: memoryview, number: int) -> bytes:
    return b"".join(view[start:end] for found, start, _, end in _fields(view) if found != number)


def _read_text(view: memoryview) -> str:
    names = [view[value:end] for found, _, value, end in _fields(view) if found == _NAME]
    return bytes(names[-1]).decode(errors="backslashreplace") if names else ""


def _fields(view: memoryview) -> list[tuple[int, int, int, int]]:
    """Of each field its number, where it begins, where its value begins, and where it ends."""
    found, at = [], 0
    while at < len(view):
        start = at
        tag, at = varint(view, at)
        kind = tag & 7
        if kind == 0:
            value = at
            _, at = varint(view, at)
        elif kind == 2:
            size, at = varint(view, at)
            value, at = at, at + size
        elif kind in _SIZES:
            value, at = at, at + _SIZES[kind]
        else:
            raise Malformed(f"a field has the unknown kind {kind}")
        if at > len(view):
            raise Malformed("a field ends behind its message")
        found.append((tag >> 3, start, value, at))
    return found
