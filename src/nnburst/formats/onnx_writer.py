"""Writes ONNX files, and changes shapes and outputs of existing files."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Final

from nnburst.formats.protobuf import field, fields, packed

Attribute = int | float | str | Sequence[int]

_FLOAT, _INT, _STRING, _INTS = 1, 2, 3, 7
_EXTERNAL: Final = 1


def described(name: str, element: int, extents: Sequence[int | str]) -> bytes:
    """Encode an input or output (ValueInfoProto); open extents have names.

    Args:
        name: name of the tensor.
        element: ONNX's number of its type.
        extents: its extents.
    """
    shape = b"".join(field(1, field(2 if isinstance(each, str) else 1, each)) for each in extents)
    return field(1, name) + field(2, field(1, field(1, element) + field(2, shape)))


def tensor(name: str, element: int, extents: Sequence[int], values: bytes) -> bytes:
    """Encode an initializer (TensorProto) with its elements, little-endian."""
    return _tensor_head(name, element, extents) + field(9, values)


def tensor_elsewhere(
    name: str, element: int, extents: Sequence[int], place: tuple[str, int, int]
) -> bytes:
    """Encode an initializer with its elements in another file; `place` is file name, offset and length."""
    keys = zip(("location", "offset", "length"), place, strict=True)
    entries = b"".join(field(13, field(1, key) + field(2, str(value))) for key, value in keys)
    return _tensor_head(name, element, extents) + entries + field(14, _EXTERNAL)


def _tensor_head(name: str, element: int, extents: Sequence[int]) -> bytes:
    return packed(1, extents) + field(2, element) + field(8, name)


def node(
    kind: str,
    inputs: Sequence[str],
    outputs: Sequence[str],
    attributes: Mapping[str, Attribute],
    domain: str = "",
) -> bytes:
    """Encode an operator (NodeProto), by default of ONNX's own domain; an omitted input is named ""."""
    parts = [field(1, name) for name in inputs] + [field(2, name) for name in outputs]
    parts += [field(4, kind)]
    parts += [field(5, _attribute(name, value)) for name, value in attributes.items()]
    if domain:
        parts += [field(7, domain)]
    return b"".join(parts)


def _attribute(name: str, value: Attribute) -> bytes:
    if isinstance(value, float):
        rest = field(2, value) + field(20, _FLOAT)
    elif isinstance(value, int):
        rest = field(3, value) + field(20, _INT)
    elif isinstance(value, str):
        rest = field(4, value) + field(20, _STRING)
    else:
        rest = b"".join(field(8, each) for each in value) + field(20, _INTS)
    return field(1, name) + rest


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
    """Encode a file (ModelProto) with one graph.

    Args:
        nodes: operators in order.
        initializers: constants.
        inputs: inputs, from `described`.
        outputs: outputs, from `described`.
        opset: version of the operators of ONNX's own domain.
        version: version of the format.
        domains: other domains whose operators, of version 1, are used.
    """
    graph = b"".join(
        [
            *(field(1, each) for each in nodes),
            field(2, "network"),
            *(field(5, each) for each in initializers),
            *(field(11, each) for each in inputs),
            *(field(12, each) for each in outputs),
        ]
    )
    opsets = [("", opset), *((domain, 1) for domain in domains)]
    operators = b"".join(field(8, field(1, name) + field(2, n)) for name, n in opsets)
    return field(1, version) + field(2, "nnburst") + field(7, graph) + operators


_GRAPH, _INPUT, _NAME, _TYPE, _TENSOR, _SHAPE = 7, 11, 1, 2, 1, 2
_NODE, _OUTPUT, _INT64 = 1, 12, 7


def with_shapes(content: bytes, shapes: Mapping[str, Sequence[int]]) -> bytes:
    """Change the dimensions of a file's inputs, so that an engine can infer those of its outputs.

    Args:
        content: bytes of a file that was read.
        shapes: dimensions by name of input.

    Raises:
        Malformed: the bytes are not an intact file.
    """

    def shape(view: memoryview, extents: Sequence[int]) -> bytes:
        dims = b"".join(field(1, field(1, extent)) for extent in extents)
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
    """Replace outputs of a file with the index of the largest element along the last axis (INT64).

    Args:
        content: bytes of a file that was read.
        outputs: new names and extents, by names of the outputs.

    Raises:
        Malformed: the bytes are not an intact file.
    """

    def changed(graph: memoryview) -> bytes:
        parts: list[bytes | memoryview] = []
        for each in fields(graph):
            known = outputs.get(_read_text(each.view)) if each.number == _OUTPUT else None
            parts.append(
                graph[each.start : each.end]
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
    """Rewrite a message by applying `change` to its fields of this number, which are messages."""
    return b"".join(
        field(number, change(each.view)) if each.number == number else view[each.start : each.end]
        for each in fields(view)
    )


def _without(view: memoryview, number: int) -> bytes:
    return b"".join(view[each.start : each.end] for each in fields(view) if each.number != number)


def _read_text(view: memoryview) -> str:
    names = [bytes(each.view) for each in fields(view) if each.number == _NAME]
    return names[-1].decode(errors="backslashreplace") if names else ""
