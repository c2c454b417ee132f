"""A waiter predicts the next event of simulated callers, tested without a clock and without sleeping."""

from __future__ import annotations

import json
import random
from dataclasses import astuple, dataclass
from itertools import accumulate
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from nnburst._native import ffi, lib

LINGER_NS = 10_000  # the waiter looks so long after an event before it sleeps
MS = 1_000_000


@dataclass
class Tally:
    """The outcome of some events."""

    events: int = 0
    planned: int = 0
    caught: int = 0
    spun_ns: int = 0

    @property
    def catch_rate(self) -> float:
        return self.caught / self.events


class Waiter:
    """Meets events as csrc/waiter.c does: linger, sleep until wake_at, spin until `until`, sleep."""

    def __init__(self, wake_latency_ns: int = 50_000) -> None:
        self.rhythm: Any = ffi.new("struct nnb_rhythm *")
        self.now = MS
        self.latency = wake_latency_ns
        self._wake_at, self._until = ffi.new("uint64_t *"), ffi.new("uint64_t *")

    def meet(self, event: int, tally: Tally) -> None:
        """Wait from now until the event at time `event` and note how it was met."""
        tally.events += 1
        if not lib.nnb_rhythm_plan(self.rhythm, self.now, self._wake_at, self._until):
            self._asleep(event, lib.NNB_CAUGHT_UNPLANNED)
            return
        tally.planned += 1
        wake_at, until = self._wake_at[0], self._until[0]
        tally.spun_ns += min(LINGER_NS, max(wake_at - self.now, 0))
        if event < min(wake_at, self.now + LINGER_NS):
            tally.caught += 1
            self.now = event
            lib.nnb_rhythm_event(self.rhythm, self.now, lib.NNB_CAUGHT_SPINNING)
            return
        if event < wake_at:
            self._asleep(event, lib.NNB_CAUGHT_ASLEEP_EARLY)
            return
        woke = wake_at + self.latency if self.now < wake_at else self.now
        lib.nnb_rhythm_overslept(self.rhythm, woke - wake_at)
        if event <= max(until, woke):
            tally.caught += 1
            tally.spun_ns += max(event - woke, 0)
            self.now = max(event, woke)
            lib.nnb_rhythm_event(self.rhythm, self.now, lib.NNB_CAUGHT_SPINNING)
            return
        tally.spun_ns += max(until - woke, 0)
        self._asleep(event, lib.NNB_CAUGHT_ASLEEP_LATE)

    def _asleep(self, event: int, how: int) -> None:
        self.now = event + self.latency
        lib.nnb_rhythm_event(self.rhythm, self.now, how)


def beats(period: int, count: int, jitter: float, seed: int, drop: float = 0.0) -> list[int]:
    """Times of a periodic caller with Gaussian jitter (a share of the period), some calls left out."""
    chance = random.Random(seed)
    return sorted(
        10 * MS + int(beat * period + chance.gauss(0, jitter) * period)
        for beat in range(1, count + 1)
        if chance.random() >= drop
    )


def run(waiter: Waiter, times: list[int]) -> Tally:
    tally = Tally()
    for time in times:
        waiter.meet(max(time, waiter.now), tally)
    return tally


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("jitter", [0.0, 0.005, 0.02])
@pytest.mark.parametrize("period", [MS, 10 * MS, 100 * MS])
def test_steady_caller_is_caught_and_the_core_is_spared(
    period: int, jitter: float, seed: int
) -> None:
    waiter = Waiter()
    times = beats(period, 1200, jitter, seed)
    run(waiter, times[:200])
    tally = run(waiter, times[200:])
    assert tally.catch_rate >= 0.85
    assert tally.spun_ns <= 0.25 * (times[-1] - times[200])


@pytest.mark.parametrize("period", [MS, 10 * MS])
def test_caller_that_leaves_beats_out_is_still_caught(period: int) -> None:
    waiter = Waiter()
    times = beats(period, 2000, 0.005, 1, drop=0.05)
    run(waiter, times[:300])
    tally = run(waiter, times[300:])
    assert tally.catch_rate >= 0.85


@pytest.mark.parametrize(
    ("before", "after"), [(MS, 3 * MS), (10 * MS, 20 * MS), (10 * MS, 7 * MS), (5 * MS, MS)]
)
def test_new_period_is_learned_soon(before: int, after: int) -> None:
    waiter = Waiter()
    run(waiter, beats(before, 300, 0.01, 1))
    start = waiter.now
    times = [start + (i + 1) * after for i in range(400)]
    run(waiter, times[:40])
    assert waiter.rhythm.period_ns == pytest.approx(after, rel=0.05)
    assert run(waiter, times[40:]).catch_rate >= 0.85


@pytest.mark.parametrize("period_ms", [2, 5, 20])
def test_of_gaps_that_vary_by_a_tenth_more_than_half_are_met_awake_within_the_budget(
    period_ms: int,
) -> None:
    chance, now, times = random.Random(28), 10 * MS, []
    for _ in range(2500):
        now += int(period_ms * MS * chance.uniform(0.9, 1.1))
        times.append(now)
    waiter = Waiter()
    run(waiter, times[:700])
    tally = run(waiter, times[700:])
    assert tally.catch_rate >= 0.53
    assert tally.spun_ns <= 0.07 * (times[-1] - times[700])


def test_no_plan_before_a_rhythm_is_known() -> None:
    waiter, tally = Waiter(), Tally()
    for number in range(3):
        waiter.meet(10 * MS + number * MS, tally)
    assert tally.planned == 0


@pytest.mark.parametrize("rate", [20, 50, 200, 1000])
@pytest.mark.parametrize("gap", ["exponential", "uniform"])
def test_caller_without_a_rhythm_is_hardly_ever_spun_for(gap: str, rate: int) -> None:
    chance, mean = random.Random(rate), 1000 * MS / rate
    gaps = [
        chance.expovariate(1 / mean) if gap == "exponential" else chance.uniform(0.2, 1.8) * mean
        for _ in range(2000)
    ]
    times = [10 * MS + int(time) for time in accumulate(gaps)]
    tally = run(Waiter(), times)
    assert tally.spun_ns <= 0.002 * (times[-1] - times[0])
    assert tally.planned <= 0.03 * tally.events


@pytest.mark.parametrize("rate", [50, 1000])
def test_rhythm_that_begins_after_irregular_calls_is_found_soon(rate: int) -> None:
    chance, period = random.Random(rate), 1000 * MS // rate
    waiter, time = Waiter(), 10 * MS
    for _ in range(500):
        time += int(chance.expovariate(1 / period))
        waiter.meet(max(time, waiter.now), Tally())
    start = waiter.now
    times = [start + (beat + 1) * period for beat in range(300)]
    run(waiter, times[:25])
    assert run(waiter, times[25:]).catch_rate >= 0.85


@pytest.mark.parametrize("duration", [260_000, MS, 4 * MS, 50 * MS])
def test_answers_that_take_equally_long_are_caught_however_irregular_the_questions(
    duration: int,
) -> None:
    chance, waiter, tally = random.Random(9), Waiter(wake_latency_ns=80_000), Tally()
    for number in range(600):
        waiter.now += int(chance.expovariate(1 / (5 * MS)))
        lib.nnb_rhythm_question(waiter.rhythm, waiter.now)
        answer = waiter.now + int(duration * (1 + chance.gauss(0, 0.01)))
        waiter.meet(answer, tally if number >= 100 else Tally())
    assert waiter.rhythm.period_ns == pytest.approx(duration, rel=0.05)
    assert tally.catch_rate >= 0.85


def test_burst_of_calls_within_a_beat_does_not_lose_the_rhythm() -> None:
    waiter = Waiter()
    run(waiter, beats(10 * MS, 100, 0.0, 0))
    period = waiter.rhythm.period_ns
    for beat in range(1, 50):
        start = 10 * MS + (100 + beat) * 10 * MS
        run(waiter, [start, start + 1000, start + 2000])
    assert waiter.rhythm.period_ns == pytest.approx(period, rel=0.02)


@st.composite
def histories(draw: st.DrawFn) -> list[tuple[int, int, int]]:
    """Gaps, many of nearly one period; how the waiter met each event; how late a sleep ended before it."""
    period = draw(st.integers(100_000, 2**33))
    near = st.integers(-period // 16, period // 16).map(lambda off: period + off)
    gap = st.one_of(near, near, st.integers(0, 2**40))
    late = st.one_of(st.integers(0, 500_000), st.integers(0, 2**33))
    return draw(st.lists(st.tuples(gap, st.sampled_from(range(4)), late), max_size=60))


@example(
    [(0, 0, 592), (100065, 1, 0), (114276, 1, 114272), (85659, 0, 0), (111667, 1, 0), (88333, 0, 0)]
)
@given(histories())
def test_any_history_gives_a_plan_that_spins_within_a_quarter_of_the_period(
    history: list[tuple[int, int, int]],
) -> None:
    rhythm = ffi.new("struct nnb_rhythm *")
    wake_at, until = ffi.new("uint64_t *"), ffi.new("uint64_t *")
    now = 1
    for gap, how, late in history:
        now += gap
        lib.nnb_rhythm_overslept(rhythm, late)
        lib.nnb_rhythm_event(rhythm, now, how)
        if lib.nnb_rhythm_plan(rhythm, now, wake_at, until):
            spun, latency = rhythm.lead_ns + rhythm.tail_ns, rhythm.wake_latency_ns or 50_000
            assert until[0] > now
            assert spun * 4 <= rhythm.period_ns + 8
            # The sleep before it ends earlier by what a wake-up takes.
            assert until[0] - wake_at[0] == spun + min(latency, rhythm.period_ns // 2)


def test_a_caller_that_became_faster_than_any_plan_is_not_slept_through_for_long() -> None:
    waiter = Waiter(20_000)
    run(waiter, beats(MS, 200, 0.0, seed=1))
    start, tally = waiter.now, Tally()
    for number in range(500):
        waiter.meet(max(start + (number + 1) * 40_000, waiter.now + 20_000), tally)
    assert tally.planned < 50
    # Its old rhythm is still known, and soon followed again.
    later = [waiter.now + (number + 1) * MS for number in range(200)]
    run(waiter, later[:40])
    assert run(waiter, later[40:]).catch_rate >= 0.85


def test_a_new_rhythm_begins_with_a_lead_of_a_few_wake_up_latencies() -> None:
    waiter = Waiter()
    run(waiter, beats(10 * MS, 8, 0.0, seed=1))
    assert 0 < waiter.rhythm.lead_ns < MS


def test_one_sleep_that_ended_seconds_late_does_not_spoil_the_rhythm() -> None:
    waiter = Waiter()
    times = beats(MS, 200, 0.01, seed=2)
    run(waiter, times[:50])
    lib.nnb_rhythm_overslept(waiter.rhythm, 2_000 * MS)
    assert run(waiter, times[50:]).catch_rate > 0.85


def steal(times: list[int], share: float, seed: int) -> list[int]:
    """Delay calls as a host does that takes the caller's core for slices of some 3 ms.

    A call waits for the slice's end, and calls that became due in the meantime follow at once.
    """
    chance = random.Random(seed)
    now, end, last, found = float(times[0]), 0.0, 0, []
    for time in times:
        while end < time:
            now = end or now
            begin = now + chance.expovariate(share / (3 * MS * (1 - share)))
            end = begin + chance.expovariate(1 / (3 * MS))
            if end < time:
                now = end
        last = max(int(end) if begin <= time else time, last + 8000)
        found.append(last)
    return found


#: Calls a second, jitter, share that is stolen; least share of calls that are met awake, most of a core spun.
#: A call that is due in a stolen slice comes late, so at 100 Hz hardly any plan meets that fifth.
TRACES = {
    "quiet 5 kHz": (5000, 0.002, 0.0, 0.98, 0.06),
    "quiet 1 kHz": (1000, 0.002, 0.0, 0.97, 0.02),
    "quiet 100 Hz": (100, 0.002, 0.0, 0.95, 0.02),
    "quiet 30 Hz": (30, 0.002, 0.0, 0.95, 0.02),
    "jitter 2 %, 1 kHz": (1000, 0.02, 0.0, 0.95, 0.05),
    "jitter 2 %, 100 Hz": (100, 0.02, 0.0, 0.90, 0.04),
    "jitter 10 %, 1 kHz": (1000, 0.1, 0.0, 0.50, 0.12),
    "jitter 10 %, 100 Hz": (100, 0.1, 0.0, 0.15, 0.04),
    "steal 5 %, 2 kHz": (2000, 0.005, 0.05, 0.95, 0.06),
    "steal 5 %, 1 kHz": (1000, 0.005, 0.05, 0.95, 0.04),
    "steal 5 %, 100 Hz": (100, 0.005, 0.05, 0.93, 0.04),
    "steal 20 %, 5 kHz": (5000, 0.005, 0.2, 0.95, 0.08),
    "steal 20 %, 2 kHz": (2000, 0.005, 0.2, 0.93, 0.06),
    "steal 20 %, 1 kHz": (1000, 0.005, 0.2, 0.90, 0.06),
    "steal 20 %, 100 Hz": (100, 0.005, 0.2, 0.85, 0.04),
    "steal 20 %, 30 Hz": (30, 0.005, 0.2, 0.90, 0.04),
}


@pytest.mark.parametrize("latency_us", [20, 50, 80])
@pytest.mark.parametrize("name", TRACES)
def test_policy_meets_calls_awake_and_spares_the_core(name: str, latency_us: int) -> None:
    rate, jitter, stolen, awake, spun = TRACES[name]
    tally, wall = Tally(), 0
    for seed in range(4):
        waiter = Waiter(1000 * latency_us)
        times = beats(1000 * MS // rate, 2000, jitter, seed)
        times = steal(times, stolen, seed) if stolen else times
        run(waiter, times[:200])
        found = run(waiter, times[200:])
        tally = Tally(*(sum(pair) for pair in zip(astuple(tally), astuple(found), strict=True)))
        wall += times[-1] - times[200]
    assert tally.catch_rate >= awake
    assert tally.spun_ns <= spun * wall


#: Times between calls that tools/record_rhythm.py has recorded on a virtual machine of two cores; busy ones
#: while a dozen other processes wanted to run, so that up to half of the calls came off their beat. Quiet
#: ones are the first two of ten at each rate.
RECORDED = json.loads(Path(__file__).with_name("gaps.json").read_text())


@pytest.mark.parametrize("latency_us", [20, 50, 80])
@pytest.mark.parametrize("name", RECORDED)
def test_policy_meets_recorded_calls_awake_and_spares_the_core(name: str, latency_us: int) -> None:
    rate, gaps = RECORDED[name]["rate"], RECORDED[name]["gaps_us"]
    times = [10 * MS + 1000 * gap for gap in accumulate(gaps, initial=0)]
    waiter, settled = Waiter(1000 * latency_us), len(times) // 10
    run(waiter, times[:settled])
    tally = run(waiter, times[settled:])
    assert tally.catch_rate >= (0.95 if name.startswith("quiet") else 0.5)
    assert tally.spun_ns <= (0.12 if rate >= 1000 else 0.04) * (times[-1] - times[settled])


def test_after_one_late_call_the_next_is_met_on_its_beat() -> None:
    waiter = Waiter()
    times = beats(10 * MS, 400, 0.002, 4)
    run(waiter, times[:100])
    tally = Tally()
    for number in range(100, 400):
        late = 4 * MS if number % 10 == 0 else 0
        waiter.meet(times[number] + late, tally if number % 10 == 1 else Tally())
    assert tally.catch_rate >= 0.9


def test_caller_that_pauses_after_each_call_is_met_a_period_after_a_late_one() -> None:
    waiter, chance = Waiter(), random.Random(8)
    time, tally = 10 * MS, Tally()
    for number in range(400):
        late = 4 * MS if number % 10 == 0 else 0
        time += int(10 * MS * (1 + chance.gauss(0, 0.005))) + late
        waiter.meet(time, tally if number > 100 and number % 10 == 1 else Tally())
    assert tally.catch_rate >= 0.8


def test_what_becomes_of_events_is_counted() -> None:
    waiter = Waiter()
    times = beats(10 * MS, 300, 0.0, 1)
    run(waiter, times)
    rhythm = waiter.rhythm
    assert rhythm.met_awake + rhythm.met_asleep == 300
    assert rhythm.met_awake > 250
    assert (rhythm.found, rhythm.lost) == (1, 0)
    before = rhythm.outliers
    waiter.meet(times[-1] + 14 * MS, Tally())  # 4 ms late
    assert rhythm.outliers == before + 1
    run(waiter, [times[-1] + 20 * MS + beat * 3 * MS for beat in range(40)])
    assert (rhythm.found, rhythm.lost) == (2, 1)


@pytest.mark.parametrize("latency_us", [20, 60, 100])
def test_waiter_learns_how_late_it_wakes_without_ever_having_woken_by_itself(
    latency_us: int,
) -> None:
    waiter = Waiter(1000 * latency_us)
    times = beats(MS // 5, 1500, 0.002, 1)
    run(waiter, times[:500])
    assert run(waiter, times[500:]).catch_rate >= 0.85
