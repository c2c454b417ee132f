"""The checks by name, and how one is run."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Final

import numpy as np

from nnburst.client.connect import connect
from nnburst.hal.errors import NnburstError
from nnburst.testing.contract import answers, executions, lives
from nnburst.testing.contract.subject import Broken, Subject, run_once
from nnburst.testing.pack.cases import Case
from nnburst.testing.report.results import FAILED, PASSED, CheckResult, Latency

Check = Callable[[Subject], None]

#: Each raises Broken, or any other error, if the driver does not keep to it.
CHECKS: Final[dict[str, Check]] = {
    check.__name__: check
    for check in (
        answers.support_does_not_change,
        answers.support_is_what_prepare_accepts,
        executions.thousand_executions_give_the_same_bits,
        executions.bindings_do_not_mix,
        executions.models_do_not_mix,
        executions.missed_deadline_harms_no_later_execution,
        lives.closed_models_leave_no_memory,
        lives.closing_twice_is_closing_once,
    )
}
_TRIPS: Final = 300


def run(name: str, address: str, case: Case, others: tuple[Case, ...] = ()) -> CheckResult:
    """Run one check over a connection of its own.

    Args:
        name: key of CHECKS.
        address: where the driver listens.
        case: one that it supports, whole (`subject.is_whole`).
        others: more cases, supported or not.
    """
    label = f"{name} ({case.name})"
    try:
        with connect(address) as device:
            CHECKS[name](Subject(device, case, others))
    except Broken as broken:
        return CheckResult("contract", label, FAILED, str(broken))
    except NnburstError as error:
        return CheckResult("contract", label, FAILED, f"{error.status.name}: {error}")
    return CheckResult("contract", label, PASSED)


def latency(address: str, case: Case) -> Latency:
    """How long round trips of a case take over a burst, the client's own work included.

    Raises:
        NnburstError: the driver fails.
    """
    with connect(address) as device:
        subject = Subject(device, case)
        with subject.prepared() as prepared, prepared.open_burst() as burst:
            bound = burst.bind()
            run_once(bound, case, 0)
            trips = []
            for _ in range(_TRIPS):
                began = time.perf_counter_ns()
                bound.run()
                trips.append((time.perf_counter_ns() - began) / 1000)
    return Latency(case.name, float(np.median(trips)), max(trips))
