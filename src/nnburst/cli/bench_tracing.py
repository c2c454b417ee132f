"""`nnburst bench tracing`: what a round trip costs while both sides record their marks."""

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
        "--rounds", type=at_least_one, default=41, metavar="N", help="default: %(default)s"
    )
    add_json_option(parser)


def run(args: argparse.Namespace) -> int:
    """Measure, print, write."""
    from nnburst.bench.tracing import measure

    cores = sorted(os.sched_getaffinity(0))
    if len(cores) < 2:
        print("bench tracing needs two cores: one for each side")
        return 1
    with text_for_people(args.json):
        found = measure(args.rounds, cores[0], cores[1])
        print(
            f"null_1in1out: {found.off_ns:.0f} ns, recorded on both sides {found.on_ns:.0f} ns:"
            f" {found.difference_ns:+.0f} ns (median of {args.rounds} rounds)"
        )
    write_json(
        args.json,
        {
            "off_ns": found.off_ns,
            "on_ns": found.on_ns,
            "difference_ns": found.difference_ns,
            "differences_ns": list(found.differences_ns),
        },
    )
    return 0
