"""Tries a driver with everything that there is for testing drivers, and writes one report.

`SUITES` has the checks that every driver is held to, named as the suites of NNAPI's VTS. A check takes a
driver and a case that it computes, and raises `BrokenContract` with the reason if a rule is broken.
"""

from __future__ import annotations

import importlib.util
import os
import platform
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, datetime
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Final, NamedTuple

import msgspec
import numpy as np

from nnburst._version import __version__
from nnburst.client.connect import connect
from nnburst.client.device import Device
from nnburst.hal.enums import OperationType
from nnburst.hal.errors import DeviceUnavailable, NnburstError
from nnburst.testing.conformance.runners import BurstRunner
from nnburst.testing.driver_under_test import DriverUnderTest
from nnburst.testing.pack import (
    campaign,
    compilation_caching,
    contract,
    generated,
    memory_domain,
    quality_of_service,
)
from nnburst.testing.pack.campaign import left_out, try_graphs, try_pairs
from nnburst.testing.pack.cases import Case, Triple, can_be_drawn, cases, conceivable, wanted
from nnburst.testing.pack.contract import (
    BrokenContract,
    Check,
    NotApplicable,
    Subject,
    is_whole,
    run_once,
)
from nnburst.testing.report import (
    FAILED,
    PASSED,
    SKIPPED,
    About,
    CheckResult,
    Latency,
    Report,
    TripleResult,
    missing,
    performances,
)

#: Checks by suite and by name.
SUITES: Final[dict[str, dict[str, Check]]] = {
    "contract": contract.CHECKS,
    "GeneratedTests": generated.CHECKS,
    "CompilationCaching": compilation_caching.CHECKS,
    "MemoryDomain": memory_domain.CHECKS,
    "QualityOfService": quality_of_service.CHECKS,
}
_TRIPS: Final = 300


def run_check(
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
    """Times round trips of a case over a burst, the client's own work included.

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


#: The pack's first cases and the suites of checks; all cases and random graphs; the pytest suites that send
#: what no honest client sends, kill and stop; everything.
PROFILES: Final = ("basic", "generated", "faults", "full")
#: Cases of a triple in profile basic.
BASIC: Final = 12
#: Further cases that a driver is asked about.
_ASKED: Final = 60
_SUITES: Final = "nnburst.testing.suites_for_drivers"
_decode: Final = msgspec.json.Decoder(Report).decode

#: Called with what was done, of how much.
Advance = Callable[[str, int, int], None]


class Plan(NamedTuple):
    """The tests to run, and the requirements on their results.

    Attributes:
        profile: one of PROFILES.
        filter: regular expression searched in names of cases; empty for all.
        operation: only cases of it; empty for all.
        required: operations, or operations with types ("ADD:TENSOR_FLOAT32"), that must be executed.
        max_latency_us: largest median of a round trip; None for none.
        dump: folder for files that reproduce failures; None for none.
        paths: where an executor's module is looked for.
        options: what the executor is opened with, each as `key=value`.
    """

    profile: str = "full"
    filter: str = ""
    operation: str = ""
    required: tuple[str, ...] = ()
    max_latency_us: float | None = None
    dump: Path | None = None
    paths: tuple[Path, ...] = ()
    options: tuple[str, ...] = ()


def assess(driver: DriverUnderTest, plan: Plan, advance: Advance) -> Report:
    """Try a driver.

    Raises:
        DeviceUnavailable: it does not answer.
    """
    began = time.monotonic()
    with connect(driver.address) as device:
        about = describe(device, driver.name, plan.profile)
    found: list[TripleResult] = []
    passed: list[Case] = []
    results: list[CheckResult] = []
    if plan.profile != "faults":
        for triple, good in _pack(driver, plan, advance):
            found.append(triple)
            passed += good[-1:]
        subjects = subjects_of(passed)
        results += _checks(driver.address, subjects, advance)
    else:
        subjects = []
    if plan.profile in ("generated", "full"):
        known = {OperationType[t.operation] for t in found if t.passed}
        results += _graphs(driver, known, advance)
    if plan.profile in ("faults", "full"):
        results += _suites(driver, plan, advance)
    return Report(
        msgspec.structs.replace(about, seconds=time.monotonic() - began),
        tuple(found),
        tuple(results),
        latencies=_latencies(driver.address, subjects),
        left_out=left_out(),
        required=missing(plan.required, found),
        max_latency_us=plan.max_latency_us,
    )


def describe(device: Device, named: str, profile: str) -> About:
    """A driver as a report describes it."""
    try:
        capabilities, unknown = performances(device.capabilities), ""
    except NnburstError as error:
        capabilities, unknown = (), str(error)
    return About(
        driver=named,
        name=device.name,
        version=device.version_string,
        feature_level=device.feature_level.name,
        type=device.type.name,
        capabilities=capabilities,
        unknown_capabilities=unknown,
        profile=profile,
        nnburst=__version__,
        date=datetime.now(UTC).isoformat(timespec="seconds"),
        machine=f"{platform.machine()}, {os.cpu_count()} processors, Linux {platform.release()}",
        seconds=0.0,
    )


def subjects_of(passed: Sequence[Case]) -> list[Case]:
    """A few cases for the suites of checks: the smallest and a large one, of two operations if it can be."""
    whole = sorted((case for case in passed if is_whole(case)), key=_elements)
    if not whole:
        return []
    first, last = whole[0], whole[-1]
    others = [case for case in whole if case.triple.operation != first.triple.operation]
    return [first] if first is last else [first, others[-1] if others else last]


def _elements(case: Case) -> int:
    return sum(array.size for array in case.feeds[0].inputs.values())


def _pack(
    driver: DriverUnderTest, plan: Plan, advance: Advance
) -> Iterator[tuple[TripleResult, list[Case]]]:
    most = BASIC if plan.profile == "basic" else None
    session = campaign.PackSession(lambda: BurstRunner.over(connect(driver.address)))
    chosen = list(wanted(partial(_takes, plan)))
    try:
        tried = campaign.run(chosen, session, campaign.PackOptions(most, plan.filter, plan.dump))
        for number, found in enumerate(tried):
            advance("pack", number + 1, len(chosen))
            yield found
    finally:
        session.close()


def _takes(plan: Plan, triple: Triple) -> bool:
    if plan.operation and triple.operation.name != plan.operation:
        return False
    return any(re.search(plan.filter, name) for name in triple.case_names)


def _checks(address: str, subjects: Sequence[Case], advance: Advance) -> Iterator[CheckResult]:
    others = other_cases(subjects)
    names = [(suite, name) for suite, checks in SUITES.items() for name in checks]
    for number, subject in enumerate(subjects):
        for place, (suite, name) in enumerate(names):
            yield run_check(suite, name, address, subject, others)
            advance("checks", number * len(names) + place + 1, len(subjects) * len(names))


def other_cases(subjects: Sequence[Case]) -> tuple[Case, ...]:
    """The first cases of further triples for a driver, the subjects' operations first."""
    known = {case.triple.operation for case in subjects}
    ordered = sorted(conceivable(), key=lambda t: (t.operation not in known, t.rank, t.operation))
    return tuple(next(cases(triple)) for triple in islice(filter(can_be_drawn, ordered), _ASKED))


def _graphs(
    driver: DriverUnderTest, known: set[OperationType], advance: Advance
) -> Iterator[CheckResult]:
    with connect(driver.address) as device:
        runner = BurstRunner.over(device)
        operations = sorted(known)
        yield from try_graphs(
            device, runner, operations, lambda done, of: advance("graphs", done, of)
        )
        yield from try_pairs(runner, operations, lambda done, of: advance("pairs", done, of))


def _latencies(address: str, subjects: Sequence[Case]) -> tuple[Latency, ...]:
    found = []
    for subject in subjects:
        try:
            found.append(latency(address, subject))
        except NnburstError:
            continue  # a check of the contract has failed, too, and has the reason
    return tuple(found)


def _suites(driver: DriverUnderTest, plan: Plan, advance: Advance) -> list[CheckResult]:
    """The pytest suites in a process of their own, on the driver's own terms."""
    absent = [name for name in ("pytest", "hypothesis") if importlib.util.find_spec(name) is None]
    if absent:
        reason = f"{' and '.join(absent)} not installed: pip install nnburst[test]"
        return [CheckResult("suites", "all of them", SKIPPED, reason)]
    advance("suites", 0, 1)
    with tempfile.TemporaryDirectory(prefix="nnburst-") as folder:
        command = [
            *(sys.executable, "-m", "pytest", "-q", "-p", "nnburst.testing.plugin"),
            *("-p", "no:cacheprovider", "--pyargs", _SUITES, "-m", "not nnburst_pack"),
            f"--nnburst-profile={plan.profile}",
            f"--nnburst-driver={driver.name}",
            f"--nnburst-report={folder}",
            *(f"--nnburst-option={option}" for option in plan.options),
        ]
        path = os.pathsep.join([*map(str, plan.paths), os.environ.get("PYTHONPATH", "")])
        done = subprocess.run(  # noqa: S603 - this interpreter, this package, a list of words
            command,
            cwd=folder,
            env={**os.environ, "PYTHONPATH": path},
            capture_output=True,
            text=True,
            check=False,
        )
        advance("suites", 1, 1)
        file = Path(folder) / "report.json"
        if not file.exists():
            raise DeviceUnavailable(
                f"the suites did not run: {done.stdout[-2000:]}{done.stderr[-2000:]}"
            )
        return list(_decode(file.read_bytes()).checks)
