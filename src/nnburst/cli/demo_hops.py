"""What the demos that stream a sound share: hops at their time, and how long the parts of each took."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from time import perf_counter_ns
from typing import Any, Final, TypeVar

import numpy as np

from nnburst.cli.output import microseconds, progress, table

H = TypeVar("H")

#: Hops between two steps of the progress bar.
_STEP: Final = 10


def in_time(title: str, hops: Sequence[H], seconds: float, *, real_time: bool) -> Iterator[H]:
    """The hops one after the other, beside a progress bar.

    Args:
        title: of the bar.
        hops: of a sound.
        seconds: that each lasts.
        real_time: whether each comes when a microphone would have it, or at once.
    """
    began = perf_counter_ns()
    with progress(title, len(hops)) as advance:
        for number, hop in enumerate(hops, 1):
            if real_time:
                due = began + number * int(seconds * 1e9)
                time.sleep(max(0, due - perf_counter_ns()) / 1e9)
            yield hop
            if number % _STEP == 0:
                advance(_STEP)


def part_figures(
    parts: Sequence[str], durations_ns: Sequence[Sequence[int]]
) -> dict[str, dict[str, float]]:
    """Median, p99 and longest of each part of a hop, by its name with underscores.

    Args:
        parts: their names.
        durations_ns: of each hop, one for each part.
    """
    durations = np.array(durations_ns or [(0,) * len(parts)])
    found = {}
    for part, name in enumerate(parts):
        median, p99, longest = np.percentile(durations[:, part], [50, 99, 100])
        times = {"median_ns": float(median), "p99_ns": float(p99), "max_ns": float(longest)}
        found[_key(name)] = times
    return found


def show_parts(title: str, parts: Sequence[str], figures: dict[str, Any]) -> None:
    """Print what `part_figures` found, as a table."""
    table(
        title,
        ["part of a hop", "median µs", "p99 µs", "max µs"],
        [
            [name, *(microseconds(value) for value in figures[_key(name)].values())]
            for name in parts
        ],
    )


def _key(part: str) -> str:
    return part.replace(" ", "_")
