"""Prepared models that come and go: nothing is kept of them."""

from __future__ import annotations

from typing import Final

from nnburst.testing.contract.subject import Broken, Subject, run_once
from nnburst.testing.faults.footprint import resident_bytes

_WARM_UP: Final = 30
_LIVES: Final = 200
#: Bytes by which a worker may grow over _LIVES of them.
_GROWTH: Final = 1 << 20


def closed_models_leave_no_memory(subject: Subject) -> None:
    """Prepares, executes once and closes, again and again; the worker may not grow by 1 MiB."""
    model, pools = subject.model(subject.case)

    def live() -> None:
        with subject.device.prepare(model, pools=pools) as prepared, prepared.open_burst() as burst:
            run_once(burst.bind(), subject.case, 0)

    for _ in range(_WARM_UP):
        live()
    # Allocators take memory in steps: what leaks grows in the second half as in the first.
    growth = []
    for _ in range(2):
        before = resident_bytes(subject.device.pid)
        for _ in range(_LIVES // 2):
            live()
        growth.append(resident_bytes(subject.device.pid) - before)
    if sum(growth) >= _GROWTH and min(growth) > _GROWTH // 8:
        raise Broken(
            f"the worker grew by {sum(growth) >> 10} KiB over {_LIVES} models that were closed,"
            f" allowed are {_GROWTH >> 10}"
        )


def closing_twice_is_closing_once(subject: Subject) -> None:
    """What is closed twice harms neither its driver nor what is prepared afterwards."""
    bits = []
    for _ in range(2):
        with subject.prepared() as prepared:
            burst = prepared.open_burst()
            bits.append(run_once(burst.bind(), subject.case, 0))
            for _ in range(2):
                burst.close()
                prepared.close()
    if bits[0] != bits[1] or not subject.device.is_alive:
        raise Broken("a model that was prepared after another was closed twice gives other bits")
