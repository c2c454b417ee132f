"""Bounds the memory and work that reading a file may cost, in proportion to the file's size."""

from __future__ import annotations

from typing import Final

from nnburst.hal.errors import InvalidArgument

#: Bytes that reading a file may take: this many for each of its bytes, and a fixed part.
_SPENT_PER_BYTE: Final = 12
SPENT_AT_LEAST: Final = 32 * 2**20


class Budget:
    """Counts the memory and work for a file's contents before they are spent. Not thread-safe.

    Attributes:
        size: bytes of the file.
    """

    __slots__ = ("_left", "_size")

    def __init__(self, size: int) -> None:
        """Start with the whole allowance of a file of `size` bytes."""
        self._size = size
        self._left = _SPENT_PER_BYTE * size + SPENT_AT_LEAST

    @property
    def size(self) -> int:
        """Bytes of the file, with those of the files that belong to it."""
        return self._size

    def extend(self, size: int) -> None:
        """Add the allowance of another file of `size` bytes that belongs to the first."""
        self._size += size
        self._left += _SPENT_PER_BYTE * size

    def spend(self, size: int) -> None:
        """Charge `size` bytes of memory, or as much work.

        Raises:
            InvalidArgument: the file needs more than is allowed for its size.
        """
        self._left -= size
        if self._left < 0:
            raise InvalidArgument(
                f"the file of {self._size} bytes unpacks to more than {_SPENT_PER_BYTE} times its size"
            )

    def release(self, size: int) -> None:
        """Take back the charge for memory that is free again."""
        self._left += size
