"""A slow leak under any noise counts as growth, and noise without a leak does not."""

from __future__ import annotations

import json
from collections.abc import Callable
from itertools import pairwise

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given
from hypothesis import strategies as st

from nnburst.testing.load.soak import FEWEST, Series, Trend, as_facts, from_facts

Array = npt.NDArray[np.float64]
#: Makes many series of an hour at once: one in each row.
Maker = Callable[[np.random.Generator, int], Array]

HOUR = 3600.0
#: Samples of an hour, as a soak takes them.
SAMPLES = 1000
SECONDS = np.arange(SAMPLES) * HOUR / SAMPLES
#: Of each kind, so that one in a thousand is two.
MANY = 2000


def trend(values: npt.ArrayLike, allowance: float = 1.0, seconds: Array | None = None) -> Trend:
    array = np.asarray(values, float)
    times = np.arange(array.size, dtype=float) if seconds is None else seconds
    found = Series(allowance, times=times.tolist(), values=array.tolist()).trend()
    assert found is not None
    return found


def grows(values: npt.ArrayLike, allowance: float = 0.0) -> bool:
    return not trend(values, allowance, SECONDS).is_flat


def leak(an_hour: float) -> Array:
    return an_hour * SECONDS / HOUR


def jitter(chance: np.random.Generator, count: int) -> Array:
    """The descriptors of calls under way: 0 to 6, another number at each look."""
    return chance.integers(0, 7, (count, SAMPLES)).astype(float)


def wobble(seconds: float) -> Maker:
    """An AR(1) process whose memory lasts so long."""

    def make(chance: np.random.Generator, count: int) -> Array:
        keeps = np.exp(-HOUR / SAMPLES / seconds)
        shocks = chance.normal(size=(SAMPLES, count))
        shocks[1:] *= np.sqrt(1 - keeps * keeps)
        for one, next_one in pairwise(shocks):
            next_one += keeps * one
        return shocks.T

    return make


def here_and_gone(seconds: float) -> Maker:
    """Something that is there for so long on average, and then away for so long."""

    def make(chance: np.random.Generator, count: int) -> Array:
        turns = chance.random((count, SAMPLES)) < HOUR / SAMPLES / seconds
        turns[:, 0] = chance.random(count) < 0.5
        return (np.cumsum(turns, axis=1) % 2).astype(float)

    return make


def pool_of_threads(chance: np.random.Generator, count: int) -> Array:
    """Threads that come in bursts, six at most, and end when they had nothing to do for 10 s."""
    threads = np.zeros((SAMPLES, count))
    rest = HOUR / SAMPLES / 10
    for before, now in pairwise(threads):
        comes = (chance.random(count) < 0.15) * chance.integers(1, 4, count)
        goes = chance.binomial(before.astype(int), 1 - np.exp(-rest))
        now[:] = np.minimum(before - goes + comes, 6)
    return threads.T


def far_off(chance: np.random.Generator, count: int) -> Array:
    """Samples of which a few are anywhere."""
    return np.abs(chance.standard_cauchy((count, SAMPLES)))


def steps_early_on(chance: np.random.Generator, count: int) -> Array:
    """An allocator that takes arenas in the first third of the time, and pages come and go."""
    at = chance.uniform(0, HOUR / 3, (count, 5, 1))
    sizes = chance.uniform(0.1, 4, (count, 5, 1))
    noise = chance.exponential(0.3, (count, SAMPLES))
    return np.asarray((sizes * (at <= SECONDS)).sum(axis=1) + noise)


def one_step(chance: np.random.Generator, count: int) -> Array:
    """Something that is made once, at any time."""
    at, size = chance.uniform(0, HOUR, (count, 1)), chance.uniform(0.2, 20, (count, 1))
    return np.asarray(size * (at <= SECONDS) + chance.normal(0, 0.01, (count, SAMPLES)))


WOBBLES: dict[str, Maker] = {
    "jitter": jitter,
    "10 s": wobble(10),
    "60 s": wobble(60),
    "here for 30 s": here_and_gone(30),
    "here for 120 s": here_and_gone(120),
    "pool of threads": pool_of_threads,
    "far off": far_off,
    "steps early on": steps_early_on,
    "one step": one_step,
}


@pytest.mark.campaign
@pytest.mark.parametrize("kind", WOBBLES)
def test_fewer_than_one_in_a_thousand_that_only_wobble_counts_as_growing(kind: str) -> None:
    many = WOBBLES[kind](np.random.default_rng(20), MANY)
    assert sum(grows(values) for values in many) < MANY / 1000


@pytest.mark.parametrize("kind", ["jitter", "pool of threads", "here for 30 s"])
def test_five_leaked_threads_an_hour_are_found_whatever_comes_and_goes(kind: str) -> None:
    many = WOBBLES[kind](np.random.default_rng(21), 100)
    found = [grows(values + np.floor(leak(5)), allowance=2.0) for values in many]
    assert sum(found) >= 90


@pytest.mark.parametrize("kind", ["jitter", "10 s", "60 s"])
def test_leak_of_twice_the_noise_an_hour_is_found_in_19_of_20(kind: str) -> None:
    many = WOBBLES[kind](np.random.default_rng(22), 200)
    assert sum(grows(values + leak(2 * float(np.ptp(values)))) for values in many) >= 190


def test_leak_of_20_mib_an_hour_is_found_beside_a_sample_that_is_25_higher() -> None:
    chance = np.random.default_rng(23)
    for at in chance.integers(0, SAMPLES, 100):
        values = 40 + leak(20) + chance.normal(0, 0.5, SAMPLES)
        values[at] += 25
        assert grows(values, allowance=1.0)


def test_leak_within_the_allowance_is_flat_however_sure_it_is() -> None:
    assert not trend(leak(1.5), 1.0, SECONDS).is_flat
    assert trend(leak(1.2), 1.0, SECONDS).is_flat


def test_what_shrinks_is_flat() -> None:
    assert not grows(10 - leak(10))


@given(
    values=st.lists(st.integers(-100, 100), min_size=2 * FEWEST, max_size=100),
    much=st.integers(-1000, 1000),
    begin=st.integers(0, 1_000_000),
    times=st.integers(1, 50),
)
def test_verdict_depends_on_neither_level_nor_clock_nor_unit(
    values: list[int], much: int, begin: int, times: int
) -> None:
    seconds = np.arange(len(values), dtype=float)
    plain = np.array(trend(values, 0.0, seconds))
    moved = trend(np.add(values, much), 0.0, begin + seconds)
    assert moved == pytest.approx(plain + np.array([much, 0, 0, 0]), abs=1e-6)
    larger = trend(np.multiply(values, times), 0.0, seconds)
    assert larger == pytest.approx(plain * times, abs=1e-6)


def test_line_has_its_beginning_and_its_rise() -> None:
    found = trend(10 + np.arange(101) * 2.0)
    assert found.first == pytest.approx(60)  # after a quarter
    assert found.growth == pytest.approx(150)
    assert found.uncertainty == pytest.approx(0, abs=1e-9)


def test_growth_within_the_warm_up_does_not_count() -> None:
    assert trend(np.minimum(np.arange(100), 20.0)).is_flat
    assert not trend(np.arange(100)).is_flat


def series_of(seconds: int, warm_up: float) -> Series:
    times = np.arange(seconds, dtype=float)
    return Series(1.0, warm_up, times.tolist(), times.tolist())


def test_few_samples_or_little_time_say_nothing() -> None:
    assert Series(1.0).trend() is None
    short = Series(1.0)
    for second in range(FEWEST):
        short.add(second, 1.0)
    assert short.trend() is None  # a quarter of them is the warm-up
    assert series_of(120, 60.0).trend() is None
    assert series_of(121, 60.0).trend() is not None


def test_longer_warm_up_counts_where_a_quarter_is_less() -> None:
    early = Series(1.0, 60.0, list(range(200)), [min(second, 60.0) for second in range(200)])
    assert (found := early.trend()) is not None
    assert (found.first, found.growth) == (pytest.approx(60), pytest.approx(0))
    early.warm_up = 0.0
    assert (found := early.trend()) is not None
    assert found.first < 60


def test_verdict_can_be_computed_again_from_what_was_written() -> None:
    values = np.random.default_rng(24).normal(40, 3, SAMPLES) + leak(5)
    series = {"it": Series(2.0, 60.0, SECONDS.tolist(), values.tolist())}
    again = from_facts(json.loads(json.dumps(as_facts(series))))
    assert again == series
    assert again["it"].trend() == series["it"].trend()
