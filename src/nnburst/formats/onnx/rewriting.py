"""An ONNX file with other dimensions of its inputs: everything else is copied as it is."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from nnburst.formats.onnx.wire import Malformed, varint
from nnburst.formats.onnx.writer import field
from nnburst.formats.onnx.writer import varint as encoded

_GRAPH, _INPUT, _NAME, _TYPE, _TENSOR, _SHAPE = 7, 11, 1, 2, 1, 2
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
        dims = b"".join(field(1, b"\x08" + encoded(extent)) for extent in extents)
        return _without(view, _SHAPE) + field(_SHAPE, dims)

    def named(view: memoryview) -> bytes:
        extents = shapes.get(_text(view))
        if extents is None:
            return bytes(view)
        return _rewritten(
            view, _TYPE, lambda kind: _rewritten(kind, _TENSOR, lambda t: shape(t, extents))
        )

    view = memoryview(content)
    return _rewritten(view, _GRAPH, lambda graph: _rewritten(graph, _INPUT, named))


def _rewritten(view: memoryview, number: int, change: Callable[[memoryview], bytes]) -> bytes:
    """A message whose fields of this number, themselves messages, are changed."""
    parts: list[bytes | memoryview] = []
    for found, start, value, end in _fields(view):
        parts.append(field(number, change(view[value:end])) if found == number else view[start:end])
    return b"".join(parts)


def _without(view: memoryview, number: int) -> bytes:
    return b"".join(view[start:end] for found, start, _, end in _fields(view) if found != number)


def _text(view: memoryview) -> str:
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
