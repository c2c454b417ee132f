"""The smallest part of a random graph that still fails."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from nnburst.testing.models.random_graphs.builder import RandomGraph


def shrink(graph: RandomGraph, fails: Callable[[Sequence[int]], bool]) -> list[int]:
    """Leave operations out as long as what remains fails.

    Every value of the graph is known, so an operation whose producer is left out reads its input
    from the request instead. Halves, then quarters, down to single operations are tried.

    Args:
        graph: a graph that fails.
        fails: whether the part with these operations (numbers, ascending) fails.

    Returns:
        Operations none of which can be left out alone.
    """
    kept = list(range(len(graph.operations)))
    size = len(kept) // 2
    while size:
        for start in range(0, len(kept), size):
            rest = kept[:start] + kept[start + size :]
            if rest and fails(rest):
                kept = rest
                break
        else:
            size //= 2
    return kept
