"""`nnburst fuzz plans`: random models over random devices against the reference executor.

One to four made-up devices of random feature level, cost and support, some of which refuse models or fail to
execute them, and the CPU behind them. What the plan computes must equal what the whole model computes, bit
for bit, and every plan must keep the rules of plans.
"""

from __future__ import annotations

import argparse
import time
from collections import Counter

from nnburst.cli.options import Subparsers, at_least_one, zero_or_more
from nnburst.cli.output import add_json_option, progress, table, text_for_people, write_json


def prepare_parser(subparsers: Subparsers) -> None:
    """Add the command."""
    parser = subparsers.add_parser(
        "plans", help="random models over random devices", description=__doc__
    )
    parser.add_argument(
        "--graphs",
        type=at_least_one,
        default=200,
        metavar="N",
        help="number of models (default: %(default)s)",
    )
    parser.add_argument(
        "--first", type=zero_or_more, default=0, metavar="SEED", help="first seed (default: 0)"
    )
    add_json_option(parser)


def run(args: argparse.Namespace) -> int:
    """Run all graphs; 0 only if none differs."""
    from nnburst.testing.framework.quiet_log import quiet_log
    from nnburst.testing.partitioning.campaign import run_seeds

    started = time.monotonic()
    counts: Counter[str] = Counter()
    failures = []
    progressing = progress("random plans", args.graphs)
    with text_for_people(args.json), quiet_log(), progressing as advance:
        for found in run_seeds(range(args.first, args.first + args.graphs)):
            counts += found.counts
            if found.reason:
                failures.append(found)
            advance(1)
    with text_for_people(args.json):
        table("what was planned", ("what", "how many"), sorted(counts.items()))
        for failure in failures:
            print(f"FAILED {failure.graph}: {failure.reason}")
        seconds = time.monotonic() - started
        print(f"{args.graphs} graphs, {len(failures)} failed in {seconds:.1f} s")
    write_json(
        args.json,
        {
            "graphs": args.graphs,
            "failed": len(failures),
            "counts": dict(counts),
            "failures": [{"graph": f.graph, "reason": f.reason} for f in failures],
        },
    )
    return 1 if failures else 0
