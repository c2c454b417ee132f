"""The objects that programs hold handles of."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from nnburst.capi.interface.arguments import HandleKind
from nnburst.hal.errors import InvalidArgument, ResourceExhausted


class Living:
    """Objects by handle. Thread-safe as a dict is: each call is one operation on it."""

    def __init__(self) -> None:
        """Hold nothing, and make no handles before `new_handle` is set."""
        self.new_handle: Callable[[int], int] | None = None
        self._objects: dict[int, Any] = {}
        self._handles: dict[int, int] = {}

    def handle(self, value: object) -> int:
        """The handle of a living object.

        Raises:
            InvalidArgument: another thread has freed it.
        """
        handle = self.find(value)
        if handle is None:
            raise InvalidArgument(f"{type(value).__name__}: it was freed meanwhile")
        return handle

    def find(self, value: object) -> int | None:
        """The handle of an object; None if it has none."""
        return self._handles.get(id(value))

    def get(self, handle: int) -> Any:  # noqa: ANN401 - the library has checked the kind
        """The object of a handle; None if it has ended."""
        return self._objects.get(handle)

    def __getitem__(self, handle: int) -> Any:  # noqa: ANN401 - the library has checked the kind
        """The object of a handle.

        Raises:
            InvalidArgument: another thread has freed it.
        """
        try:
            return self._objects[handle]
        except KeyError:
            raise InvalidArgument(f"handle {handle:#x}: it was freed meanwhile") from None

    def __setitem__(self, handle: int, value: object) -> None:
        """Let a handle stand for an object."""
        self._objects[handle] = value
        self._handles[id(value)] = handle

    def __delitem__(self, handle: int) -> None:
        """Forget the object of a handle."""
        self._handles.pop(id(self._objects.pop(handle)), None)

    def close(self) -> None:
        """Forget all objects."""
        self._objects.clear()
        self._handles.clear()

    def add(self, kind: HandleKind, value: object) -> int:
        """A new handle for an object.

        Raises:
            ResourceExhausted: the library has no more.
        """
        assert self.new_handle is not None
        handle = int(self.new_handle(int(kind)))
        if not handle:
            raise ResourceExhausted(f"no handle for another {kind.name}")
        self[handle] = value
        return handle


LIVING = Living()
