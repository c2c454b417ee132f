"""The executions of one model, counted in one worker: exact, and a few of them timed."""

from __future__ import annotations

import threading
import time
from types import TracebackType
from typing import TYPE_CHECKING, Any, Final, Self

from nnburst._native import ffi, lib
from nnburst.control.service import failure
from nnburst.driver.counting.counter_page import CounterPage
from nnburst.hal.enums import ErrorStatus

if TYPE_CHECKING:
    from nnburst._native import nnb_counters


class CountedExecution:
    """One execution that has begun; `note_outcome` is due once. Also a context, whose error is the status.

    Attributes:
        device_ns: how long the executor took, once that is known.
    """

    __slots__ = ("_began_ns", "_row", "_timed", "device_ns")

    def __init__(self, row: nnb_counters, *, measure: bool) -> None:
        """Count it in `row`; its durations count if it is to `measure`, or is one that is sampled."""
        self._timed = lib.nnb_counters_note_begin(row) != 0 or measure
        self._row = row
        self.device_ns = 0
        self._began_ns = time.perf_counter_ns()

    def note_outcome(self, status: ErrorStatus) -> None:
        """It has ended, before its client learns of it."""
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
        """Count in `page`, under the number `model`; without a page only for itself."""
        self._page: Final = page
        self._model: Final = model
        self._lock = threading.Lock()
        self._free: list[nnb_counters] = []
        #: Rows that the page had no room for; what they have counted is added when they are given back.
        self._unseen: list[Any] = []
        self._row = self._new_row()

    def execution(self, *, measure: bool) -> CountedExecution:
        """Begin an execution over the socket."""
        return CountedExecution(self._row, measure=measure)

    def take_row(self) -> nnb_counters:
        """A row for a burst, whose thread alone writes it until `give_row`."""
        with self._lock:
            return self._free.pop() if self._free else self._new_row()

    def give_row(self, row: nnb_counters) -> None:
        """The burst has ended."""
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
