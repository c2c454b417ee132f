"""What the keeper keeps: memory files by owner and hash, within a bound."""

from __future__ import annotations

import os
from collections import OrderedDict
from typing import Final, NamedTuple

#: Models that one owner may have kept; those that have nothing to share count, too.
MODELS_OF_ONE: Final = 64
#: Owners that have models kept.
OWNERS: Final = 16


class Packed(NamedTuple):
    """Memory files of one model.

    Attributes:
        files: sealed, read-only; none if the model has nothing to share.
        size: bytes of all.
    """

    files: tuple[int, ...] = ()
    size: int = 0

    def close(self) -> None:
        """Close the descriptors; workers that have got theirs go on."""
        for fd in self.files:
            os.close(fd)


class Store:
    """Owns what it keeps; what was not asked for longest goes first. Not thread-safe."""

    def __init__(self, limit: int) -> None:
        """Keep at most `limit` bytes for each owner."""
        self._limit = limit
        self._owners: OrderedDict[int, OrderedDict[bytes, Packed]] = OrderedDict()

    def find(self, owner: int, key: bytes) -> Packed | None:
        """What is kept for `owner`; never another's."""
        models = self._owners.get(owner)
        if models is None or key not in models:
            return None
        self._owners.move_to_end(owner)
        models.move_to_end(key)
        return models[key]

    def keep(self, owner: int, key: bytes, packed: Packed) -> None:
        """Own `packed`; one that is too large for the store is not kept."""
        if packed.size > self._limit:
            packed.close()
            packed = Packed()
        models = self._owners.setdefault(owner, OrderedDict())
        self._owners.move_to_end(owner)
        if (known := models.pop(key, None)) is not None:
            known.close()
        models[key] = packed
        while len(models) > MODELS_OF_ONE or sum(p.size for p in models.values()) > self._limit:
            models.popitem(last=False)[1].close()
        while len(self._owners) > OWNERS:
            _, others = self._owners.popitem(last=False)
            for other in others.values():
                other.close()
