"""`nnburst conformance`: tests a driver or an executor, with or without files of vectors."""

from __future__ import annotations

import argparse
import signal
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Final

import msgspec

from nnburst.cli.options import Subparsers, above_zero, at_least_one, pattern, refuse_options
from nnburst.cli.output import (
    add_json_option,
    printable,
    progress,
    table,
    text_for_people,
    writable_folder,
    write_json,
)
from nnburst.client.connect import connect
from nnburst.hal.enums import OperationType
from nnburst.hal.errors import InvalidArgument
from nnburst.testing.assessment import PROFILES, Advance, Plan, assess
from nnburst.testing.conformance.campaign import (
    SUITES,
    CaseResult,
    Selection,
    find_files,
    run_file,
    run_files,
)
from nnburst.testing.conformance.runners import BurstRunner, ExecuteRunner
from nnburst.testing.conformance.vectors import SHIPPED
from nnburst.testing.driver_under_test import DriverUnderTest
from nnburst.testing.partitioning import SUITE as PARTITIONING
from nnburst.testing.partitioning import run_partitioning
from nnburst.testing.report import SKIPPED, Report, coverage, write

_SHOWN: Final = 40
_PROFILE: Final = "basic"
_ALL: Final = "all"


def add_driver_options(parser: argparse.ArgumentParser) -> None:
    """Add the options that only a run without vector files takes."""
    group = parser.add_argument_group("without vector files")
    group.add_argument(
        "--profile",
        default=_PROFILE,
        choices=PROFILES,
        help="basic: a few cases and the contract (default); generated: all cases and random graphs; faults:"
        " the suites that send what is wrong, kill and stop; full: everything, which takes some minutes",
    )
    group.add_argument(
        "--option",
        action="append",
        default=[],
        metavar="KEY=VALUE",
        help="what the executor is opened with (docs/vendor_plugins.md); may be repeated",
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
        "--report",
        type=writable_folder,
        metavar="DIR",
        help="write report.json and report.html there",
    )


def refuse_driver_options(args: argparse.Namespace) -> None:
    """Refuse options that a run with vector files does not take.

    Raises:
        InvalidArgument: an option was given that is valid only without vector files.
    """
    given = {
        "--profile": args.profile != _PROFILE,
        "--option": bool(args.option),
        "--require": bool(args.require),
        "--max-latency": args.max_latency is not None,
        "--report": args.report is not None,
    }
    refuse_options(given, "given with vector files, expected only without")


def refuse_vector_options(args: argparse.Namespace) -> None:
    """Refuse options that a run without vector files does not take.

    Raises:
        InvalidArgument: an option was given that is valid only with vector files.
    """
    given = {
        "--via": args.via is not None,
        "--suite": args.suite != _ALL,
        "--exact": args.exact,
        "--jobs": args.jobs > 1,
    }
    refuse_options(given, "given without vector files, expected only with DIR or --shipped")


def try_driver(args: argparse.Namespace) -> int:
    """Test a driver; 0 only if it conforms. After a signal, report the tests that were run until then."""
    plan = Plan(
        profile=args.profile,
        filter=args.filter,
        operation=args.operation,
        required=tuple(word for word in args.require.split(",") if word),
        max_latency_us=args.max_latency,
        dump=args.dump,
        paths=(Path.cwd(),),
        options=tuple(args.option),
    )
    with (
        _signals_interrupt() as signals,
        DriverUnderTest.start(args.device or args.executor, [Path.cwd()], args.option) as driver,
    ):
        with text_for_people(args.json), _advancing(signals) as advance:
            report = assess(driver, plan, advance)
        _hand_over(report, args)  # before the driver ends: a second signal may cut that short
    if report.unfinished:
        return _stopped(signals)
    return 1 if report.failures else 0


def _hand_over(report: Report, args: argparse.Namespace) -> None:
    if args.report is not None:
        write(report, args.report)
    if args.json is not None:
        write_json(args.json, msgspec.to_builtins(report))
    with text_for_people(args.json):
        _print_report(report, args.report)


@contextmanager
def _signals_interrupt() -> Iterator[list[int]]:
    """Let SIGTERM interrupt as Ctrl-C does; the context's value lists the signals that came."""
    came: list[int] = []

    def interrupt(number: int, _frame: object) -> None:
        came.append(number)
        raise KeyboardInterrupt

    before = {
        number: signal.signal(number, interrupt) for number in (signal.SIGINT, signal.SIGTERM)
    }
    try:
        yield came
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _stopped(signals: Sequence[int]) -> int:
    """The exit status after SIGTERM; after Ctrl-C alone, raise KeyboardInterrupt."""
    if signal.SIGTERM in signals:
        return 128 + signal.SIGTERM
    raise KeyboardInterrupt


@contextmanager
def _advancing(signals: Sequence[int]) -> Iterator[Advance]:
    """Show each step's progress under its own name; raise KeyboardInterrupt if a signal came."""
    with ExitStack() as stack:
        shown: tuple[str, int] = "", 0
        advance: Callable[[int], None] = _nothing

        def show(step: str, done: int, of: int) -> None:
            nonlocal shown, advance
            if signals:  # Python ignored the KeyboardInterrupt if it was raised in a finaliser
                raise KeyboardInterrupt
            if step != shown[0]:
                stack.close()
                advance = stack.enter_context(progress(f"conformance: {step}", of))
                shown = step, 0
            advance(done - shown[1])
            shown = step, done

        yield show


def _nothing(_units: int) -> None:
    pass


def _print_report(report: Report, folder: Path | None) -> None:
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
    if report.unfinished:
        verdict = f"was {report.unfinished}"
    print(
        f"{report.about.driver} {verdict}: {passed} of {report.tried} cases and {good} of {len(checks)}"
        f" checks passed, coverage {coverage(report)}, {report.about.seconds:.0f} s"
    )
    if folder is not None:
        print(f"report: {folder / 'report.html'}")


_OUTCOMES = ("passed", "failed", "skipped")
#: The times of single tests are printed for at most this many.
_TIMED_AT_MOST = 20


def prepare_parser(subparsers: Subparsers) -> None:
    """Add the command."""
    parser = subparsers.add_parser(
        "conformance",
        help="test any driver or executor",
        description="`nnburst conformance`: try a driver or an executor, with vector files or "
        "without.",
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
        "--shipped",
        action="store_true",
        help="run the vectors that this package ships, beside those of DIR: small cases of each operation,"
        " with results of its naive evaluator",
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
        help="what to try: an executor (name, module:attribute, or the path of a shared library), for which a"
        " driver is started, or the name or the path of a driver that runs (default: reference)",
    )
    parser.add_argument(
        "--via",
        choices=("local", "execute", "burst", "plans", "plans-burst"),
        help="how vectors reach it (default: burst with --device, which takes no plans, else local)",
    )
    parser.add_argument(
        "--suite",
        default=_ALL,
        choices=(*SUITES, PARTITIONING, _ALL),
        metavar="SUITE",
        help=f"vectors: only this kind, of {', '.join((*SUITES, PARTITIONING))} (default: all)",
    )
    parser.add_argument(
        "--filter", type=pattern, default="", metavar="REGEX", help="only tests whose names match"
    )
    parser.add_argument(
        "--operation",
        type=_operation,
        default="",
        metavar="NAME",
        help="only tests with this operation: ADD",
    )
    parser.add_argument(
        "--exact", action="store_true", help="vectors: integers must be equal, without a tolerance"
    )
    parser.add_argument(
        "--jobs",
        type=at_least_one,
        default=1,
        metavar="N",
        help="processes at once that run vectors, except through a driver (default: 1)",
    )
    parser.add_argument(
        "--dump",
        type=writable_folder,
        default=Path("conformance-failures"),
        metavar="DIR",
        help="where to write failing tests as vector files (default: %(default)s)",
    )
    add_driver_options(parser)
    add_json_option(parser)


def _operation(text: str) -> str:
    """Name of an operation; empty for all."""
    if text and text not in OperationType.__members__:
        raise argparse.ArgumentTypeError(
            f"{text!r}, expected the name of an operation, such as {OperationType.ADD.name}"
        )
    return text


def run(args: argparse.Namespace) -> int:
    """Run the tests; 0 only if nothing failed and something passed."""
    if args.shipped:
        args.directories.append(SHIPPED / "vectors")
    if not args.directories:
        refuse_vector_options(args)
        return try_driver(args)
    refuse_driver_options(args)
    started = time.monotonic()
    results: list[CaseResult] = []
    with _signals_interrupt() as signals, suppress(KeyboardInterrupt):
        for found in _plans(args) if args.suite == PARTITIONING else _vectors(args):
            results += found
            if signals:  # as in `_advancing`
                break
    is_unfinished = bool(signals)
    with text_for_people(args.json):
        _report(results, time.monotonic() - started)
        if is_unfinished:
            print("unfinished: it was stopped")
        elif not results:
            print("nothing was run: --filter, --operation and --suite leave no test")
    write_json(args.json, {**_summary(results), "unfinished": is_unfinished})
    if is_unfinished:
        return _stopped(signals)
    return 0 if _count(results, "passed") and not _count(results, "failed") else 1


def _plans(args: argparse.Namespace) -> Iterator[list[CaseResult]]:
    """The results of the partitioning tests, which plan in this process, whatever the executor."""
    for path in args.directories:
        yield run_partitioning(path, args.filter, args.operation)


def _vectors(args: argparse.Namespace) -> Iterator[list[CaseResult]]:
    selection = Selection(
        executor=args.device or args.executor,
        via=args.via or ("burst" if args.device else "local"),
        suites=SUITES if args.suite == _ALL else (args.suite,),
        filter=args.filter,
        operation=args.operation,
        exact=args.exact,
        dump=args.dump,
    )
    files = find_files(args.directories)
    with text_for_people(args.json), progress("conformance", len(files)) as advance:
        for found in _run(files, selection, args):
            yield found
            advance(1)


def _run(
    files: Sequence[Path], selection: Selection, args: argparse.Namespace
) -> Iterator[list[CaseResult]]:
    """The results of each file, through one driver if a device is named."""
    if args.device is None or selection.via == "local":
        yield from run_files(files, selection, args.jobs)
        return
    kinds = {"execute": ExecuteRunner, "burst": BurstRunner}
    if selection.via not in kinds:
        raise InvalidArgument(
            f"--via {selection.via}: given with --device, expected execute or burst"
        )
    kind = kinds[selection.via]
    with DriverUnderTest.start(args.device, [Path.cwd()]) as driver:
        runner = kind.over(connect(driver.address))
        try:
            for path in files:
                yield run_file(path, selection, runner)
        finally:
            runner.close()


def _report(results: Sequence[CaseResult], seconds: float) -> None:
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
    results: Iterable[CaseResult],
    keys: Callable[[CaseResult], Sequence[str]],
) -> None:
    counts: defaultdict[str, Counter[str]] = defaultdict(Counter)
    for result in results:
        for key in keys(result):
            counts[key][result.outcome] += 1
    rows = [(key, *(counts[key][o] for o in _OUTCOMES)) for key in sorted(counts)]
    table(title, (heading, *_OUTCOMES), rows)


def _count(results: Iterable[CaseResult], outcome: str) -> int:
    return sum(r.outcome == outcome for r in results)


def _timing(results: Sequence[CaseResult]) -> None:
    """Print the driver time and total time of each test, unless there are too many to read."""
    timed = [r for r in results if r.driver_us is not None and r.total_us is not None]
    if 0 < len(timed) <= _TIMED_AT_MOST:
        table(
            "time of an execution",
            ("test", "in the driver µs", "in all µs"),
            [(r.name, r.driver_us, f"{r.total_us:.0f}") for r in timed],
        )


def _summary(results: Sequence[CaseResult]) -> dict[str, object]:
    return {
        **{outcome: _count(results, outcome) for outcome in _OUTCOMES},
        "tests": [
            {"name": r.name, "suite": r.suite, "outcome": r.outcome, "reason": r.reason}
            for r in results
        ],
    }
