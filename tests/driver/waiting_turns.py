"""Threads that wait for their turns on a device, whose time is counted and not spent."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from typing import NamedTuple

from nnburst.driver.owner_server import FairTurns, TurnTaker
from nnburst.hal.enums import Priority


class Work(NamedTuple):
    """One execution of a client."""

    client: str
    priority: Priority = Priority.MEDIUM
    user: int = 0
    cost: int = 1


def order_of(*waves: Sequence[Work]) -> list[Work]:
    """The order in which work is done, if all work of a wave waits before the first of it is done."""
    now = [0.0]
    turns = FairTurns(lambda: now[0])
    takers: dict[str, TurnTaker] = {}
    order: list[Work] = []

    def do(work: Work) -> None:
        with takers[work.client].turn(work.priority):
            order.append(work)
            now[0] += work.cost

    for wave in waves:
        for work in wave:
            if work.client not in takers:
                takers[work.client] = turns.join(work.user)
        threads: list[threading.Thread] = []
        with turns.join(-1).turn(Priority.MEDIUM):  # of a user of its own, at no cost
            for work in wave:
                before = turns.waiting
                threads.append(threading.Thread(target=do, args=(work,)))
                threads[-1].start()
                while turns.waiting == before:
                    threading.Event().wait(0.0005)
        for thread in threads:
            thread.join(60)
    return order
