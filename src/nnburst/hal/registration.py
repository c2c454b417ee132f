"""Tables that decorated functions enter themselves into."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

K = TypeVar("K")
F = TypeVar("F")


def registers(table: dict[K, F], *keys: K) -> Callable[[F], F]:
    """A decorator that enters a function into `table` by each of `keys`.

    Raises:
        ValueError: one of the keys is in it already; the decorator raises it.
    """

    def register(function: F) -> F:
        for key in keys:
            if key in table:
                raise ValueError(f"{key!r} is registered twice")
            table[key] = function
        return function

    return register
