"""`nnburst fuzz control`: mutated control messages against a live driver."""

from __future__ import annotations

import argparse
import time

from nnburst.cli.options import Subparsers, at_least_one, zero_or_more
from nnburst.cli.output import add_json_option, progress, table, text_for_people, write_json


def prepare_parser(subparsers: Subparsers) -> None:
    """Add the command's parser to `subparsers`."""
    parser = subparsers.add_parser("control", help="mutated control messages", description=__doc__)
    parser.add_argument(
        "--messages",
        type=at_least_one,
        default=100_000,
        help="number of messages (default: %(default)s)",
    )
    parser.add_argument(
        "--executor", default="reference", help="executor of the driver (default: reference)"
    )
    parser.add_argument(
        "--seed", type=zero_or_more, default=0, help="seed of the mutations (default: 0)"
    )
    add_json_option(parser)


def run(args: argparse.Namespace) -> int:
    """Fuzz, and report what should not have happened."""
    from nnburst.testing.fuzzing.control_fuzzer import fuzz_control

    began = time.monotonic()
    with text_for_people(args.json), progress("mutated messages", args.messages) as advance:
        report = fuzz_control(args.messages, args.seed, args.executor, advance)
    seconds = time.monotonic() - began
    with text_for_people(args.json):
        table(
            f"{report.messages} mutated messages in {seconds:.0f} s",
            ("answered", "messages"),
            sorted(report.outcomes.items()),
        )
        print(f"the driver grew by {report.rss_growth / 2**20:.1f} MiB")
        for failure in report.failures:
            print(f"failure: {failure}")
    write_json(
        args.json,
        {
            "messages": report.messages,
            "seed": args.seed,
            "seconds": round(seconds, 1),
            "outcomes": dict(report.outcomes),
            "failures": report.failures,
            "rss_growth_bytes": report.rss_growth,
            "passed": not report.failures,
        },
    )
    return 1 if report.failures else 0
