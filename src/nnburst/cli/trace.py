"""`nnburst trace`: record what processes do, report where the time went, show it."""

from __future__ import annotations

import argparse
import os
import signal
import subprocess
from pathlib import Path
from typing import Final

from nnburst.cli import trace_report, trace_view
from nnburst.cli.options import Subparsers
from nnburst.cli.output import printable
from nnburst.hal.environment import TRACE, TRACE_MARKER
from nnburst.hal.errors import InvalidArgument
from nnburst.tracing.collector import Collector
from nnburst.tracing.files import SUFFIXES, write
from nnburst.tracing.timeline import Trace, flows

#: Where the kernel takes marks, if tracefs is mounted and may be written.
_MARKER: Final = Path("/sys/kernel/tracing/trace_marker")
_USAGE = """\
nnburst trace -o FILE -- COMMAND ...   records COMMAND and all drivers that it starts
nnburst trace report FILE              reports where the time went (more by --help)
nnburst trace view FILE                shows it in a browser, from this machine alone"""


def prepare_parser(subparsers: Subparsers) -> None:
    """Add the command."""
    parser = subparsers.add_parser(
        "trace",
        help="record what client and driver do when, and report where the time went",
        description=__doc__,
        usage=_USAGE,
    )
    parser.add_argument(
        "-o",
        "--output",
        type=Path,
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
    if words[:1] == ["report"]:
        return trace_report.run(words[1:])
    if words[:1] == ["view"]:
        return trace_view.run(words[1:])
    command = words[1:] if words[:1] == ["--"] else words
    if not command or args.output is None:
        raise InvalidArgument(f"trace: a file and a command are needed\n{_USAGE}")
    return record(command, args.output, args.marker)


def record(command: list[str], output: Path, marker: Path | None = None) -> int:
    """Run a command, record it, and give back its status.

    Args:
        command: its words.
        output: the file, in a format by suffix.
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
