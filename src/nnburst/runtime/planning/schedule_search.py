"""The schedule of least latency: which device runs which operations, step after step.

Pure: what steps cost comes in, a schedule comes out. Sets of operations are bit masks over the run order.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from math import inf
from typing import Final, NamedTuple

#: If a model has more sets of operations that can have run by some moment, steps are runs of the run order.
MAX_STATES: Final = 400


class ScheduledStep(NamedTuple):
    """A device, and the operations that it runs at once, ascending."""

    device: int
    operations: tuple[int, ...]

    @property
    def mask(self) -> int:
        """The operations as bits."""
        return sum(1 << number for number in self.operations)


Schedule = tuple[ScheduledStep, ...]


@dataclass(slots=True)
class StepCosts:
    """What steps cost, in seconds. Infinite if a device cannot run an operation, or a step.

    Attributes:
        fixed: of each device, what every step costs besides its operations.
        single: of each device and operation, what the operation adds to a step.
        known: of single steps, by device and mask, what they really cost; counts before the estimate.
    """

    fixed: list[float]
    single: list[list[float]]
    known: dict[tuple[int, int], float] = field(default_factory=dict)

    def of(self, step: ScheduledStep) -> float:
        """What a step costs, known or estimated."""
        estimate = self.fixed[step.device] + sum(
            self.single[step.device][number] for number in step.operations
        )
        return self.known.get((step.device, step.mask), estimate)


def best_schedule(readers_wait: Sequence[int], costs: StepCosts) -> Schedule:
    """The cheapest way to run all operations.

    Args:
        readers_wait: for each operation, as a mask, the operations whose results it reads.
        costs: what steps cost.

    Returns:
        Steps in an order in which they can run. Two steps in a row may be of one device, if that costs less
        than one step. Empty if there is no way.
    """
    masks, following = _every_state(readers_wait) or _run_order(len(readers_wait))
    # Of each state: what it costs to get there, the state before the last step, and that step's device.
    reached: list[tuple[float, int, int]] = [(inf, 0, 0)] * len(masks)
    reached[0] = (0.0, 0, 0)
    for start in range(
        len(masks)
    ):  # all that lead to a state have fewer operations and came before
        before = reached[start][0]
        for device, fixed in enumerate(costs.fixed):
            for end, added in _ends(start, costs.single[device], following):
                known = costs.known.get((device, masks[end] ^ masks[start]), fixed + added)
                if before + known < reached[end][0]:
                    reached[end] = (before + known, start, device)
    return () if reached[-1][0] == inf else _path(masks, reached)


class _Lattice(NamedTuple):
    """What can have run by some moment.

    Attributes:
        masks: the operations of each state; those of few operations come first, everything last.
        following: for each state the operations that can run next, and the states after them.
    """

    masks: list[int]
    following: list[list[tuple[int, int]]]


def _every_state(readers_wait: Sequence[int]) -> _Lattice | None:
    """All sets of operations that can have run by some moment; None if there are too many."""
    numbers = {0: 0}
    following: list[list[tuple[int, int]]] = []
    for state in (masks := [0]):  # grows as it goes
        following.append([])
        for number, waits in enumerate(readers_wait):
            after = state | 1 << number
            if after != state and not waits & ~state:
                if after not in numbers:
                    numbers[after] = len(masks)
                    masks.append(after)
                following[-1].append((number, numbers[after]))
        if len(masks) > MAX_STATES:
            return None
    return _Lattice(masks, following)


def _run_order(count: int) -> _Lattice:
    """Operations run in run order only."""
    masks = [(1 << number) - 1 for number in range(count + 1)]
    return _Lattice(masks, [[(number, number + 1)] for number in range(count)] + [[]])


def _ends(
    start: int, single: Sequence[float], following: Sequence[Sequence[tuple[int, int]]]
) -> Iterator[tuple[int, float]]:
    """The states after one more step that begins at `start`, and what its operations add."""
    found = {start}
    waiting = [(start, 0.0)]
    while waiting:
        state, added = waiting.pop()
        for number, end in following[state]:
            if end not in found and single[number] != inf:
                found.add(end)
                waiting.append((end, added + single[number]))
                yield end, added + single[number]


def _path(masks: Sequence[int], reached: Sequence[tuple[float, int, int]]) -> Schedule:
    steps = []
    end = len(masks) - 1
    while end:
        _, start, device = reached[end]
        mask = masks[end] ^ masks[start]
        numbers = tuple(n for n in range(mask.bit_length()) if mask >> n & 1)
        steps.append(ScheduledStep(device, numbers))
        end = start
    return tuple(reversed(steps))
