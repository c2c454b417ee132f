"""Durations that are sampled in memory that does not grow."""

from __future__ import annotations

import tracemalloc

import pytest

from nnburst.testing.faults.client import Latencies


def test_percentiles_of_few_are_exact() -> None:
    latencies = Latencies()
    for microseconds in range(101):
        latencies.add(microseconds * 1000)
    assert latencies.count == 101
    assert latencies.microseconds(0, 50, 99, 100) == [0, 50, 99, 100]


def test_percentiles_of_many_are_those_of_the_whole_run() -> None:
    latencies = Latencies()
    for number in range(200_000):  # the durations rise all the time
        latencies.add(number * 1000)
    assert latencies.count == 200_000
    median, high = latencies.microseconds(50, 99)
    assert median == pytest.approx(100_000, rel=0.1)
    assert high == pytest.approx(198_000, rel=0.02)


def test_memory_does_not_grow_with_the_rounds() -> None:
    latencies = Latencies()
    tracemalloc.start()
    try:
        for number in range(100_000):
            latencies.add(10**9 + number)
        grown, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert grown < 4096


def test_no_rounds_take_no_time() -> None:
    assert Latencies().microseconds(50, 99) == [0, 0]
