"""Contestants run in turn: they warm up until their times settle, and then run rounds for the given time."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator

import numpy as np
import pytest

from nnburst.bench.cases import Samples
from nnburst.bench.rounds import Measured, is_falling, run_rounds, warm_up


class Scripted:
    """A contestant whose blocks take scripted times; the first four serve to find the size of a block."""

    def __init__(self, name: str, script: Iterable[float]) -> None:
        self.name = name
        self.blocks = 0
        self._script: Iterator[float] = itertools.chain([1e6] * 4, script)

    def block(self, count: int) -> float:
        assert count > 0
        self.blocks += 1
        return next(self._script)

    def samples(self, count: int) -> Samples:
        return np.full(count, 1000, np.uint64)


def test_blocks_fall_while_the_last_five_are_faster_than_the_five_before() -> None:
    assert is_falling([100.0] * 9)
    assert is_falling([100.0] * 5 + [97.0] * 5)
    assert not is_falling([100.0] * 5 + [99.0] * 5)
    assert not is_falling([100.0] * 5 + [130.0] * 5)
    assert not is_falling([100.0] * 5 + [100.0, 50.0, 100.0, 50.0, 100.0])


def seconds() -> Iterator[float]:
    """A clock that advances by a second whenever it is read."""
    return map(float, itertools.count())


def test_warm_up_takes_as_long_as_asked_for_if_nothing_becomes_faster() -> None:
    found = warm_up([Scripted("steady", itertools.repeat(100.0))], 20, seconds().__next__)
    assert (found.rounds, found.unsettled) == (19, ())
    assert found.seconds >= 20


def test_warm_up_goes_on_until_no_contestant_becomes_faster() -> None:
    falls = [100.0 * 0.9**n for n in range(40)]
    falling = Scripted("falling", [*falls, *itertools.repeat(1.0, 1000)])
    found = warm_up([Scripted("steady", itertools.repeat(100.0)), falling], 20, seconds().__next__)
    assert 40 < found.rounds < 60
    assert found.unsettled == ()


def test_warm_up_ends_at_ten_times_what_was_asked_for_and_names_what_had_not_settled() -> None:
    falling = Scripted("falling", (1e9 * 0.9**n for n in itertools.count()))
    found = warm_up([Scripted("steady", itertools.repeat(100.0)), falling], 20, seconds().__next__)
    assert found.unsettled == ("falling",)
    assert found.rounds == 199


def test_no_warm_up_runs_nothing() -> None:
    case = Scripted("case", ())
    assert warm_up([case], 0).rounds == 0
    assert case.blocks == 0


@pytest.mark.parametrize(("asked", "rounds"), [(0, 3), (2, 4), (50, 52)])
def test_rounds_go_on_for_as_long_as_was_asked_for_but_never_fewer(
    asked: float, rounds: int
) -> None:
    cases = [Scripted(name, itertools.repeat(100.0)) for name in ("one", "two")]
    turns: list[None] = []
    found = run_rounds(
        cases, 3, lambda: turns.append(None), seconds=asked, clock=seconds().__next__
    )
    assert len(turns) == rounds  # the clock is looked at from the third one on
    assert {len(measured.blocks) for measured in found.values()} == {len(turns)}


def test_undisturbed_is_what_exchanges_take_while_most_of_them_are_disturbed() -> None:
    samples = np.full(1000, 55_000, np.uint64)
    samples[300:] = 80_000  # another guest has the core's other half
    measured = Measured("net", [72_500.0], [samples])
    assert measured.undisturbed_ns == 55_000
    assert measured.median_ns == 80_000
