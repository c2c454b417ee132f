"""`nnburst stress`: runs many clients against a driver, kills some of them, and checks the others' results.

Every call ends as success, refused (a quota), failure, crash (the driver died), hang (no answer for 30 s) or
wrong result (other bits than before). Exit status 1 if anything but success and refused was counted.
"""

from __future__ import annotations

import argparse
from pathlib import Path

from nnburst.cli.options import Subparsers, above_zero, zero_or_more
from nnburst.cli.output import (
    add_json_option,
    printable,
    progress,
    table,
    text_for_people,
    write_json,
)


def prepare_parser(subparsers: Subparsers) -> None:
    """Add the command's parser to `subparsers`."""
    from nnburst.testing.load.stress import PROFILES

    parser = subparsers.add_parser(
        "stress",
        help="many clients against a driver, some of them killed",
        description=__doc__,
    )
    parser.add_argument(
        "profiles",
        nargs="*",
        metavar="PROFILE",
        help="; ".join(f"{name}: {profile.what}" for name, profile in PROFILES.items()).replace(
            "%", "%%"
        ),
    )
    parser.add_argument(
        "--device",
        default="reference",
        metavar="NAME",
        help="driver that runs, executor or module:attribute (default: reference)",
    )
    parser.add_argument(
        "--seconds", type=above_zero, default=60.0, help="seconds of each profile (default: 60)"
    )
    parser.add_argument("--model", type=Path, metavar="FILE", help="a network (default: a sum)")
    parser.add_argument(
        "--life",
        type=above_zero,
        default=70.0,
        metavar="SECONDS",
        help="longest life of a client (default: 70)",
    )
    parser.add_argument(
        "--seed", type=zero_or_more, default=1, help="seed of what is killed when (default: 1)"
    )
    add_json_option(parser)


def run(args: argparse.Namespace) -> int:
    """Run the profiles one after the other, print the outcomes, and write the JSON."""
    from nnburst.hal.errors import InvalidArgument
    from nnburst.testing.driver_under_test import DriverUnderTest
    from nnburst.testing.load.stress import BAD, PROFILES, stress

    names = args.profiles or ["parallel", "early-termination"]
    for name in names:
        if name not in PROFILES:
            raise InvalidArgument(f"profile: {name!r}, expected one of {', '.join(PROFILES)}")
    reports = {}
    with text_for_people(args.json), DriverUnderTest.start(args.device) as driver:
        for name in names:
            with progress(name, int(args.seconds)) as advance:
                reports[name] = stress(
                    driver.address,
                    PROFILES[name],
                    args.seconds,
                    model=str(args.model or ""),
                    life=args.life,
                    seed=args.seed,
                    progress=lambda advance=advance: advance(1),  # type: ignore[misc]
                )
        outcomes = ("success", "refused", *BAD)
        table(
            f"{args.device}, {args.seconds:g} s each",
            ["profile", "clients", "killed", *outcomes, "checks", "bad checks"],
            [
                [name, r.processes, r.killed, *(r.clients[o] for o in outcomes),
                 r.checker["success"], sum(r.checker[o] for o in BAD)]
                for name, r in reports.items()
            ],
        )  # fmt: skip
        for message in dict.fromkeys(m for r in reports.values() for m in r.messages):
            print(printable(message))
    write_json(args.json, {name: report.as_json() for name, report in reports.items()})
    return 1 if any(report.bad for report in reports.values()) else 0
