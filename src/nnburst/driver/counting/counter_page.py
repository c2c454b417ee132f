"""The page that a worker counts in: made and read by its supervisor, written by the worker, sealed in size.

    header | row | row | ...      each as long as a `struct nnb_counters`

Rows never move and never shrink. The supervisor copies them with pread and needs no mapping.
"""

from __future__ import annotations

import os
import threading
from typing import TYPE_CHECKING, Any, Final, Self, TypeAlias

from nnburst._native import ffi
from nnburst.fmq.shared_memory import SharedMemory
from nnburst.hal.imports import late_numpy as np

if TYPE_CHECKING:
    import numpy.typing as npt

    from nnburst._native import nnb_counters

#: What the kernel shows as the name of a page.
PAGE_NAME: Final = "nnburst counters"
ROW_BYTES: Final = int(ffi.sizeof("struct nnb_counters"))
#: Rows beside the header: 256 KiB, of which the kernel provides what is written.
ROWS: Final = 511
#: Models of one worker that are told apart; all others are one.
MODELS: Final = 32
#: What is read is cut off here: no more than floats count exactly.
_MOST: Final = 1 << 53

#: Words of the header.
_ROWS_USED, _CACHE_HITS, _CACHE_MISSES = range(3)
_WORDS: Final = ROW_BYTES // 8

Words: TypeAlias = "npt.NDArray[np.float64]"


class CounterPage:
    """A worker's side. Thread-safe."""

    def __init__(self, memory: SharedMemory) -> None:
        """Map `memory`, which stays its owner's."""
        self._bytes: Final = memory.map(writable=True)
        self._header: Final = self._bytes[:ROW_BYTES].view(np.uint64)
        self._lock = threading.Lock()
        self._rows = 0
        self._models: set[int] = set()

    @staticmethod
    def create() -> SharedMemory:
        """Memory for a page, all zero."""
        return SharedMemory.create((1 + ROWS) * ROW_BYTES, PAGE_NAME)

    def known(self, model: int) -> int:
        """`model` itself, or 0 if there are too many to tell it apart."""
        with self._lock:
            if model not in self._models:
                if len(self._models) == MODELS:
                    return 0
                self._models.add(model)
            return model

    def add_row(self, model: int) -> nnb_counters | None:
        """A new row; None if the page is full."""
        with self._lock:
            if self._rows == ROWS:
                return None
            self._rows += 1
            start = self._rows * ROW_BYTES
            place = self._bytes[start : start + ROW_BYTES]
            place.view(np.uint64)[0] = model
            self._header[_ROWS_USED] = self._rows
        # The row keeps the mapping, so it may outlive this object.
        row: nnb_counters = ffi.from_buffer("struct nnb_counters[]", place, require_writable=True)
        return row

    def note_cache(self, *, hit: bool) -> None:
        """A model was prepared from cache files, or they were refused."""
        with self._lock:
            self._header[_CACHE_HITS if hit else _CACHE_MISSES] += np.uint64(1)


class PageReading:
    """What was found in a page; believed no further than that it is a number.

    Attributes:
        cache_hits: models prepared from cache files.
        cache_misses: cache files that were refused.
        models: the sum of the rows of each model, by its number; words as in `struct nnb_counters`.
    """

    def __init__(self) -> None:
        """Nothing yet."""
        self.cache_hits = 0
        self.cache_misses = 0
        self.models: dict[int, Words] = {}

    @classmethod
    def of(cls, memory: SharedMemory) -> Self:
        """Read a page that another process may be writing."""
        found = cls()
        # TRUST: whatever it has, it is cut off; models beyond what an honest worker has count as one.
        header = _read(memory, 0, 1)[0]
        hits_and_misses = _clamped(header[[_CACHE_HITS, _CACHE_MISSES]])
        found.cache_hits, found.cache_misses = map(int, hits_and_misses)
        rows = _read(memory, 1, min(int(header[_ROWS_USED]), ROWS))
        for row in rows:
            model = int(row[0])
            model = model if model in found.models or len(found.models) < MODELS else 0
            found.add(model, _clamped(row))
        return found

    def add(self, model: int, words: Words) -> None:
        """Add to a model's words."""
        before = self.models.get(model)
        self.models[model] = words if before is None else before + words

    def include(self, other: PageReading) -> None:
        """Add what another page has."""
        self.cache_hits += other.cache_hits
        self.cache_misses += other.cache_misses
        for model, words in other.models.items():
            self.add(model, words)


def _read(memory: SharedMemory, first: int, count: int) -> npt.NDArray[np.uint64]:
    data = os.pread(memory.fd, count * ROW_BYTES, first * ROW_BYTES)
    return np.frombuffer(data, np.uint64).reshape(-1, _WORDS)


def _clamped(words: npt.NDArray[Any]) -> Words:
    clamped: Words = np.minimum(words, np.uint64(_MOST)).astype(np.float64)
    return clamped
