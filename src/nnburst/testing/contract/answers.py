"""What a driver reports as supported: the same whenever it is asked, and true."""

from __future__ import annotations

from typing import Final

from nnburst.hal.errors import InvalidArgument, NnburstError
from nnburst.testing.contract.subject import Broken, Subject

_TIMES: Final = 3


def support_does_not_change(subject: Subject) -> None:
    """Asks about each of many models again and again, with others between."""
    first: dict[str, list[bool]] = {}
    for _ in range(_TIMES):
        for case in (subject.case, *subject.others):
            model, pools = subject.model(case)
            answer = subject.device.supported_operations(model, pools=pools)
            if len(answer) != len(model.main.operations):
                raise Broken(
                    f"{len(answer)} answers for {len(model.main.operations)} operations of {case.name}"
                )
            if first.setdefault(case.name, answer) != answer:
                raise Broken(f"{case.name} was answered with {first[case.name]}, then {answer}")
            for pool in pools:
                pool.close()


def support_is_what_prepare_accepts(subject: Subject) -> None:
    """Models that are reported as supported are prepared, and the others refused."""
    for case in (subject.case, *subject.others):
        model, pools = subject.model(case)
        supported = all(subject.device.supported_operations(model, pools=pools))
        try:
            subject.device.prepare(model, pools=pools).close()
        except NnburstError as error:
            if supported:
                raise Broken(f"{case.name} is reported as supported, but {error}") from error
            if not isinstance(error, InvalidArgument):
                raise Broken(f"{case.name} is refused with {error.status.name}") from error
        else:
            if not supported:
                raise Broken(f"{case.name} is prepared, but reported as not supported")
        for pool in pools:
            pool.close()
