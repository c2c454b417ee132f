"""Runs all tests for drivers against one driver, and makes one report.

`SUITES` has the checks that every driver must pass, named like the suites of NNAPI's VTS. A check gets a
driver and a case that the driver computes, and raises `BrokenContract` with the reason if a rule is broken.
"""

from __future__ import annotations

import importlib.util
import os
import platform
import re
import signal
import subprocess
import sys
import time
from collections import deque
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
from nnburst.hal.enums import FeatureLevel, OperationType
from nnburst.hal.errors import DeviceUnavailable, NnburstError
from nnburst.hal.own_folder import OwnFolder
from nnburst.testing.conformance.runners import BurstRunner
from nnburst.testing.driver_under_test import DriverUnderTest
from nnburst.testing.models.small_models import branches, loop
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
        address: the driver's address.
        case: a case that it supports, with a value for every input (`contract.is_whole`).
        others: further cases, supported or not.
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
    """Measure round trips of a case over a burst, the client's own work included.

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
#: hostile input and kill and stop processes; everything.
PROFILES: Final = ("basic", "generated", "faults", "full")
#: The most cases of a triple in profile basic.
BASIC: Final = 12
#: Number of further cases whose support checks ask about.
_ASKED: Final = 60
_SUITES: Final = "nnburst.testing.suites_for_drivers"
#: The end of a line of pytest's output: tests done, and all tests.
_COUNT: Final = re.compile(r"\[\s*(\d+)/(\d+)\]\s*$")
#: Lines of pytest's output that an error shows.
_LAST_LINES: Final = 40
#: Seconds that pytest has to end after an interrupt.
_SUITES_END: Final = 60.0
_decode: Final = msgspec.json.Decoder(Report).decode

#: Called with the numbers of steps done and of all steps, and a description.
Advance = Callable[[str, int, int], None]


class Plan(NamedTuple):
    """The tests to run, and the requirements on their results.

    Attributes:
        profile: one of PROFILES.
        filter: regular expression searched in names of cases; empty for all.
        operation: only cases of this operation; empty for all.
        required: operations, or operations with types ("ADD:TENSOR_FLOAT32"), that must be executed.
        max_latency_us: largest allowed median of a round trip; None for no limit.
        dump: folder for files that reproduce failures; None for none.
        paths: folders in which an executor's module is searched.
        options: options that the executor is opened with, each as `key=value`.
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
    """Run the plan's tests against a driver.

    A KeyboardInterrupt ends the run early, with a report of the tests so far.

    Raises:
        DeviceUnavailable: the driver does not answer.
    """
    began = time.monotonic()
    with connect(driver.address) as device:
        about = describe(device, driver.name, plan.profile)
    attempt = _Attempt(driver, plan, advance)
    try:
        attempt.run()
        unfinished = ""
    except KeyboardInterrupt:
        unfinished = f"stopped {attempt.place}"
    return Report(
        msgspec.structs.replace(about, seconds=time.monotonic() - began),
        tuple(attempt.found),
        tuple(attempt.results),
        latencies=tuple(attempt.latencies),
        left_out=left_out(),
        required=() if unfinished else missing(plan.required, attempt.found),
        max_latency_us=plan.max_latency_us,
        unfinished=unfinished,
    )


class _Attempt:
    """One assessment with its results so far.

    Attributes:
        found: results of the pack.
        results: results of checks, graphs and suites.
        latencies: round trips of the subjects.
        place: the present step, in words.
    """

    def __init__(self, driver: DriverUnderTest, plan: Plan, advance: Advance) -> None:
        self.found: list[TripleResult] = []
        self.results: list[CheckResult] = []
        self.latencies: list[Latency] = []
        self.place = "at the beginning"
        self._driver = driver
        self._plan = plan
        self._show = advance

    def run(self) -> None:
        """Run all tests of the plan."""
        profile, advance = self._plan.profile, self._advance
        subjects: list[Case] = []
        if profile != "faults":
            passed: list[Case] = []
            for triple, good in _pack(self._driver, self._plan, advance):
                self.found.append(triple)
                passed += good[-1:]
            subjects = subjects_of(passed)
            self._keep(_checks(self._driver.address, subjects, advance))
        if profile in ("generated", "full"):
            known = {OperationType[t.operation] for t in self.found if t.passed}
            self._keep(_graphs(self._driver, known, advance))
        if profile in ("faults", "full"):
            self._keep(_suites(self._driver, self._plan, advance))
        self.latencies += _latencies(self._driver.address, subjects)

    def _keep(self, results: Iterator[CheckResult]) -> None:
        for result in results:  # one by one, so that they are in the report of an interrupted run
            self.results.append(result)

    def _advance(self, step: str, done: int, of: int) -> None:
        self.place = f"in {step}, {done} of {of}"
        self._show(step, done, of)


def describe(device: Device, named: str, profile: str) -> About:
    """Describe a driver for a report."""
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
    """A few cases for the suites of checks: the smallest and a large one, of two operations if possible."""
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
    advance("choosing cases", 0, 1)
    chosen = list(wanted(partial(_takes, plan)))
    advance("pack", 0, len(chosen))
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
    advance("checks", 0, len(subjects) * len(names))
    for number, subject in enumerate(subjects):
        for place, (suite, name) in enumerate(names):
            yield run_check(suite, name, address, subject, others)
            advance("checks", number * len(names) + place + 1, len(subjects) * len(names))


def other_cases(subjects: Sequence[Case]) -> tuple[Case, ...]:
    """The first cases of other triples, those of the subjects' operations first."""
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
        operations = sorted(known | _control_flow(device))
        yield from try_pairs(runner, operations, lambda done, of: advance("pairs", done, of))


def _control_flow(device: Device) -> set[OperationType]:
    """IF and WHILE, which have no cases, if the driver runs a small model of each."""
    if device.feature_level < FeatureLevel.V1_3:
        return set()
    models = {OperationType.IF: branches().model, OperationType.WHILE: loop().model}
    return {kind for kind, model in models.items() if all(device.supported_operations(model))}


def _latencies(address: str, subjects: Sequence[Case]) -> tuple[Latency, ...]:
    found = []
    for subject in subjects:
        try:
            found.append(latency(address, subject))
        except NnburstError:
            continue  # a check of the contract has failed for the same reason
    return tuple(found)


def _suites(driver: DriverUnderTest, plan: Plan, advance: Advance) -> Iterator[CheckResult]:
    """Run the pytest suites in a process of their own, with the plan's options of the driver."""
    absent = [name for name in ("pytest", "hypothesis") if importlib.util.find_spec(name) is None]
    if absent:
        reason = f"{' and '.join(absent)} not installed: pip install 'nnburst[test]'"
        yield CheckResult("suites", "all of them", SKIPPED, reason)
        return
    with OwnFolder() as own:
        folder = own.path
        command = [
            *(sys.executable, "-m", "pytest", "-v", "-o", "console_output_style=count"),
            *("-p", "nnburst.testing.plugin", "-p", "no:cacheprovider"),
            *("--pyargs", _SUITES, "-m", "not nnburst_pack"),
            f"--nnburst-profile={plan.profile}",
            f"--nnburst-driver={driver.name}",
            f"--nnburst-report={folder}",
            *(f"--nnburst-option={option}" for option in plan.options),
        ]
        path = os.pathsep.join([*map(str, plan.paths), os.environ.get("PYTHONPATH", "")])
        last = deque[str](maxlen=_LAST_LINES)
        file = folder / "report.json"
        advance("collecting tests", 0, 1)
        with subprocess.Popen(  # noqa: S603 - this interpreter, this package, a list of words
            command,
            cwd=folder,
            env={**os.environ, "PYTHONPATH": path, "PYTHONUNBUFFERED": "1"},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="backslashreplace",
            process_group=0,  # Ctrl-C is for this process, which lets pytest write its report
        ) as process:
            assert process.stdout is not None
            try:
                for line in process.stdout:
                    last.append(line)
                    if count := _COUNT.search(line):
                        advance("suites", int(count[1]), int(count[2]))
                process.wait()
            except KeyboardInterrupt:
                _interrupt(process)
                if file.exists():
                    yield from _decode(file.read_bytes()).checks
                raise
            finally:
                _interrupt(process)
        if not file.exists():
            raise DeviceUnavailable(f"the suites did not run: {''.join(last)}")
        yield from _decode(file.read_bytes()).checks


def _interrupt(process: subprocess.Popen[str]) -> None:
    """Interrupt pytest, so that it ends its driver and writes its report; kill it if that takes long."""
    if process.poll() is not None:
        return
    process.send_signal(signal.SIGINT)
    try:
        process.communicate(timeout=_SUITES_END)
    except subprocess.TimeoutExpired:
        process.kill()
