"""`nnburst bench tracing`: measures a round trip while both sides record their marks."""

from __future__ import annotations

import argparse
import os

from nnburst.cli.options import Subparsers, at_least_one
from nnburst.cli.output import add_json_option, text_for_people, write_json


def prepare_parser(subparsers: Subparsers) -> None:
    """Add the command's parser to `subparsers`."""
    parser = subparsers.add_parser(
        "tracing", help="what recording costs a round trip", description=__doc__
    )
    parser.add_argument(
        "--rounds",
        type=at_least_one,
        default=41,
        metavar="N",
        help="blocks of each case (default: %(default)s)",
    )
    add_json_option(parser)


def run(args: argparse.Namespace) -> int:
    """Measure the round trips, print the table, and write the JSON."""
    from nnburst.bench.tracing import measure

    cores = sorted(os.sched_getaffinity(0))
    if len(cores) < 2:
        print("bench tracing needs two cores: one for each side")
        return 1
    with text_for_people(args.json):
        found = measure(args.rounds, cores[0], cores[1])
        awake, cost = len(found.awake), found.difference_ns
        verdict = "too noisy to tell" if cost is None else f"{cost:+.0f} ns"
        print(
            f"null_1in1out: {found.off_ns:.0f} ns, recorded on both sides {found.on_ns:.0f} ns:"
            f" {verdict} (median of {awake} rounds of {args.rounds} in which both sides were awake)"
        )
    write_json(
        args.json,
        {
            "off_ns": found.off_ns,
            "on_ns": found.on_ns,
            "difference_ns": cost,
            "awake_rounds": awake,
            "off_rounds_ns": list(found.off_rounds),
            "on_rounds_ns": list(found.on_rounds),
        },
    )
    return 0
