"""`nnburst conformance`: try a driver or an executor, with vector files or without."""

from __future__ import annotations

import argparse
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path

from nnburst.cli import conformance_driver
from nnburst.cli.options import Subparsers, at_least_one, pattern
from nnburst.cli.output import add_json_option, progress, table, text_for_people, write_json
from nnburst.client.connect import connect
from nnburst.testing.conformance.campaign import Result, Selection, find_files, run_file, run_files
from nnburst.testing.conformance.driver_runners import BurstRunner, ExecuteRunner
from nnburst.testing.conformance.suites import SUITES
from nnburst.testing.driver_under_test import DriverUnderTest
from nnburst.testing.partitioning import SUITE as PARTITIONING
from nnburst.testing.partitioning import run_partitioning

_OUTCOMES = ("passed", "failed", "skipped")
#: Tests of which each is timed in the report.
_TIMED_AT_MOST = 20


def prepare_parser(subparsers: Subparsers) -> None:
    """Add the command."""
    parser = subparsers.add_parser(
        "conformance", help="test any driver or executor", description=__doc__
    )
    parser.add_argument(
        "directories",
        nargs="*",
        type=Path,
        metavar="DIR",
        help="conformance vectors (*.json.gz) to run, for suite partitioning the file of expected plans;"
        " without any, what this package brings is run",
    )
    parser.add_argument(
        "--executor",
        default="reference",
        metavar="NAME",
        help="executor to try unless --device is given (default: reference)",
    )
    parser.add_argument(
        "--device",
        metavar="NAME",
        help="what to try: an executor (name or module:attribute), for which a driver is started, or the"
        " name or the path of a driver that runs (default: reference)",
    )
    parser.add_argument(
        "--via",
        choices=("local", "execute", "burst", "plans", "plans-burst"),
        help="how vectors reach it (default: burst with --device, else local)",
    )
    parser.add_argument(
        "--suite",
        default="all",
        choices=(*SUITES, PARTITIONING, "all"),
        help="vectors: only this kind (default: all)",
    )
    parser.add_argument(
        "--filter", type=pattern, default="", metavar="REGEX", help="only tests whose names match"
    )
    parser.add_argument(
        "--operation", default="", metavar="NAME", help="only tests with this operation"
    )
    parser.add_argument(
        "--exact", action="store_true", help="integers must be equal, without a tolerance"
    )
    parser.add_argument(
        "--jobs", type=at_least_one, default=1, metavar="N", help="processes at once (default: 1)"
    )
    parser.add_argument(
        "--dump",
        type=Path,
        default=Path("conformance-failures"),
        metavar="DIR",
        help="where to write failing tests as vector files (default: %(default)s)",
    )
    conformance_driver.add_options(parser)
    add_json_option(parser)


def run(args: argparse.Namespace) -> int:
    """Run the tests; 0 only if nothing failed and something ran."""
    if not args.directories:
        return conformance_driver.run(args)
    conformance_driver.refuse_options(args)
    started = time.monotonic()
    results = _plans(args) if args.suite == PARTITIONING else _vectors(args)
    with text_for_people(args.json):
        _report(results, time.monotonic() - started)
    write_json(args.json, _summary(results))
    return 0 if results and not any(r.outcome == "failed" for r in results) else 1


def _plans(args: argparse.Namespace) -> list[Result]:
    """Plans are made in this process, whatever the executor."""
    return [
        r for path in args.directories for r in run_partitioning(path, args.filter, args.operation)
    ]


def _vectors(args: argparse.Namespace) -> list[Result]:
    selection = Selection(
        executor=args.device or args.executor,
        via=args.via or ("burst" if args.device else "local"),
        suites=SUITES if args.suite == "all" else (args.suite,),
        filter=args.filter,
        operation=args.operation,
        exact=args.exact,
        dump=args.dump,
    )
    files = find_files(args.directories)
    results: list[Result] = []
    with text_for_people(args.json), progress("conformance", len(files)) as advance:
        for found in _run(files, selection, args):
            results.extend(found)
            advance(1)
    return results


def _run(
    files: Sequence[Path], selection: Selection, args: argparse.Namespace
) -> Iterator[list[Result]]:
    """The results of each file, through one driver if a device is named."""
    if args.device is None or selection.via == "local":
        yield from run_files(files, selection, args.jobs)
        return
    kind = {"execute": ExecuteRunner, "burst": BurstRunner}[selection.via]
    with DriverUnderTest.start(args.device, [Path.cwd()]) as driver:
        runner = kind.over(connect(driver.address))
        try:
            for path in files:
                yield run_file(path, selection, runner)
        finally:
            runner.close()


def _report(results: Sequence[Result], seconds: float) -> None:
    _counts("by operation", "operation", results, lambda r: r.operations)
    _counts("by type of the first output", "type", results, lambda r: (r.type,))
    _counts("by suite", "suite", results, lambda r: (r.suite,))
    _timing(results)
    for result in results:
        if result.outcome == "failed":
            print(f"FAILED {result.name} [{result.suite}] {result.reason}\n       {result.dump}")
    skipped = Counter(r.reason for r in results if r.outcome == "skipped")
    for reason, count in skipped.items():
        print(f"skipped {count}: {reason}")
    totals = ", ".join(f"{_count(results, o)} {o}" for o in _OUTCOMES)
    print(f"{totals} in {seconds:.1f} s")


def _counts(
    title: str,
    heading: str,
    results: Iterable[Result],
    keys: Callable[[Result], Sequence[str]],
) -> None:
    counts: defaultdict[str, Counter[str]] = defaultdict(Counter)
    for result in results:
        for key in keys(result):
            counts[key][result.outcome] += 1
    rows = [(key, *(counts[key][o] for o in _OUTCOMES)) for key in sorted(counts)]
    table(title, (heading, *_OUTCOMES), rows)


def _count(results: Iterable[Result], outcome: str) -> int:
    return sum(r.outcome == outcome for r in results)


def _timing(results: Sequence[Result]) -> None:
    """Driver time and total time of a few tests; thousands of rows would be unreadable."""
    timed = [r for r in results if r.driver_us is not None and r.total_us is not None]
    if 0 < len(timed) <= _TIMED_AT_MOST:
        table(
            "time of an execution",
            ("test", "in the driver µs", "in all µs"),
            [(r.name, r.driver_us, f"{r.total_us:.0f}") for r in timed],
        )


def _summary(results: Sequence[Result]) -> dict[str, object]:
    return {
        **{outcome: _count(results, outcome) for outcome in _OUTCOMES},
        "tests": [
            {"name": r.name, "suite": r.suite, "outcome": r.outcome, "reason": r.reason}
            for r in results
        ],
    }
