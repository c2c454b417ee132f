"""RequestPools: how arguments of a request refer to memory."""

from __future__ import annotations

from typing import Generic, TypeVar

from nnburst.hal.model import DataLocation
from nnburst.hal.request import RequestArgument

P = TypeVar("P")


class RequestPools(Generic[P]):
    """The pools of one request in order of their first use: arguments name them by that position.

    Attributes:
        used: the pools.
    """

    def __init__(self) -> None:
        """Start with no pool."""
        self.used: list[P] = []

    def argument(
        self, pool: P, offset: int, length: int, dimensions: tuple[int, ...]
    ) -> RequestArgument:
        """An argument of `length` bytes that lies `offset` bytes into a pool."""
        index = next((i for i, used in enumerate(self.used) if used is pool), len(self.used))
        if index == len(self.used):
            self.used.append(pool)
        return RequestArgument(location=DataLocation(index, offset, length), dimensions=dimensions)
