"""OfOneProcess: what holds sockets, mappings or threads, and so cannot go to another process by pickle."""

from __future__ import annotations

from typing import ClassVar, NoReturn, SupportsIndex


class OfOneProcess:
    """Refuses to be pickled or copied, and names what to do instead."""

    __slots__ = ()

    #: What to do instead, for the end of the message.
    _instead: ClassVar[str] = "make one in the other process"

    def __reduce_ex__(self, protocol: SupportsIndex) -> NoReturn:
        raise TypeError(
            f"{type(self).__name__} belongs to its process and can be neither pickled nor copied;"
            f" {self._instead}"
        )
