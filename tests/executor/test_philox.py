"""Philox4x32-10 against the known answers of its authors."""

from __future__ import annotations

import numpy as np
import pytest

from nnburst.executor.reference.operations.lookup import philox4x32, uniform_doubles


@pytest.mark.parametrize(
    ("counter", "key", "wanted"),
    [
        ("00000000 " * 4, "00000000 " * 2, "6627e8d5 e169c58d bc57ac4c 9b00dbd8"),
        ("ffffffff " * 4, "ffffffff " * 2, "408f276d 41c83b0e a20bc7c6 6d5451fd"),
        (
            "243f6a88 85a308d3 13198a2e 03707344",
            "a4093822 299f31d0",
            "d16cfe09 94fdcceb 5001e420 24126ea1",
        ),
    ],
)
def test_known_answers_of_random123_come_out(counter: str, key: str, wanted: str) -> None:
    words = [[int(w, 16) for w in text.split()] for text in (counter, key, wanted)]
    [found] = philox4x32((words[1][0], words[1][1]), np.array([words[0]], np.uint64))
    assert found.tolist() == words[2]


def test_blocks_do_not_depend_on_their_neighbours() -> None:
    counters = np.arange(20, dtype=np.uint64).reshape(5, 4)
    together = philox4x32((1, 2), counters)
    alone = [philox4x32((1, 2), counters[i : i + 1])[0] for i in range(5)]
    np.testing.assert_array_equal(together, alone)


def test_doubles_fill_the_unit_interval_evenly() -> None:
    x = uniform_doubles((1, 2), 100_000)
    assert x.min() >= 0
    assert x.max() < 1
    counts = np.histogram(x, 10, (0, 1))[0]
    assert np.abs(counts - 10_000).max() < 500  # five standard deviations


def test_a_longer_stream_starts_with_the_shorter_one() -> None:
    np.testing.assert_array_equal(uniform_doubles((5, -6), 9)[:4], uniform_doubles((5, -6), 4))


@pytest.mark.parametrize("other", [(2, 2), (1, 3), (-1, 2), (1, -2), (2, 1)])
def test_each_seed_changes_the_stream(other: tuple[int, int]) -> None:
    assert not np.intersect1d(uniform_doubles((1, 2), 100), uniform_doubles(other, 100)).size
