"""`nnburst bench capi`: measures libneuralnetworks.so, called from C, beside the burst's round trip.

The driver runs the null executor, which computes nothing. `null_1in1out` is a bound request of the Python
client. The cases of the C interface are loops in C: either a reusable execution, with arguments in a sealed
memfd or with 256 bytes at addresses; or, for each inference, create an execution, set two arguments, compute
and free it, with arguments at addresses or in a memory. `capi_compute` does the latter by `compute`, which
names no burst. `execute` goes over the socket and stands beside an echo. Ratios are medians of the ratios
within a round.
"""

from __future__ import annotations

import argparse
from contextlib import ExitStack
from typing import TYPE_CHECKING

from nnburst.cli.options import Subparsers, at_least_one
from nnburst.cli.output import add_json_option, microseconds, table, text_for_people, write_json
from nnburst.hal.errors import DeviceUnavailable

if TYPE_CHECKING:
    from nnburst.bench.rounds import Measured

BESIDE = "null_1in1out"


def prepare_parser(subparsers: Subparsers) -> None:
    """Add the command's parser to `subparsers`."""
    parser = subparsers.add_parser(
        "capi", help="the C interface beside the burst's own round trip", description=__doc__
    )
    parser.add_argument(
        "--rounds", type=at_least_one, default=41, help="blocks of each case (default: 41)"
    )
    add_json_option(parser)


def run(args: argparse.Namespace) -> int:
    """Measure all cases, print the tables, and write the JSON."""
    from nnburst.capi import installed

    if not installed.LIBRARY.is_file():
        raise DeviceUnavailable(
            f"{installed.LIBRARY}: the file does not exist: this nnburst was built without the C interface"
        )
    measured = _measure(args.rounds)
    beside = measured[BESIDE]
    rows = [
        (
            name,
            microseconds(case.mean_ns),
            microseconds(case.median_ns),
            microseconds(case.percentile(99)),
            f"{case.ratio_to(beside):.2f}×",
            f"{case.typical_ratio_to(beside):.2f}×",
        )
        for name, case in measured.items()
    ]
    columns = ("case", "mean", "median", "p99", f"÷ {BESIDE}", "of medians")
    with text_for_people(args.json):
        table("computations of the null executor", columns, rows)
    cases = [
        {
            **case.as_json(),
            "ratio": round(case.ratio_to(beside), 3),
            "typical_ratio": round(case.typical_ratio_to(beside), 3),
        }
        for case in measured.values()
    ]
    write_json(args.json, {"beside": BESIDE, "cases": cases})
    return 0


def _measure(rounds: int) -> dict[str, Measured]:
    import os

    from nnburst.bench.burst_cases import socket_cases
    from nnburst.bench.cases import Looped, adding_model, null_driver, open_bound, pinned
    from nnburst.bench.interface import devices, interface_cases
    from nnburst.bench.rounds import run_rounds

    cores = sorted(os.sched_getaffinity(0))
    with ExitStack() as stack:
        driver = stack.enter_context(null_driver(cores[-1]))
        other = stack.enter_context(null_driver(cores[-1]))
        stack.enter_context(devices(other))
        _, bound = open_bound(stack, driver, adding_model(1, 1))
        by_name = {case.name: case for case in socket_cases(stack, driver, cores[-1])}
        cases = [*interface_cases(), by_name["execute"], by_name["unix_socket_echo"]]
        stack.enter_context(pinned(cores[0]))
        return run_rounds([Looped(BESIDE, bound.run), *cases], rounds)
