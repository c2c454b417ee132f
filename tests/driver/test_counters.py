"""Executions are counted exactly, in memory whose reader believes nothing but numbers."""

from __future__ import annotations

import os
from typing import Any

import numpy as np
import pytest

from nnburst._native import ffi, lib
from nnburst.control import counts
from nnburst.driver.counters import (
    MAX_MODELS,
    MODELS,
    ROW_BYTES,
    ROWS,
    CounterBook,
    CounterPage,
    ModelCounters,
    PageReading,
)
from nnburst.fmq.shared_memory import SharedMemory
from nnburst.hal.enums import ErrorStatus
from nnburst.hal.errors import InvalidArgument


@pytest.fixture
def memory() -> Any:
    with CounterPage.create() as memory:
        yield memory


def the_only(book: CounterBook) -> counts.ModelCounts:
    (found,) = book.counts(0, 0, 0).models
    return found


def book_of(*pages: SharedMemory) -> CounterBook:
    book = CounterBook()
    for pid, page in enumerate(pages):
        book.open(pid, page)
    return book


def test_buckets_are_those_of_the_c_side() -> None:
    assert int(lib.NNB_DURATION_BUCKETS) == counts.BUCKETS
    assert int(lib.NNB_FIRST_BUCKET_BITS) == counts.FIRST_BUCKET_BITS
    assert int(lib.NNB_COUNTED_STATUSES) == ErrorStatus.RESOURCE_EXHAUSTED_PERSISTENT + 1


def test_executions_are_counted_by_status(memory: SharedMemory) -> None:
    counters = ModelCounters(CounterPage(memory), 7)
    for _ in range(3):
        with counters.execution(measure=False):
            pass
    with pytest.raises(InvalidArgument), counters.execution(measure=False):
        raise InvalidArgument("no")
    under_way = counters.execution(measure=False)
    found = the_only(book_of(memory))
    assert found.model == 7
    assert found.statuses[ErrorStatus.NONE] == 3
    assert found.statuses[ErrorStatus.INVALID_ARGUMENT] == 1
    assert found.in_flight == 1
    under_way.note_outcome(ErrorStatus.NONE)
    assert the_only(book_of(memory)).in_flight == 0


def test_one_execution_in_64_is_timed_and_each_that_measures(memory: SharedMemory) -> None:
    counters = ModelCounters(CounterPage(memory), 7)
    for turn in range(130):
        with counters.execution(measure=turn in (5, 64)) as counted:
            counted.device_ns = 1
    found = the_only(book_of(memory))
    assert sum(found.driver.counts) == 4  # 0, 5, 64, 128
    assert found.device.counts[0] == 4
    assert found.device.total_ns == 4


@pytest.mark.parametrize(
    ("nanoseconds", "bucket"),
    [(0, 0), (1024, 0), (1025, 1), (2048, 1), (2049, 2), (2**32, 22), (2**32 + 1, 23), (2**63, 23)],
)
def test_duration_falls_into_its_bucket(
    memory: SharedMemory, nanoseconds: int, bucket: int
) -> None:
    page = CounterPage(memory)
    row = page.add_row(7)
    assert row is not None
    lib.nnb_counters_time(row, nanoseconds, nanoseconds)
    found = the_only(book_of(memory)).driver
    assert found.counts.index(1) == bucket
    ends = (*(end * 1e9 for end in counts.BUCKET_ENDS), float("inf"))
    assert nanoseconds <= ends[bucket]


def test_rows_of_bursts_are_used_again(memory: SharedMemory) -> None:
    counters = ModelCounters(CounterPage(memory), 7)
    for _ in range(10):
        row = counters.take_row()
        lib.nnb_counters_note_begin(row)
        lib.nnb_counters_note_end(row, 0)
        counters.give_row(row)
    assert the_only(book_of(memory)).statuses[0] == 10
    assert int.from_bytes(os.pread(memory.fd, 8, 0), "little") == 2


def test_what_a_burst_leaves_undone_has_failed(memory: SharedMemory) -> None:
    counters = ModelCounters(CounterPage(memory), 7)
    row = counters.take_row()
    lib.nnb_counters_note_begin(row)
    counters.give_row(row)
    found = the_only(book_of(memory))
    assert found.statuses[ErrorStatus.GENERAL_FAILURE] == 1
    assert found.in_flight == 0


def test_full_page_loses_no_count_of_bursts_that_have_ended(memory: SharedMemory) -> None:
    counters = ModelCounters(CounterPage(memory), 7)
    rows = [counters.take_row() for _ in range(ROWS + 5)]
    for row in rows:
        lib.nnb_counters_note_begin(row)
        lib.nnb_counters_note_end(row, 0)
    for row in rows:
        counters.give_row(row)
    assert the_only(book_of(memory)).statuses[0] == ROWS + 5


def test_models_beyond_the_limit_count_as_one(memory: SharedMemory) -> None:
    page = CounterPage(memory)
    for number in range(1, MODELS + 10):
        with ModelCounters(page, page.known(number)).execution(measure=False):
            pass
    found = {each.model: each for each in book_of(memory).counts(0, 0, 0).models}
    assert len(found) == MODELS + 1
    assert found[0].statuses[0] == 9


def test_series_of_a_service_are_bounded() -> None:
    pages = [CounterPage.create() for _ in range(4)]
    for number, memory in enumerate(pages):
        page = CounterPage(memory)
        for model in range(MODELS):
            with ModelCounters(page, page.known(1 + number * 1000 + model)).execution(
                measure=False
            ):
                pass
    found = book_of(*pages).counts(0, 0, 0).models
    assert len(found) == MAX_MODELS + 1
    assert sum(each.statuses[0] for each in found) == 4 * MODELS


def test_counts_outlive_their_worker(memory: SharedMemory) -> None:
    with ModelCounters(CounterPage(memory), 7).execution(measure=False):
        pass
    book = book_of(memory.duplicate())
    book.keep_last(0)
    assert the_only(book).statuses[0] == 1
    book.keep_last(0)
    assert the_only(book).statuses[0] == 1


@pytest.mark.parametrize("seed", range(20))
def test_page_of_any_bytes_is_read_as_numbers(memory: SharedMemory, seed: int) -> None:
    random = np.random.default_rng(seed)
    view = memory.map(writable=True)
    view[...] = random.integers(0, 256, view.size, np.uint8)
    found = book_of(memory).counts(0, 0, 0)
    assert len(found.models) <= MAX_MODELS + 1
    for each in found.models:
        assert each.in_flight >= 0
        assert all(0 <= count <= ROWS << 53 for count in each.statuses)
    assert 0 <= found.cache_hits <= 1 << 53


def test_page_cannot_be_made_smaller_under_its_reader(memory: SharedMemory) -> None:
    with pytest.raises(PermissionError):
        os.ftruncate(memory.fd, ROW_BYTES)
    assert PageReading.of(memory).models == {}


def test_private_row_is_one_of_its_own() -> None:
    assert ffi.sizeof("struct nnb_counters") == ROW_BYTES == 512
    counters = ModelCounters()
    with counters.execution(measure=False):
        pass
    counters.give_row(counters.take_row())
