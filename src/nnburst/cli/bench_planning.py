"""`nnburst bench planning`: measures the planning of a model over several devices.

The devices answer at once, so every figure is the framework's own: one validation of the model, finishing
it (order, validation, hash), and planning (asking four devices, placing, making the step models).
"""

from __future__ import annotations

import argparse
from dataclasses import asdict
from typing import Final

from nnburst.cli.options import Subparsers, at_least_one
from nnburst.cli.output import add_json_option, progress, table, text_for_people, write_json
from nnburst.hal.enums import FeatureLevel

#: Steps of each plan, and the devices' feature level; for an older one, planning finds the model's version.
_CASES: Final = (
    (10, FeatureLevel.AIDL_V4),
    (10, FeatureLevel.V1_3),
    (500, FeatureLevel.AIDL_V4),
)


def prepare_parser(subparsers: Subparsers) -> None:
    """Add the command's parser to `subparsers`."""
    parser = subparsers.add_parser(
        "planning", help="what planning costs by itself", description=__doc__
    )
    parser.add_argument(
        "--operations",
        type=at_least_one,
        default=1000,
        metavar="N",
        help="operations of the model (default: %(default)s)",
    )
    parser.add_argument(
        "--rounds", type=at_least_one, default=15, metavar="N", help="rounds (default: %(default)s)"
    )
    add_json_option(parser)


def run(args: argparse.Namespace) -> int:
    """Measure the plans, print the table, and write the JSON."""
    from nnburst.bench.plans import measure

    with text_for_people(args.json):
        found = []
        with progress("plans", len(_CASES)) as advance:
            for steps, level in _CASES:
                steps = min(steps, args.operations)
                found.append(measure(args.operations, steps, args.rounds, level))
                advance(1)
        table(
            f"{args.operations} operations over 4 devices, milliseconds, best of {args.rounds}",
            ("steps", "feature level", "one validation", "finish", "plan"),
            [
                (t.steps, t.level, f"{t.validate:.1f}", f"{t.finish:.1f}", f"{t.plan:.1f}")
                for t in found
            ],
        )
    write_json(args.json, {"plans": [asdict(times) for times in found]})
    return 0
