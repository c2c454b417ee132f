"""Many clients of one service: the queue beside them, fairness, and what is left out of a comparison."""

from __future__ import annotations

import heapq
import os
from contextlib import ExitStack
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from nnburst.bench.clients.client import LoadClient, moments_of
from nnburst.bench.clients.load import Load, Usage
from nnburst.bench.clients.scenario import ClientShare, Ran, jain_index, simulate_queue
from nnburst.client.device import Device

MS = 1_000_000
LOAD = Load("x", clients=2, rate=50.0, spins=True, cores=(0,), seconds=2.0)


def numbers(*values: int) -> Any:
    return np.asarray(values, np.int64)


def queue(arrivals: list[int], clients: list[int], services: list[int], servers: int) -> list[int]:
    found = simulate_queue(numbers(*arrivals), numbers(*clients), numbers(*services), servers)
    return [int(took) for took in found]


def test_request_waits_until_a_server_is_free() -> None:
    assert queue([0, 10, 20], [0, 1, 2], [100, 100, 100], 1) == [100, 190, 280]
    assert queue([0, 10, 20], [0, 1, 2], [100, 100, 100], 2) == [100, 100, 180]
    assert queue([0, 10, 20], [0, 1, 2], [100, 100, 100], 3) == [100, 100, 100]


def test_requests_of_one_client_are_served_one_after_the_other() -> None:
    assert queue([0, 10, 10], [0, 0, 1], [100, 100, 100], 2) == [100, 190, 100]


def test_queue_that_grows_is_walked_once(monkeypatch: pytest.MonkeyPatch) -> None:
    pushed = 0

    def push(heap: list[Any], entry: Any) -> None:
        nonlocal pushed
        pushed += 1
        heappush(heap, entry)

    heappush = heapq.heappush
    monkeypatch.setattr(heapq, "heappush", push)
    took = queue(list(range(500)), [0] * 500, [100] * 500, 2)
    assert took == [100 * (n + 1) - n for n in range(500)]
    assert pushed <= 2 * len(took)


@given(
    st.lists(st.tuples(st.integers(0, 10**6), st.integers(1, 10**5)), min_size=1, max_size=60),
    st.integers(1, 4),
)
def test_queue_of_one_server_follows_the_recursion_and_more_servers_are_not_slower(
    requests: list[tuple[int, int]], servers: int
) -> None:
    requests.sort(key=lambda request: request[0])
    arrivals, services = [r[0] for r in requests], [r[1] for r in requests]
    one = queue(arrivals, [0] * len(requests), services, 1)
    free = 0
    for arrival, service, took in zip(arrivals, services, one, strict=True):
        free = max(free, arrival) + service
        assert took == free - arrival
    more = queue(arrivals, list(range(len(requests))), services, servers)
    assert all(took >= service for took, service in zip(more, services, strict=True))
    assert sum(more) <= sum(one)


def test_fairness_is_one_for_equal_shares_and_a_share_for_one_that_has_all() -> None:
    assert jain_index(np.asarray([7.0, 7.0, 7.0, 7.0])) == pytest.approx(1)
    assert jain_index(np.asarray([0.0, 0.0, 9.0, 0.0])) == pytest.approx(1 / 4)
    assert jain_index(np.zeros(3)) == 1


def test_moments_are_a_poisson_process_that_a_seed_repeats() -> None:
    wanted = Load("x", clients=1, rate=2000.0, spins=True, cores=(0,), seconds=10.0)
    moments = moments_of(wanted, 3, 5 * MS)
    assert np.array_equal(moments, moments_of(wanted, 3, 5 * MS))
    assert not np.array_equal(moments[:100], moments_of(wanted, 4, 5 * MS)[:100])
    gaps = np.diff(moments)
    assert moments[0] >= 5 * MS
    assert len(moments) == pytest.approx(20_000, rel=0.05)
    assert gaps.std() == pytest.approx(gaps.mean(), rel=0.05)


def test_load_is_read_as_it_was_written() -> None:
    assert Load.from_text(LOAD.as_text()) == LOAD


def test_open_loop_ends_at_its_end_however_many_requests_still_wait(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    now = begin = 5 * MS

    def sleep(seconds: float) -> None:
        nonlocal now
        now += round(seconds * 1e9)

    clock = SimpleNamespace(monotonic_ns=lambda: now, sleep=sleep)
    monkeypatch.setattr("nnburst.bench.clients.client.time", clock)
    wanted = Load("x", clients=1, rate=10_000.0, spins=True, cores=(0,), seconds=1.0)
    device = cast("Device", SimpleNamespace(pid=os.getpid()))
    client = LoadClient(device, ExitStack(), lambda: sleep(0.01))  # serves 100 requests a second
    trips = client.run(wanted, 0, begin).trips
    assert len(trips) == 90
    assert begin + wanted.settling_ns <= trips[0, 0]
    assert trips[-1, 1] < begin + wanted.duration_ns <= trips[-1, 2]
    assert np.array_equal(trips[:, 0], np.sort(trips[:, 0]))


def ran(trips: list[Any], stolen: list[tuple[int, float]]) -> Ran:
    used = Usage(1.0, 50)
    looks = np.asarray(stolen, float)
    return Ran(LOAD, trips, 0, 1000 * MS, used, used, (None, None), looks)


def test_requests_beside_a_stolen_moment_are_left_out_of_the_comparison() -> None:
    trips = [numbers(10 * MS, 10 * MS, 11 * MS).reshape(1, 3)]
    trips.append(numbers(*(t * MS for t in (310, 311, 312, 490, 490, 520))).reshape(2, 3))
    looks = [(0, 7.0), (250 * MS, 7.0), (500 * MS, 7.01), (750 * MS, 7.01)]
    share = ClientShare.of(ran(trips, looks), numbers(MS))
    assert share.undisturbed.tolist() == [True, False, False]


def test_figures_count_each_request_from_when_it_came() -> None:
    trips = [
        np.stack([numbers(*range(0, 900 * MS, 10 * MS))] * 3, axis=1) + numbers(0, MS, 3 * MS),
        np.stack([numbers(*range(0, 900 * MS, 10 * MS))] * 3, axis=1) + numbers(0, MS, 3 * MS),
    ]
    figures = ClientShare.of(ran(trips, [(0, 1.0), (1000 * MS, 1.0)]), numbers(MS)).as_json()
    assert figures["median_ns"] == figures["p99_ns"] == 3 * MS
    assert figures["per_second"] == pytest.approx(180)
    assert figures["fairness"] == 1
    # Both clients come at the same moment, and one core serves them one after the other.
    assert figures["queue_p99_ns"] == 2 * MS
    assert figures["p99 / queue"] == pytest.approx(1.5)
    assert figures["client_bytes"] is None
