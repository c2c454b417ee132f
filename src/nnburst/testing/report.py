"""The report of a conformance run: the driver, and the results of every test."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from typing import Final

import msgspec

from nnburst.hal.enums import OperandType, OperationType
from nnburst.hal.types import FLT_MAX, Capabilities, PerformanceInfo

PASSED: Final = "passed"
FAILED: Final = "failed"
SKIPPED: Final = "skipped"
FORMAT: Final = 2
#: Operations that a driver can support: NNAPI's, without the vendors' own.
OPERATIONS: Final = tuple(
    sorted(o.name for o in OperationType if o is not OperationType.OEM_OPERATION)
)


class Failure(msgspec.Struct, frozen=True):
    """The failure of one case.

    Attributes:
        case: its name; `nnburst conformance --filter` takes it.
        reason: the expected and the actual result.
        file: a vector file that reproduces it alone; "" if none was written.
    """

    case: str
    reason: str
    file: str = ""


class TripleResult(msgspec.Struct, frozen=True):
    """The cases of one operation on tensors of one type and rank.

    Attributes:
        operation: its name.
        type: operand type of its first tensor.
        rank: of that tensor.
        passed: number of cases.
        failures: the cases that failed; after some the rest is not tried.
        skipped: numbers of cases by the reason why they were not tried.
    """

    operation: str
    type: str
    rank: int
    passed: int
    failures: tuple[Failure, ...] = ()
    skipped: dict[str, int] = {}


class CheckResult(msgspec.Struct, frozen=True):
    """One check of the contract, or one test of a suite.

    Attributes:
        suite: "contract", "graphs", or a suite of `nnburst.testing.suites_for_drivers`.
        name: of the check.
        outcome: "passed", "failed" or "skipped".
        reason: why, unless it passed.
    """

    suite: str
    name: str
    outcome: str
    reason: str = ""


class Latency(msgspec.Struct, frozen=True):
    """How long round trips of one case took over a burst: a finding, no check.

    Attributes:
        case: its name.
        median_us: of some hundred trips, microseconds.
        slowest_us: of them.
    """

    case: str
    median_us: float
    slowest_us: float


class Performance(msgspec.Struct, frozen=True):
    """How fast a driver is, as it reports: ratios to the reference executor; None for infinitely slow.

    Attributes:
        what: an operand type, or another number of the driver's report.
        exec_time: of an execution.
        power_usage: likewise.
    """

    what: str
    exec_time: float | None
    power_usage: float | None

    @classmethod
    def of(cls, what: str, info: PerformanceInfo) -> Performance:
        """As a driver reports it."""
        numbers = (info.exec_time, info.power_usage)
        return cls(what, *(number if number < FLT_MAX else None for number in numbers))


def performances(capabilities: Capabilities) -> tuple[Performance, ...]:
    """All that a driver reports."""
    relaxed = "float32 computed as float16"
    tensor = capabilities.relaxed_float32_to_float16_performance_tensor
    scalar = capabilities.relaxed_float32_to_float16_performance_scalar
    others = {
        f"{relaxed}, tensors": tensor,
        f"{relaxed}, scalars": scalar,
        "IF": capabilities.if_performance,
        "WHILE": capabilities.while_performance,
    }
    types = {OperandType(p.type).name: p.info for p in capabilities.operand_performance}
    return tuple(Performance.of(what, info) for what, info in {**types, **others}.items())


class About(msgspec.Struct, frozen=True):
    """The driver, and how it was tried.

    Attributes:
        driver: as it was named.
        name: as it names itself.
        version: its version string.
        feature_level: of NNAPI.
        type: of device.
        capabilities: its performance numbers.
        unknown_capabilities: why it has none; "" if it has.
        profile: the set of tests.
        nnburst: version of this package.
        date: UTC, ISO 8601.
        machine: processor and kernel.
        seconds: that it took.
    """

    driver: str
    name: str
    version: str
    feature_level: str
    type: str
    capabilities: tuple[Performance, ...]
    unknown_capabilities: str
    profile: str
    nnburst: str
    date: str
    machine: str
    seconds: float


class Report(msgspec.Struct, frozen=True):
    """A whole run.

    Attributes:
        about: the driver, and how it was tried.
        triples: results of the pack.
        checks: contract, random graphs, suites.
        latencies: of some supported cases.
        left_out: OPERATION, or OPERATION:TYPE, that the pack has no cases of, and why.
        required: the requirements of `--require` that were not met, in words.
        max_latency_us: the limit that was given; None for none.
        format: of this file.
    """

    about: About
    triples: tuple[TripleResult, ...]
    checks: tuple[CheckResult, ...]
    latencies: tuple[Latency, ...] = ()
    left_out: dict[str, str] = {}
    required: tuple[str, ...] = ()
    max_latency_us: float | None = None
    format: int = FORMAT

    @property
    def failures(self) -> list[str]:
        """Everything that is wrong, a line each; empty if the driver conforms."""
        wrong = [f"{f.case}: {f.reason}" for t in self.triples for f in t.failures]
        wrong += [f"{c.suite}: {c.name}: {c.reason}" for c in self.checks if c.outcome == FAILED]
        wrong += [f"required: {line}" for line in self.required]
        if self.max_latency_us is not None:
            wrong += [
                f"latency: {late.case}: median {late.median_us:.0f} µs, allowed are {self.max_latency_us:g}"
                for late in self.latencies
                if late.median_us > self.max_latency_us
            ]
        if not self.tried:
            wrong.append("nothing was tried: the driver supports no case")
        return wrong

    @property
    def tried(self) -> int:
        """Cases of the pack that were executed."""
        return sum(t.passed + len(t.failures) for t in self.triples)

    @property
    def covered(self) -> list[str]:
        """Operations of which at least one case was executed."""
        return sorted({t.operation for t in self.triples if t.passed or t.failures})

    def matrix(self) -> dict[str, dict[str, tuple[int, int, int]]]:
        """Numbers of passed, failed and skipped cases by operation and type; covered ones only."""
        found: defaultdict[str, dict[str, tuple[int, int, int]]] = defaultdict(dict)
        covered = set(self.covered)
        for t in self.triples:
            if t.operation in covered:
                passed, failed, skipped = found[t.operation].get(t.type, (0, 0, 0))
                found[t.operation][t.type] = (
                    passed + t.passed,
                    failed + len(t.failures),
                    skipped + sum(t.skipped.values()),
                )
        return dict(sorted(found.items()))

    @property
    def uncovered(self) -> list[str]:
        """Operations that have cases, none of which the driver supports."""
        return sorted({t.operation for t in self.triples}.difference(self.covered))

    def skips(self) -> list[tuple[str, int]]:
        """Why cases of partly supported operations were not tried, the most frequent reason first."""
        covered = set(self.covered)
        return grouped(
            [
                *(
                    (reason, number)
                    for triple in self.triples
                    if triple.operation in covered
                    for reason, number in triple.skipped.items()
                ),
                *((c.reason, 1) for c in self.checks if c.outcome == SKIPPED),
            ]
        )


def grouped(reasons: Iterable[tuple[str, int]]) -> list[tuple[str, int]]:
    """Equal reasons added up, the most frequent first."""
    counts: Counter[str] = Counter()
    for reason, number in reasons:
        counts[reason] += number
    return counts.most_common()


def missing(required: Sequence[str], triples: Sequence[TripleResult]) -> tuple[str, ...]:
    """The operations of `required` ("ADD" or "ADD:TENSOR_FLOAT32") that were not executed, in words."""
    lines = []
    for word in required:
        operation, _, kind = word.partition(":")
        of_it = [t for t in triples if t.operation == operation and kind in ("", t.type)]
        if not any(t.passed or t.failures for t in of_it):
            why = grouped((r, n) for t in of_it for r, n in t.skipped.items())
            lines.append(f"{word} was not executed: {why[0][0] if why else 'no such case'}")
    return tuple(lines)
