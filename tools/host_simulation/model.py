"""A head of Ray as one server with a queue, and what its hosts and their clients ask of it."""

from __future__ import annotations

import heapq
import random
from bisect import bisect_left
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache, partial


@dataclass(frozen=True)
class Costs:
    """The costs of the steps, in seconds; `measure.py` prints those of a machine.

    Attributes:
        create: of the head's processor, to register an actor and to place it, first or again.
        node: of the head's processor per second, for each node's reports.
        list_one: of a client's look-up, for each actor that there is.
        ask_one: of a client, for each actor that it asks where it is.
        start: from an actor's placement to its first answer, on its own node.
        period: between the reports of a node.
        late: after which a node without a report that was handled counts as lost.
        patience: that a client gives a look-up.
    """

    create: float = 0.0127
    node: float = 0.00125
    list_one: float = 0.000002
    ask_one: float = 0.00066
    start: float = 0.64
    period: float = 1.0
    late: float = 15.0
    patience: float = 2.0


@dataclass(frozen=True)
class Outcome:
    """One run.

    Attributes:
        started: seconds until the last host answers.
        longest_wait: seconds that a report of a node waited at most, until it was handled.
        recovered: seconds until the last host that was lost answers again.
        look_up: seconds in which a client has asked all hosts.
        load: share of the head's processor that reports take.
    """

    started: float
    longest_wait: float
    recovered: float
    look_up: float
    load: float


def simulate(
    hosts: int, costs: Costs, *, lost: float = 0.1, minutes: float = 4.0, seed: int = 1
) -> Outcome:
    """All hosts start at once; at half time a share of them is lost at once and placed again.

    Args:
        hosts: how many, one on each node.
        costs: of the head.
        lost: share of the hosts that are lost.
        minutes: of the simulated cluster.
        seed: of the nodes' phases.
    """
    rng = random.Random(seed)  # noqa: S311 - a simulation
    half, end = minutes * 30, minutes * 60
    report = costs.node * costs.period
    events = [(0.0, 0, number) for number in range(hosts)]
    events += [(half, 0, number) for number in range(round(hosts * lost))]
    events += [(rng.random() * costs.period, 1, number) for number in range(hosts)]
    heapq.heapify(events)
    free = started = recovered = longest = 0.0
    while events:
        due, kind, number = heapq.heappop(events)
        if due > end:
            break
        free = max(free, due) + (report if kind else costs.create)
        if kind:
            longest = max(longest, free - due)
            # A node reports again once its report is answered, and not before its period is over.
            heapq.heappush(events, (max(due + costs.period, free), 1, number))
        elif due < half:
            started = free + costs.start
        else:
            recovered = free + costs.start - half
    look_up = hosts * (costs.list_one + costs.ask_one)
    return Outcome(started, longest, recovered, look_up, hosts * costs.node)


#: What stops working at some number of hosts, in the order of a page's rows.
LIMITS: dict[str, Callable[[Outcome, Costs], bool]] = {
    "a look-up that asks every host takes longer than a client waits": lambda found, costs: (
        found.look_up > costs.patience
    ),
    "reports alone take the head's whole processor": lambda found, _: found.load >= 1,
    "a start of all at once holds reports up until nodes count as lost": lambda found, costs: (
        found.longest_wait > costs.late
    ),
}


def first_number(is_broken: Callable[[int], bool], most: int) -> int | None:
    """The least number of hosts that breaks a limit; None if `most` does not. More hosts never mend one."""
    if not is_broken(most):
        return None
    return 1 + bisect_left(range(1, most), True, key=is_broken)


def bottlenecks(costs: Costs, most: int, minutes: float = 2.0) -> dict[str, int | None]:
    """For each limit the number of hosts at which it breaks; None if `most` does not break it."""
    run = cache(partial(simulate, costs=costs, minutes=minutes))

    def breaks(limit: Callable[[Outcome, Costs], bool], hosts: int) -> bool:
        return limit(run(hosts), costs)

    return {name: first_number(partial(breaks, limit), most) for name, limit in LIMITS.items()}
