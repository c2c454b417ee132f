"""Closing: what every object with a `close()` shares, so that each works in `with`."""

from __future__ import annotations

from types import TracebackType
from typing import Self

from nnburst.hal.process.of_one_process import OfOneProcess


class Closing(OfOneProcess):
    """Closes itself at the end of a `with` block. Subclasses define `close`, and twice is fine."""

    __slots__ = ()

    def close(self) -> None:
        """Give everything back."""
        raise NotImplementedError

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()
