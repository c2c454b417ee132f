"""`nnburst conformance` without vector files: the pack, the contract and the suites, as one report."""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import msgspec

from nnburst.cli.options import above_zero
from nnburst.cli.output import printable, progress, text_for_people, write_json
from nnburst.hal.errors import InvalidArgument
from nnburst.testing.assessment import PROFILES, Advance, Plan, assess
from nnburst.testing.driver_under_test import DriverUnderTest
from nnburst.testing.report.files import write
from nnburst.testing.report.page import coverage
from nnburst.testing.report.results import SKIPPED, Report

_SHOWN: Final = 40
_PROFILE: Final = "full"


def add_options(parser: argparse.ArgumentParser) -> None:
    """Options that only a run without vector files takes."""
    group = parser.add_argument_group("without vector files")
    group.add_argument(
        "--profile",
        default=_PROFILE,
        choices=PROFILES,
        help="basic: a few cases and the contract; generated: all cases and random graphs; faults: the"
        " suites that send what is wrong, kill and stop; full: everything (default)",
    )
    group.add_argument(
        "--require",
        default="",
        metavar="WORDS",
        help="operations, or operations with types, that must be executed: ADD,MUL:TENSOR_FLOAT32",
    )
    group.add_argument(
        "--max-latency",
        type=above_zero,
        metavar="US",
        help="fail if the median of a round trip is longer: microseconds (default: only printed)",
    )
    group.add_argument(
        "--report", type=Path, metavar="DIR", help="write report.json and report.html there"
    )


def refuse_options(args: argparse.Namespace) -> None:
    """Refuse what a run of vector files does not do, before it runs.

    Raises:
        InvalidArgument: an option was given that only counts without vector files.
    """
    given = {
        "--profile": args.profile != _PROFILE,
        "--require": bool(args.require),
        "--max-latency": args.max_latency is not None,
        "--report": args.report is not None,
    }
    for option, is_given in given.items():
        if is_given:
            raise InvalidArgument(f"{option}: given with vector files, expected only without")


def run(args: argparse.Namespace) -> int:
    """Try a driver; 0 only if it conforms."""
    plan = Plan(
        profile=args.profile,
        filter=args.filter,
        operation=args.operation,
        required=tuple(word for word in args.require.split(",") if word),
        max_latency_us=args.max_latency,
        dump=args.dump,
        paths=(Path.cwd(),),
    )
    with (
        text_for_people(args.json),
        DriverUnderTest.start(args.device or args.executor, [Path.cwd()]) as driver,
        _advancing() as advance,
    ):
        report = assess(driver, plan, advance)
    if args.report is not None:
        write(report, args.report)
    if args.json is not None:
        write_json(args.json, msgspec.to_builtins(report))
    with text_for_people(args.json):
        _print(report, args.report)
    return 1 if report.failures else 0


@contextmanager
def _advancing() -> Iterator[Advance]:
    """One line a step on a pipe, a bar on a terminal."""
    with progress("conformance", 1000) as advance:
        shown: dict[str, int] = {}

        def show(step: str, done: int, of: int) -> None:
            share = 250 * done // max(of, 1)
            advance(share - shown.get(step, 0))
            shown[step] = share

        yield show


def _print(report: Report, folder: Path | None) -> None:
    for why, times in report.skips()[:_SHOWN]:
        print(f"not tried {times}: {printable(why)}")
    if report.uncovered:
        print(f"not supported: {len(report.uncovered)} of the operations that have cases")
    for late in report.latencies:
        print(f"round trip {late.case}: median {late.median_us:.0f} µs")
    for line in report.failures:
        print(f"FAILED {printable(line)}")
    passed = sum(t.passed for t in report.triples)
    checks = [c for c in report.checks if c.outcome != SKIPPED]
    good = sum(c.outcome == "passed" for c in checks)
    verdict = "does not conform" if report.failures else "conforms"
    print(
        f"{report.about.driver} {verdict}: {passed} of {report.tried} cases and {good} of {len(checks)}"
        f" checks passed, coverage {coverage(report)}, {report.about.seconds:.0f} s"
    )
    if folder is not None:
        print(f"report: {folder / 'report.html'}")
