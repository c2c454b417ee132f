"""Bytes of an application's buffers."""

from __future__ import annotations

from typing import Any

from nnburst.hal.errors import InvalidArgument

#: Anything with a contiguous buffer: bytes, arrays, cffi buffers.
Readable = Any


def byte_view(name: str, value: Readable, *, writable: bool = False) -> memoryview:
    """The bytes of a buffer, in place.

    Args:
        name: of the argument, for messages.
        value: anything with a contiguous buffer.
        writable: whether it must be.

    Raises:
        InvalidArgument: it offers none.
    """
    try:
        view = memoryview(value)
        view = view.cast("B") if view.nbytes else memoryview(b"")
    except TypeError as error:
        raise InvalidArgument(f"{name}: {error}, expected a contiguous buffer") from None
    if writable and view.nbytes and view.readonly:
        raise InvalidArgument(f"{name}: it is read-only")
    return view
