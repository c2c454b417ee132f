"""All that the workers of a service have counted, those that have ended included. The supervisor's."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from nnburst._native import lib
from nnburst.control.counts import DurationCounts, ModelCounts, ServiceCounts
from nnburst.driver.counting.counter_page import CounterPage, PageReading, Words
from nnburst.fmq.shared_memory import SharedMemory

#: Models that are told apart, so that the number of series is bounded; later ones count as one.
MAX_MODELS: Final = 64

_STATUSES: Final = int(lib.NNB_COUNTED_STATUSES)
_BUCKETS: Final = int(lib.NNB_DURATION_BUCKETS)


class CounterBook:
    """Pages of workers by pid. Used by the supervisor's only thread."""

    def __init__(self) -> None:
        """Begin at zero."""
        self._pages: dict[int, SharedMemory] = {}
        self._ended = PageReading()
        self._models: set[int] = set()

    @staticmethod
    def make_page() -> SharedMemory:
        """For the worker that is forked next."""
        return CounterPage.create()

    def open(self, pid: int, page: SharedMemory) -> None:
        """Worker `pid` counts in `page`, which is owned from here on."""
        self._pages[pid] = page

    def keep_last(self, pid: int) -> None:
        """Worker `pid` has ended; keep what it has counted."""
        page = self._pages.pop(pid, None)
        if page is not None:
            with page:
                self._ended.include(self._shortened(PageReading.of(page)))

    def abandon_in_child(self) -> None:
        """Close the pages of other workers: what a forked one does."""
        for page in self._pages.values():
            page.close()
        self._pages.clear()

    def counts(self, clients: int, deaths: int, restarts: int) -> ServiceCounts:
        """Everything up to now, and what the supervisor itself has counted."""
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
        """With 0 for each model that came when as many as are told apart were known."""
        found = PageReading()
        found.cache_hits, found.cache_misses = reading.cache_hits, reading.cache_misses
        for model, words in reading.models.items():
            if model and model not in self._models and len(self._models) < MAX_MODELS:
                self._models.add(model)
            found.add(model if model in self._models else 0, words)
        return found


def _model_counts(model: int, words: Words) -> ModelCounts:
    """The words of a row, in the order of `struct nnb_counters`."""
    next_word: Callable[[], float] = iter(words[1:]).__next__

    def durations() -> DurationCounts:
        return DurationCounts(int(next_word()), tuple(int(next_word()) for _ in range(_BUCKETS)))

    began = int(next_word())
    statuses = tuple(int(next_word()) for _ in range(_STATUSES))
    queue_full = int(next_word())
    in_flight = max(0, began - sum(statuses))
    return ModelCounts(model, statuses, in_flight, queue_full, durations(), durations())
