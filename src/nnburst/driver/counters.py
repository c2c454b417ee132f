"""Counts executions in shared memory, which workers write and the supervisor reads.

The supervisor makes a page for each worker, sealed in size, in which the worker counts.

    header | row | row | ...      each as long as a `struct nnb_counters`

Rows never move and never shrink. The supervisor copies them with pread and needs no mapping.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable
from types import TracebackType
from typing import TYPE_CHECKING, Any, Final, Self, TypeAlias

from nnburst._native import ffi, lib
from nnburst.control.counts import DurationCounts, ModelCounts, ServiceCounts, model_id
from nnburst.control.service import failure
from nnburst.fmq.shared_memory import SharedMemory
from nnburst.hal import late_numpy as np
from nnburst.hal.enums import ErrorStatus
from nnburst.hal.model import Model

if TYPE_CHECKING:
    import numpy.typing as npt

    from nnburst._native import nnb_counters


#: The name of a page as the kernel shows it.
PAGE_NAME: Final = "nnburst counters"
ROW_BYTES: Final = int(ffi.sizeof("struct nnb_counters"))
#: Rows after the header: 256 KiB, of which the kernel provides only the written part.
ROWS: Final = 511
#: Models of one worker that are counted separately; all others are counted as one.
MODELS: Final = 32
#: Largest number that is read, others are cut to it: floats are exact up to here.
_MOST: Final = 1 << 53

#: Words of the header.
_ROWS_USED, _CACHE_HITS, _CACHE_MISSES = range(3)
_WORDS: Final = ROW_BYTES // 8

Words: TypeAlias = "npt.NDArray[np.float64]"


class CounterPage:
    """A worker's view of its page. Thread-safe."""

    def __init__(self, memory: SharedMemory) -> None:
        """Map `memory`; the caller still owns it."""
        self._bytes: Final = memory.map(writable=True)
        self._header: Final = self._bytes[:ROW_BYTES].view(np.uint64)
        self._lock = threading.Lock()
        self._rows = 0
        self._models: set[int] = set()

    @staticmethod
    def create() -> SharedMemory:
        """Allocate the memory of a page, all zero."""
        return SharedMemory.create((1 + ROWS) * ROW_BYTES, PAGE_NAME)

    def known(self, model: int) -> int:
        """The number under which `model` is counted: itself, or 0 after too many different ones."""
        with self._lock:
            if model not in self._models:
                if len(self._models) == MODELS:
                    return 0
                self._models.add(model)
            return model

    def add_row(self, model: int) -> nnb_counters | None:
        """Add a row for `model`; None if the page is full."""
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
        """Count a model that was prepared from cache files (`hit`), or whose cache files were refused."""
        with self._lock:
            self._header[_CACHE_HITS if hit else _CACHE_MISSES] += np.uint64(1)


class PageReading:
    """The counts of a page as bounded numbers, whatever a hostile worker wrote.

    Attributes:
        cache_hits: models prepared from cache files.
        cache_misses: cache files that were refused.
        models: the sum of the rows of each model, by its number; words as in `struct nnb_counters`.
    """

    def __init__(self) -> None:
        """Create a reading with all counts 0."""
        self.cache_hits = 0
        self.cache_misses = 0
        self.models: dict[int, Words] = {}

    @classmethod
    def of(cls, memory: SharedMemory) -> Self:
        """Read a page that another process may be writing."""
        found = cls()
        # TRUST: each number is cut to a maximum; models beyond the number of an honest worker count as one.
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
        """Add the counts of another page."""
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


class CountedExecution:
    """One execution that has begun; call `note_outcome` once. As a context, it notes the status of its error.

    Attributes:
        device_ns: duration in the executor, set when it is known.
    """

    __slots__ = ("_began_ns", "_row", "_timed", "device_ns")

    def __init__(self, row: nnb_counters, *, measure: bool) -> None:
        """Count an execution in `row`; its durations are counted if `measure`, or for a sample."""
        self._timed = lib.nnb_counters_note_begin(row) != 0 or measure
        self._row = row
        self.device_ns = 0
        self._began_ns = time.perf_counter_ns()

    def note_outcome(self, status: ErrorStatus) -> None:
        """Count the end of the execution; called before the client gets the result."""
        if self._timed:
            driver_ns = time.perf_counter_ns() - self._began_ns
            lib.nnb_counters_time(self._row, self.device_ns, driver_ns)
        lib.nnb_counters_note_end(self._row, status)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.note_outcome(ErrorStatus.NONE if error is None else failure(error).status)


class ModelCounters:
    """Rows of one model: one for executions over the socket, one for each burst. Thread-safe."""

    def __init__(self, page: CounterPage | None = None, model: int = 0) -> None:
        """Count in `page`, under the number `model`; without a page in private memory."""
        self._page: Final = page
        self._model: Final = model
        self._lock = threading.Lock()
        self._free: list[nnb_counters] = []
        #: Rows that did not fit into the page; their counts are added to it when they are returned.
        self._unseen: list[Any] = []
        self._row = self._new_row()

    @classmethod
    def of(cls, model: Model, page: CounterPage) -> Self:
        """Count the executions of `model` in `page`, under the number that client and driver use for it."""
        return cls(page, page.known(model_id(model)))

    def execution(self, *, measure: bool) -> CountedExecution:
        """Begin an execution over the socket."""
        return CountedExecution(self._row, measure=measure)

    def take_row(self) -> nnb_counters:
        """Take a row for a burst; only the burst's thread writes it until `give_row`."""
        with self._lock:
            return self._free.pop() if self._free else self._new_row()

    def give_row(self, row: nnb_counters) -> None:
        """Return the row of a burst that has ended."""
        lib.nnb_counters_settle(row)
        with self._lock:
            if row in self._unseen:
                self._unseen.remove(row)
                lib.nnb_counters_merge(self._row, row)
            else:
                self._free.append(row)

    def _new_row(self) -> nnb_counters:
        row = self._page.add_row(self._model) if self._page is not None else None
        if row is None:
            row = ffi.new("struct nnb_counters[1]")
            self._unseen.append(row)
        return row


#: Most models that are counted separately, to bound the number of series; later ones count as one.
MAX_MODELS: Final = 64

_STATUSES: Final = int(lib.NNB_COUNTED_STATUSES)
_BUCKETS: Final = int(lib.NNB_DURATION_BUCKETS)


class CounterBook:
    """Collects the counts of all workers' pages, by pid. Used by the supervisor's only thread."""

    def __init__(self) -> None:
        """Create a book with all counts 0."""
        self._pages: dict[int, SharedMemory] = {}
        self._ended = PageReading()
        self._models: set[int] = set()

    @staticmethod
    def make_page() -> SharedMemory:
        """Make the page of the worker that is forked next."""
        return CounterPage.create()

    def open(self, pid: int, page: SharedMemory) -> None:
        """Add the page of worker `pid`, and own it."""
        self._pages[pid] = page

    def keep_last(self, pid: int) -> None:
        """Add the counts of worker `pid`, which has ended, to the sums."""
        page = self._pages.pop(pid, None)
        if page is not None:
            with page:
                self._ended.include(self._shortened(PageReading.of(page)))

    def abandon_in_child(self) -> None:
        """Close all pages, in a newly forked worker."""
        for page in self._pages.values():
            page.close()
        self._pages.clear()

    def counts(self, clients: int, deaths: int, restarts: int) -> ServiceCounts:
        """All counts up to now, with the supervisor's own."""
        found = PageReading()
        found.include(self._ended)
        for page in self._pages.values():
            found.include(self._shortened(PageReading.of(page)))
        return ServiceCounts(
            tuple(_model_counts(model, words) for model, words in found.models.items()),
            clients,
            deaths,
            restarts,
            found.cache_hits,
            found.cache_misses,
        )

    def _shortened(self, reading: PageReading) -> PageReading:
        """Count models beyond the first `MAX_MODELS` under the number 0."""
        found = PageReading()
        found.cache_hits, found.cache_misses = reading.cache_hits, reading.cache_misses
        for model, words in reading.models.items():
            if model and model not in self._models and len(self._models) < MAX_MODELS:
                self._models.add(model)
            found.add(model if model in self._models else 0, words)
        return found


def _model_counts(model: int, words: Words) -> ModelCounts:
    """Convert the words of a row, which are in the order of `struct nnb_counters`."""
    next_word: Callable[[], float] = iter(words[1:]).__next__

    def durations() -> DurationCounts:
        return DurationCounts(int(next_word()), tuple(int(next_word()) for _ in range(_BUCKETS)))

    began = int(next_word())
    statuses = tuple(int(next_word()) for _ in range(_STATUSES))
    queue_full = int(next_word())
    in_flight = max(0, began - sum(statuses))
    return ModelCounts(model, statuses, in_flight, queue_full, durations(), durations())
