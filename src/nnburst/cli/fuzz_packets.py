"""`nnburst fuzz packets`: mutated request packets against a live driver."""

from __future__ import annotations

import argparse
import time

from nnburst.cli.options import Subparsers, at_least_one, zero_or_more
from nnburst.cli.output import add_json_option, progress, table, text_for_people, write_json

#: Bytes by which a driver may grow.
_GROWTH_LIMIT = 16 * 1024 * 1024


def prepare_parser(subparsers: Subparsers) -> None:
    """Add the command's parser to `subparsers`."""
    parser = subparsers.add_parser(
        "packets", help="mutated request packets against a live driver", description=__doc__
    )
    parser.add_argument(
        "--packets",
        "--count",
        type=at_least_one,
        default=200_000,
        help="number of packets (default: %(default)s)",
    )
    parser.add_argument(
        "--seed", type=zero_or_more, default=0, help="seed of the random packets (default: 0)"
    )
    parser.add_argument(
        "--executor", default="reference", help="executor of the driver (default: reference)"
    )
    add_json_option(parser)


def run(args: argparse.Namespace) -> int:
    """Fuzz, and report what should not have happened."""
    import nnburst
    from nnburst.testing.fuzzing.packet_fuzzer import fuzz_packets

    began = time.monotonic()
    with (
        text_for_people(args.json),
        nnburst.launch(args.executor) as device,
        progress("mutated packets", args.packets) as advance,
    ):
        report = fuzz_packets(device, args.packets, args.seed, advance)
        alive = device.is_alive
    seconds = time.monotonic() - began
    with text_for_people(args.json):
        table(
            f"{report.packets} mutated packets, a valid one after each, in {seconds:.0f} s"
            f" ({report.packets / seconds:.0f}/s)",
            ("outcome", "packets"),
            sorted(report.outcomes.items()),
        )
        print(
            f"driver: {'alive' if alive else 'DEAD'}, at {report.rss / 2**20:.1f} MiB,"
            f" grew by {report.rss_growth / 2**20:.1f} MiB"
        )
        for failure in report.failures:
            print(f"failure: {failure}")
    passed = alive and not report.failures and report.rss_growth <= _GROWTH_LIMIT
    write_json(
        args.json,
        {
            "packets": report.packets,
            "seed": args.seed,
            "seconds": round(seconds, 1),
            "outcomes": dict(report.outcomes),
            "failures": report.failures,
            "driver_alive": alive,
            "packets_per_second": round(report.packets / seconds, 1),
            "rss_bytes": report.rss,
            "rss_growth_bytes": report.rss_growth,
            "passed": passed,
        },
    )
    return 0 if passed else 1
