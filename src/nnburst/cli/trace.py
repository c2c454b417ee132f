"""`nnburst trace`: records the work of processes, reports where the time went, and shows it."""

from __future__ import annotations

import argparse
import csv
import io
import os
import signal
import statistics
import subprocess
import sys
import webbrowser
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Final

from nnburst.cli.options import Subparsers, refuse_options
from nnburst.cli.output import (
    add_json_option,
    printable,
    table,
    text_for_people,
    writable_file,
    write_json,
)
from nnburst.hal.environment import TRACE, TRACE_MARKER
from nnburst.hal.errors import InvalidArgument
from nnburst.tracing.collector import Collector
from nnburst.tracing.files import SUFFIXES, read, write
from nnburst.tracing.report import SUBPHASES, Table, Viewer, report
from nnburst.tracing.slices import Layer, Phase
from nnburst.tracing.timeline import Trace, flows

_P = Phase
_NAMES: Final = {
    Layer.APPLICATION: "Application",
    Layer.RUNTIME: "Runtime",
    Layer.IPC: "IPC",
    Layer.DRIVER: "Driver",
    Layer.CPU: "CPU",
    Layer.UTILITY: "Utility",
    Layer.OTHER: "Other",
}
_COLUMNS: Final = (
    "Initialization", "Preparation", "Compilation", "I/O", "Compute", "Results", "Execution",
    "Termination", "Total",
)  # fmt: skip


def run_report(words: Sequence[str]) -> int:
    """Print the tables of a file."""
    parser = argparse.ArgumentParser(
        prog="nnburst trace report",
        description="Own times by layer and phase, each moment counted once. Reads what `nnburst trace` and"
        " `nnburst demo` write (.pftrace, .json, .json.gz), and the original's ftrace text.",
    )
    parser.add_argument("file", type=Path)
    parser.add_argument("--total", action="store_true", help="times with all that lies inside")
    parser.add_argument(
        "--per-execution", action="store_true", help="one execution's mean, and shares of it"
    )
    parser.add_argument("--csv", action="store_true", help="the times by layer as CSV")
    add_json_option(parser)
    args = parser.parse_args(words)
    if args.csv:
        given = {"--per-execution": args.per_execution}
        refuse_options(given, "given with --csv, expected only without")
    trace = read(args.file)
    tables = report(trace)
    with text_for_people(args.json):
        if args.csv:
            print(_as_csv(tables, total=args.total), end="")
        else:
            for each in tables:
                _print(each, total=args.total, per_execution=args.per_execution)
        for problem in trace.problems:
            print(f"note: {printable(problem)}", file=sys.stderr if args.csv else None)
    write_json(args.json, {"version": 1, "tables": [_as_data(each) for each in tables]})
    return 0


def _print(found: Table, *, total: bool, per_execution: bool) -> None:
    title = found.name or "outside of cases"
    kind = "with all that lies inside" if total else "own times"
    table(f"{title}: milliseconds, {kind}", ("layer", *_COLUMNS), _rows(found, total=total))
    if per_execution and found.runs:
        _print_runs(found)
    names = sorted({name for name, _ in found.processes})
    if len(names) > 1:
        layers = found.layers
        rows = [[n, *(_ms(found.processes.get((n, at), 0)) for at in layers)] for n in names]
        table("by process: milliseconds", ("process", *(_NAMES[at] for at in layers)), rows)
    if found.bursts:
        _print_bursts(found)


def _print_bursts(found: Table) -> None:
    rows = []
    for number, (_, trips) in enumerate(sorted(found.bursts.items())):
        joined = [trip for trip in trips if trip[1]]
        client, driver = ([trip[side] for trip in joined or trips] for side in (0, 1))
        median = _us(statistics.median(driver)) if joined else ""
        rows.append((number + 1, len(trips), len(joined), _us(statistics.median(client)), median))
    heads = ("burst", "executions", "joined", "round trip, median µs", "in the driver, median µs")
    table("by burst", heads, rows)


def _print_runs(found: Table) -> None:
    layers = [at for at in _NAMES if any(run.get(at) for run in found.runs)]
    whole = [sum(run.values()) for run in found.runs]
    rows = []
    for at in layers:
        times = [run.get(at, 0) for run in found.runs]
        share = 100 * sum(times) / max(sum(whole), 1)
        rows.append(
            (
                _NAMES[at],
                _us(statistics.mean(times)),
                _us(statistics.median(times)),
                f"{share:.1f}%",
            )
        )
    rows.append(("Total", _us(statistics.mean(whole)), _us(statistics.median(whole)), "100%"))
    table(f"{len(whole)} executions: own times", ("layer", "mean µs", "median µs", "share"), rows)


def _values(take: Callable[[Phase], int]) -> list[int]:
    execution = sum(take(phase) for phase in (_P.EXECUTION, *SUBPHASES))
    parts = [
        take(_P.INITIALIZATION),
        take(_P.PREPARATION),
        take(_P.COMPILATION),
        take(_P.INPUTS_AND_OUTPUTS),
        execution - take(_P.INPUTS_AND_OUTPUTS) - take(_P.RESULTS),
        take(_P.RESULTS),
        execution,
        take(_P.TERMINATION),
    ]
    return [*parts, sum(take(phase) for phase in Phase)]


def _rows(found: Table, *, total: bool) -> list[list[str]]:
    times = found.total if total else found.own
    rows = [
        [_NAMES[at], *(_ms(ns) for ns in _values(partial(_time, times, at)))] for at in found.layers
    ]
    if not total:
        sums = _values(lambda phase: sum(found.own.get((at, phase), 0) for at in Layer))
        rows.append(["Total", *map(_ms, sums)])
    return rows


def _time(times: Mapping[tuple[Layer, Phase], int], layer: Layer, phase: Phase) -> int:
    return times.get((layer, phase), 0)


def _ms(nanoseconds: int) -> str:
    return f"{nanoseconds / 1e6:.3f}" if nanoseconds else "-"


def _us(nanoseconds: float) -> str:
    return f"{nanoseconds / 1e3:.2f}"


def _as_csv(tables: Sequence[Table], *, total: bool) -> str:
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(("case", "layer", *_COLUMNS))
    for each in tables:
        writer.writerows((each.name, *row) for row in _rows(each, total=total))
    return text.getvalue()


def _as_data(found: Table) -> dict[str, Any]:
    def keyed(values: dict[tuple[Layer, Phase], int]) -> dict[str, float]:
        return {f"{at}_{phase}": ns for (at, phase), ns in sorted(values.items()) if ns}

    return {
        "name": found.name,
        "own_ns": keyed(found.own),
        "total_ns": keyed(found.total),
        "counts": keyed(found.counts),
        "executions": [{str(at): ns for at, ns in run.items()} for run in found.runs],
    }


def run_view(words: Sequence[str]) -> int:
    """Serve the page until Ctrl-C."""
    parser = argparse.ArgumentParser(prog="nnburst trace view")
    parser.add_argument("file", type=Path, help="a trace")
    parser.add_argument(
        "--port", type=int, default=9001, help="on localhost (default: %(default)s)"
    )
    parser.add_argument("--no-browser", action="store_true", help="only print the address")
    args = parser.parse_args(words)
    with Viewer(args.file, args.port) as viewer:
        print(f"{viewer.address}  (Ctrl-C ends it)", flush=True)
        if not args.no_browser:
            webbrowser.open(viewer.address)
        viewer.serve()
    return 0


#: The kernel's file for marks, used if tracefs is mounted and this user may write to the file.
_MARKER: Final = Path("/sys/kernel/tracing/trace_marker")
_USAGE = """\
nnburst trace -o FILE -- COMMAND ...  records COMMAND and its drivers
nnburst trace report FILE             reports where the time went (see --help)
nnburst trace view FILE               shows it in a browser of this machine"""


def prepare_parser(subparsers: Subparsers) -> None:
    """Add the command."""
    parser = subparsers.add_parser(
        "trace",
        help="record what client and driver do when, and report where the time went",
        description="`nnburst trace`: record what processes do, report where the time went, show "
        "it.",
        usage=_USAGE,
    )
    parser.add_argument(
        "-o",
        "--output",
        type=writable_file,
        metavar="FILE",
        help=f"file to write, in the format of its suffix: {', '.join(SUFFIXES)}",
    )
    parser.add_argument(
        "--marker",
        nargs="?",
        type=Path,
        const=_MARKER,
        metavar="FILE",
        help=f"write what the command's Python code does to the kernel's trace, too (default: {_MARKER})",
    )
    parser.add_argument(
        "words",
        nargs=argparse.REMAINDER,
        metavar="-- COMMAND",
        help="program to record, with its arguments",
    )


def run(args: argparse.Namespace) -> int:
    """Record, report or show."""
    words: list[str] = args.words
    if words[:1] in (["report"], ["view"]):
        given = {"-o": args.output is not None, "--marker": args.marker is not None}
        refuse_options(given, f"given with {words[0]}, expected only with a command to record")
    if words[:1] == ["report"]:
        return run_report(words[1:])
    if words[:1] == ["view"]:
        return run_view(words[1:])
    command = words[1:] if words[:1] == ["--"] else words
    if not command or args.output is None:
        raise InvalidArgument(
            "trace: a file and a command are needed, as in `nnburst trace -o FILE -- COMMAND`;"
            " or `report FILE`, or `view FILE`"
        )
    return record(command, args.output, args.marker)


def record(command: list[str], output: Path, marker: Path | None = None) -> int:
    """Run a command, record it, and return its exit status.

    Args:
        command: the command's words.
        output: the file to write; its suffix chooses the format.
        marker: the kernel's trace_marker, for slices above the HAL.

    Raises:
        InvalidArgument: the file's name has no known suffix, `marker` cannot be written, or the command
            cannot be started.
    """
    environment = dict(os.environ)
    if marker is not None:
        if not os.access(marker, os.W_OK):
            raise InvalidArgument(
                f"--marker: {marker} cannot be written, expected tracefs mounted and the rights for it"
            )
        environment[TRACE_MARKER.name] = str(marker)
    if not output.name.endswith(SUFFIXES):
        raise InvalidArgument(f"trace: {output.name!r}, expected a name in {', '.join(SUFFIXES)}")
    with Collector() as collector:
        try:
            child = subprocess.Popen(  # noqa: S603 - the user's own words
                command, env={**environment, TRACE.name: str(collector.address)}
            )
        except OSError as error:
            raise InvalidArgument(f"trace: {command[0]} cannot be started: {error}") from error
        before = signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C ends the command alone
        try:
            status = child.wait()
        finally:
            signal.signal(signal.SIGINT, before)
        trace = collector.finish()
    write(trace, output)
    _summary(trace, output)
    return 128 - status if status < 0 else status


def _summary(trace: Trace, output: Path) -> None:
    processes = len({thread.pid for thread in trace.threads})
    slices = sum(len(thread.slices) for thread in trace.threads)
    left, joined = flows(trace)
    print(
        f"{output}: {processes} processes, {len(trace.threads)} threads, {slices} slices,"
        f" {joined} of {left} requests joined, {trace.lost} marks lost"
    )
    for problem in trace.problems:
        print(f"  {printable(problem)}")
    if not trace.threads:
        print(
            "  nothing was recorded: the command used no driver, or the package was built without marks"
        )
