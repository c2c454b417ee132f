"""The suites of checks that every driver is held to, named as those of NNAPI's VTS, and what runs them.

A check takes a driver and a case that it computes. It raises `Broken` with the reason if a rule is broken.
"""

from __future__ import annotations

import time
from typing import Final

import numpy as np

from nnburst.client.connect import connect
from nnburst.hal.errors import NnburstError
from nnburst.testing.pack import (
    compilation_caching,
    contract,
    generated,
    memory_domain,
    quality_of_service,
)
from nnburst.testing.pack.cases import Case
from nnburst.testing.pack.contract import BrokenContract, Check, NotApplicable, Subject, run_once
from nnburst.testing.report import FAILED, PASSED, SKIPPED, CheckResult, Latency

#: Checks by suite and by name.
SUITES: Final[dict[str, dict[str, Check]]] = {
    "contract": contract.CHECKS,
    "GeneratedTests": generated.CHECKS,
    "CompilationCaching": compilation_caching.CHECKS,
    "MemoryDomain": memory_domain.CHECKS,
    "QualityOfService": quality_of_service.CHECKS,
}
_TRIPS: Final = 300


def run(
    suite: str, name: str, address: str, case: Case, others: tuple[Case, ...] = ()
) -> CheckResult:
    """Run one check over a connection of its own.

    Args:
        suite: key of SUITES.
        name: key of that suite.
        address: where the driver listens.
        case: one that it supports, whole (`contract.is_whole`).
        others: more cases, supported or not.
    """
    label = f"{name} ({case.name})"
    try:
        with connect(address) as device:
            SUITES[suite][name](Subject(device, case, others))
    except NotApplicable as reason:
        return CheckResult(suite, label, SKIPPED, str(reason))
    except BrokenContract as broken:
        return CheckResult(suite, label, FAILED, str(broken))
    except NnburstError as error:
        return CheckResult(suite, label, FAILED, f"{error.status.name}: {error}")
    return CheckResult(suite, label, PASSED)


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
