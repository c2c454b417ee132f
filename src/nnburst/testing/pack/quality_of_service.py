"""Checks quality of service: priorities, and deadlines that have passed, are near, or are far.

NNAPI: QualityOfServiceTests.cpp.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial
from typing import Final

from nnburst.client.hal import execute_fenced
from nnburst.client.prepared_model import PreparedModel
from nnburst.hal.enums import Priority
from nnburst.hal.errors import InvalidArgument, MissedDeadline, NnburstError
from nnburst.testing.pack.contract import SECONDS, BrokenContract, Check, Subject, run_once

#: Nanoseconds from now: a second ago, now, soon, and in an hour.
_PAST: Final = -(10**9)
_SHORT: Final = 5 * 10**6
_FAR: Final = 3600 * 10**9
#: Times that CLOCK_BOOTTIME does not have; -1 means no deadline (device:E3).
_SENSELESS: Final = (-2, -(2**63))


def _moment(offset: int) -> int:
    return max(time.clock_gettime_ns(time.CLOCK_BOOTTIME) + offset, 1)


def _bits(prepared: PreparedModel, subject: Subject) -> list[bytes]:
    with prepared.open_burst() as burst:
        bound = burst.bind()
        return [run_once(bound, subject.case, at) for at in range(len(subject.case.feeds))]


def every_priority_is_taken(subject: Subject) -> None:
    """Prepare with LOW, MEDIUM and HIGH: accepted, with the same bits as results."""
    found = {}
    for priority in Priority:
        model, pools = subject.model(subject.case)
        with subject.device.prepare(
            model, pools=pools, priority=priority, bursts=False
        ) as prepared:
            found[priority.name] = tuple(_bits(prepared, subject))
    if len(set(found.values())) != 1:
        raise BrokenContract(f"priorities {', '.join(found)} give different bits")


def _kept_or_missed(call: Callable[[int], object], offset: int, name: str) -> None:
    where = f"{name}, deadline {offset / 1e6:g} ms from now"
    try:
        call(_moment(offset))
    except MissedDeadline as error:
        if offset == _FAR:
            raise BrokenContract(f"{where} was missed") from error
    except NnburstError as error:
        raise BrokenContract(
            f"{where}: {error.status.name}, expected a missed deadline or none"
        ) from error
    else:
        if offset == _PAST:
            raise BrokenContract(f"{where} was kept")


def deadlines_of_preparations_are_kept_or_missed(subject: Subject) -> None:
    """Prepare with deadlines: a past one is missed, a near one may be, a far one is met."""

    def prepare(deadline_ns: int) -> None:
        model, pools = subject.model(subject.case)
        preparation = subject.device.prepare_async(model, pools=pools, deadline_ns=deadline_ns)
        preparation.result(SECONDS).close()

    for offset in (_PAST, 0, _SHORT, _FAR):
        _kept_or_missed(prepare, offset, "prepareModel")


def _executions(subject: Subject, prepared: PreparedModel) -> dict[str, Callable[[int], object]]:
    """The ways to execute that have a deadline of the caller."""
    arrays, sizes = subject.arrays(), subject.sizes()

    def asynchronously(deadline_ns: int) -> object:
        return prepared.execute_async(arrays, deadline_ns=deadline_ns).result(SECONDS)

    return {
        "execute": asynchronously,
        "executeSynchronously": lambda at: subject.execute(prepared, arrays, sizes, deadline_ns=at),
    }


def deadlines_of_executions_are_kept_or_missed(subject: Subject) -> None:
    """Execute with deadlines as for preparations; later executions give the same bits as before."""
    with subject.prepared() as prepared:
        before = _bits(prepared, subject)
        for name, execute in _executions(subject, prepared).items():
            for offset in (_PAST, 0, _SHORT, _FAR):
                _kept_or_missed(execute, offset, name)
        if _bits(prepared, subject) != before:
            raise BrokenContract("after missed deadlines, executions give other bits")


def deadlines_before_time_began_are_refused(subject: Subject) -> None:
    """Use negative times: INVALID_ARGUMENT (device:E3)."""
    with subject.prepared() as prepared:
        for moment in _SENSELESS:
            for name, execute in _executions(subject, prepared).items():
                _must_refuse(partial(execute, moment), f"{name}, deadline {moment}")
            model, pools = subject.model(subject.case)
            preparation = subject.device.prepare_async(model, pools=pools, deadline_ns=moment)
            _must_refuse(partial(preparation.result, SECONDS), f"prepareModel, deadline {moment}")


def _must_refuse(call: Callable[[], object], why: str) -> None:
    try:
        call()
    except InvalidArgument:
        return
    except NnburstError as error:
        raise BrokenContract(f"{why}: {error.status.name}, expected INVALID_ARGUMENT") from error
    raise BrokenContract(f"{why}: no error")


def durations_of_fenced_executions_are_kept_or_missed(subject: Subject) -> None:
    """Execute with a duration of a nanosecond, and one of an hour (device:F5)."""
    with subject.prepared() as prepared:
        arrays = subject.arrays()

        def fenced(seconds: float) -> None:
            with execute_fenced(prepared, arrays, duration=seconds, timeout=SECONDS) as execution:
                execution.result(SECONDS)

        try:
            fenced(1e-9)
        except MissedDeadline:
            pass
        except NnburstError as error:
            raise BrokenContract(f"executeFenced, duration 1 ns: {error.status.name}") from error
        fenced(3600.0)


#: Checks by name; each raises BrokenContract, or any other error, if the driver breaks its rule.
CHECKS: Final[dict[str, Check]] = {
    check.__name__: check
    for check in (
        every_priority_is_taken,
        deadlines_of_preparations_are_kept_or_missed,
        deadlines_of_executions_are_kept_or_missed,
        deadlines_before_time_began_are_refused,
        durations_of_fenced_executions_are_kept_or_missed,
    )
}
