"""Collects the results of a conformance run, and writes them as JSON and as an HTML page."""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Final

import msgspec

from nnburst.hal.enums import OperandType, OperationType
from nnburst.hal.types import FLT_MAX, Capabilities, PerformanceInfo
from nnburst.testing.html import Cell, document, listed, paragraph, table

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
        case: the case's name, for `nnburst conformance --filter`.
        reason: the expected and the actual result.
        file: a vector file that reproduces the case alone; "" if no file was written.
    """

    case: str
    reason: str
    file: str = ""


class TripleResult(msgspec.Struct, frozen=True):
    """The cases of one operation on tensors of one type and rank.

    Attributes:
        operation: name of the operation.
        type: operand type of its first tensor.
        rank: of that tensor.
        passed: number of cases.
        failures: the cases that failed; after several failures the rest is not tried.
        skipped: number of cases that were not tried, by reason.
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
        name: name of the check.
        outcome: "passed", "failed" or "skipped".
        reason: the reason unless the check passed.
    """

    suite: str
    name: str
    outcome: str
    reason: str = ""


class Latency(msgspec.Struct, frozen=True):
    """The durations of round trips of one case over a burst, which are reported and not checked.

    Attributes:
        case: name of the case.
        median_us: median of some hundred trips, microseconds.
        slowest_us: the slowest of them, microseconds.
    """

    case: str
    median_us: float
    slowest_us: float


class Performance(msgspec.Struct, frozen=True):
    """The speed of a driver as it reports it: ratios to the reference executor; None for infinitely slow.

    Attributes:
        what: an operand type, or another number of the driver's report.
        exec_time: ratio of the time of an execution.
        power_usage: ratio of the power of an execution.
    """

    what: str
    exec_time: float | None
    power_usage: float | None

    @classmethod
    def of(cls, what: str, info: PerformanceInfo) -> Performance:
        """Make it from a driver's report."""
        numbers = (info.exec_time, info.power_usage)
        return cls(what, *(number if number < FLT_MAX else None for number in numbers))


def performances(capabilities: Capabilities) -> tuple[Performance, ...]:
    """All performance figures that a driver reports."""
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
    """The driver under test, and the conditions of the run.

    Attributes:
        driver: the driver as the user named it.
        name: the name that the driver reports.
        version: its version string.
        feature_level: of NNAPI.
        type: type of the device.
        capabilities: its performance numbers.
        unknown_capabilities: the reason why there are no such numbers; "" if there are.
        profile: the set of tests.
        nnburst: version of this package.
        date: UTC, ISO 8601.
        machine: processor and kernel.
        seconds: duration of the run.
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
    """The report of a whole run.

    Attributes:
        about: the driver, and the conditions of the run.
        triples: results of the pack.
        checks: contract, random graphs, suites.
        latencies: durations of some supported cases.
        left_out: the reason why the pack has no cases of an OPERATION or OPERATION:TYPE, by this name.
        required: the requirements of `--require` that were not met, in words.
        max_latency_us: the limit on median latencies; None for no limit.
        unfinished: where the run was stopped; "" if it ran to its end.
        format: version of this file's format.
    """

    about: About
    triples: tuple[TripleResult, ...]
    checks: tuple[CheckResult, ...]
    latencies: tuple[Latency, ...] = ()
    left_out: dict[str, str] = {}
    required: tuple[str, ...] = ()
    max_latency_us: float | None = None
    unfinished: str = ""
    format: int = FORMAT

    @property
    def failures(self) -> list[str]:
        """All violations, one line each; empty if the driver conforms."""
        wrong = [f"{f.case}: {f.reason}" for t in self.triples for f in t.failures]
        wrong += [f"{c.suite}: {c.name}: {c.reason}" for c in self.checks if c.outcome == FAILED]
        wrong += [f"required: {line}" for line in self.required]
        if self.max_latency_us is not None:
            wrong += [
                f"latency: {late.case}: median {late.median_us:.0f} µs, allowed are {self.max_latency_us:g}"
                for late in self.latencies
                if late.median_us > self.max_latency_us
            ]
        if self.unfinished:
            wrong.append(f"unfinished: {self.unfinished}")
        elif not self.tried and not self._passed_without_cases:
            why = "the driver supports no case" if self.triples else "no case was chosen"
            wrong.append(f"nothing was tried: {why}")
        return wrong

    @property
    def _passed_without_cases(self) -> bool:
        """Whether the profile has no cases, and a check passed."""
        return self.about.profile == "faults" and any(c.outcome == PASSED for c in self.checks)

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
        """Reasons why cases of partly supported operations were not tried, the most frequent first."""
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
    """Add up equal reasons; the most frequent comes first."""
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


#: Short names of the types of the pack's cases.
SHORT: Final = {
    "TENSOR_FLOAT32": "float32",
    "TENSOR_FLOAT16": "float16",
    "TENSOR_INT32": "int32",
    "TENSOR_BOOL8": "bool8",
    "TENSOR_QUANT8_ASYMM": "quant8",
    "TENSOR_QUANT8_ASYMM_SIGNED": "quant8 signed",
    "TENSOR_QUANT8_SYMM": "quant8 symmetric",
    "TENSOR_QUANT8_SYMM_PER_CHANNEL": "quant8 by channel",
    "TENSOR_QUANT16_ASYMM": "quant16",
    "TENSOR_QUANT16_SYMM": "quant16 symmetric",
}


def page(report: Report) -> str:
    """Render a report as an HTML page."""
    return document(
        f"nnburst conformance: {report.about.driver}",
        (
            _verdict(report),
            _failures(report),
            _matrix(report),
            _checks(report),
            _latencies(report),
            _skips(report),
            _left_out(report),
            _about(report.about),
            _capabilities(report.about),
        ),
    )


def coverage(report: Report) -> str:
    """The share of NNAPI's operations that was executed, in words."""
    return f"{len(report.covered)} of {len(OPERATIONS)} operations"


def _verdict(report: Report) -> str:
    wrong = len(report.failures)
    passed = sum(t.passed for t in report.triples)
    checks = sum(c.outcome == PASSED for c in report.checks)
    words = f"does not conform: {wrong} findings" if wrong else "conforms"
    if report.unfinished:
        words = f"was {report.unfinished}"
    return paragraph(
        f"{report.about.driver} {words}. {passed} cases and {checks} checks passed; "
        f"coverage: {coverage(report)}.",
        "verdict bad" if wrong else "verdict good",
    )


def _failures(report: Report) -> str:
    return f"<h2>Findings</h2>\n{listed(report.failures, 'code')}" if report.failures else ""


def _matrix(report: Report) -> str:
    matrix = report.matrix()
    if not matrix:
        return ""
    kinds = [kind for kind in SHORT if any(kind in row for row in matrix.values())]
    rows: list[Sequence[str | Cell]] = []
    for operation, of_it in matrix.items():
        tried = (t for t in report.triples if t.operation == operation and (t.passed or t.failures))
        ranks = ", ".join(map(str, sorted({t.rank for t in tried})))
        rows.append(
            [operation, Cell(ranks, "words"), *(_counts(of_it.get(kind)) for kind in kinds)]
        )
    note = (
        "Numbers of cases: passed, and failed or skipped if there are any. Each has three sets of inputs "
        "and is executed four times."
    )
    shown = table(["operation", "ranks", *(SHORT[kind] for kind in kinds)], rows)
    return f"<h2>Operations by type</h2>\n{paragraph(note, 'note')}\n{shown}"


def _counts(counts: tuple[int, int, int] | None) -> Cell:
    if counts is None:
        return Cell("", "none")
    passed, failed, skipped = counts
    words = [f"{passed}"] if passed or not skipped else []
    words += [f"{failed} failed"] if failed else []
    words += [f"{skipped} skipped"] if skipped else []
    return Cell(", ".join(words), FAILED if failed else PASSED if passed else SKIPPED)


def _checks(report: Report) -> str:
    if not report.checks:
        return ""
    found: dict[tuple[str, str], Counter[str]] = {}
    for check in report.checks:
        name = re.split(r"[\[(]", check.name)[0].strip().removeprefix("test_").replace("_", " ")
        found.setdefault((check.suite, name), Counter())[check.outcome] += 1
    rows: list[Sequence[str | Cell]] = []
    for (suite, name), counts in found.items():
        kind = next((kind for kind in (FAILED, PASSED, SKIPPED) if counts[kind]), SKIPPED)
        words = ", ".join(f"{n} {outcome}" for outcome, n in sorted(counts.items()))
        shown = suite.removeprefix("test_").replace("_", " ")
        rows.append([shown, name, Cell(words, f"words word {kind}")])
    return f"<h2>Contract, graphs and suites</h2>\n{table(('suite', 'check', ''), rows)}"


def _latencies(report: Report) -> str:
    if not report.latencies:
        return ""
    rows = [
        [each.case, f"{each.median_us:.0f}", f"{each.slowest_us:.0f}"] for each in report.latencies
    ]
    limit = report.max_latency_us
    rule = "no limit was asked for" if limit is None else f"a median of {limit:g} µs is allowed"
    note = paragraph(f"A finding of this machine, now; {rule}.", "note")
    shown = table(("case", "median µs", "slowest µs"), rows)
    return f"<h2>Round trips over a burst</h2>\n{note}\n{shown}"


def _skips(report: Report) -> str:
    rows = [[str(times), why] for why, times in report.skips()]
    if report.uncovered:
        names = ", ".join(report.uncovered)
        why = f"operations of which the driver supports no case: {names}"
        rows.append([str(len(report.uncovered)), why])
    return f"<h2>Not tried</h2>\n{table(('times', 'why'), rows)}" if rows else ""


def _left_out(report: Report) -> str:
    if not report.left_out:
        return ""
    lines = [f"{name}: {why}" for name, why in report.left_out.items()]
    return f"<h2>Operations without cases</h2>\n{listed(lines)}"


def _about(about: About) -> str:
    rows = [
        ["driver", f"{about.driver} ({about.name})"],
        ["version", about.version],
        ["feature level", about.feature_level],
        ["type", about.type],
        ["profile", about.profile],
        ["nnburst", about.nnburst],
        ["date", about.date],
        ["machine", about.machine],
        ["duration", f"{about.seconds:.0f} s"],
    ]
    shown = table((), [[name, Cell(value, "words")] for name, value in rows])
    return f"<h2>About this run</h2>\n{shown}"


def _capabilities(about: About) -> str:
    """The driver's own figures of its speed: types with the same numbers in one row."""
    title = "<h2>Capabilities</h2>\n"
    if about.unknown_capabilities:
        return title + paragraph(f"Unknown: {about.unknown_capabilities}")
    alike: dict[tuple[float | None, float | None], list[str]] = {}
    for each in about.capabilities:
        alike.setdefault((each.exec_time, each.power_usage), []).append(each.what)
    rows = [
        [Cell(", ".join(names), "words"), *(Cell(_ratio(number)) for number in numbers)]
        for numbers, names in alike.items()
    ]
    note = paragraph("As the driver reports them: ratios to the reference executor.", "note")
    return f"{title}{note}\n{table(('operands', 'time', 'power'), rows)}"


def _ratio(number: float | None) -> str:
    return "unknown" if number is None else f"{number:.3g}"


def write(report: Report, folder: Path) -> None:
    """Write a report as report.json and report.html.

    Raises:
        OSError: the folder cannot be made or written.
    """
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "report.json").write_bytes(msgspec.json.format(msgspec.json.encode(report)))
    (folder / "report.html").write_text(page(report), encoding="utf-8")
