"""Executions: each by itself right, whatever ran before or runs beside it, and in time."""

from __future__ import annotations

from typing import Final

from nnburst.client.burst.bound_request import BoundRequest
from nnburst.hal.errors import MissedDeadline
from nnburst.testing.contract.subject import Broken, Subject, run_once

_RUNS: Final = 1000
_DEADLINES: Final = (1e-6, 1e-5, 1e-4, 1e-3, 1e-2)
_ROUNDS: Final = 20


def thousand_executions_give_the_same_bits(subject: Subject) -> None:
    """One binding, three sets of inputs in turn, outputs overwritten between."""
    sets = len(subject.case.feeds)
    with subject.prepared() as prepared, prepared.open_burst() as burst:
        bound = burst.bind()
        first = [run_once(bound, subject.case, number) for number in range(sets)]
        for number in range(_RUNS):
            _equal(bound, subject, number, first, f"execution {number + sets + 1}")


def bindings_do_not_mix(subject: Subject) -> None:
    """Two bindings of one model, used in turn with different inputs."""
    case = subject.case
    with subject.prepared() as prepared, prepared.open_burst() as burst:
        one, other = burst.bind(), burst.bind()
        first = [run_once(one, case, number) for number in range(len(case.feeds))]
        for number in range(_ROUNDS):
            _equal(one, subject, number, first, f"the first binding's execution {number + 1}")
            _equal(other, subject, number + 1, first, f"the other binding's {number + 1}")


def models_do_not_mix(subject: Subject) -> None:
    """The same model prepared twice, executed in turn."""
    case = subject.case
    with (
        subject.prepared() as a,
        subject.prepared() as b,
        a.open_burst() as first_burst,
        b.open_burst() as second_burst,
    ):
        one, other = first_burst.bind(), second_burst.bind()
        first = [run_once(one, case, number) for number in range(len(case.feeds))]
        for number in range(_ROUNDS):
            _equal(one, subject, number, first, f"the first model's execution {number + 1}")
            _equal(other, subject, number + 1, first, f"the second model's {number + 1}")


def missed_deadline_harms_no_later_execution(subject: Subject) -> None:
    """Deadlines that end before, amid and after an execution: right results or none."""
    case = subject.case
    with subject.prepared() as prepared, prepared.open_burst() as burst:
        bound = burst.bind()
        first = [run_once(bound, case, number) for number in range(len(case.feeds))]
        for number in range(_ROUNDS):
            for seconds in _DEADLINES:
                try:
                    found = run_once(bound, case, number, seconds)
                except MissedDeadline:
                    continue
                if found != first[number % len(first)]:
                    raise Broken(f"a deadline of {seconds:g} s was kept, with another result")
            _equal(bound, subject, number + 1, first, "the execution after missed deadlines")


def _equal(
    bound: BoundRequest, subject: Subject, number: int, first: list[bytes], which: str
) -> None:
    found, wanted = run_once(bound, subject.case, number), first[number % len(first)]
    if found != wanted:
        at = next(i for i, (a, b) in enumerate(zip(found, wanted, strict=True)) if a != b)
        raise Broken(f"{which} gave other bits than the first with these inputs, from byte {at} on")
