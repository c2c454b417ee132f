"""`nnburst serve`: a driver that many clients connect to by name."""

from __future__ import annotations

import argparse
import os
import sys
from typing import NoReturn

from nnburst.cli.options import Subparsers, cores
from nnburst.cli.output import add_json_option
from nnburst.client.launch import driver_environment


def prepare_parser(subparsers: Subparsers) -> None:
    """Add the command's parser to `subparsers`."""
    parser = subparsers.add_parser(
        "serve", help="run a driver that clients find by name", description=__doc__
    )
    parser.add_argument("name", help="what clients give to connect(): a name, or a path with a '/'")
    parser.add_argument(
        "--executor",
        default="reference",
        help="null, reference, an entry point of nnburst.executors, or module:attribute"
        " (default: %(default)s)",
    )
    parser.add_argument("--cpus", type=cores, help="cores to run on, comma-separated")
    parser.add_argument(
        "--extension",
        action="append",
        default=[],
        metavar="MODULE:ATTRIBUTE",
        help="a vendor extension to have beside those of entry points; may be repeated",
    )
    parser.add_argument("--any-user", action="store_true", help="serve clients of other users too")
    add_json_option(parser)


def run(args: argparse.Namespace) -> NoReturn:
    """Become the driver: it forks, so it starts as a fresh process with a single thread."""
    words = ["-m", "nnburst.driver", "--executor", args.executor, "--serve", args.name]
    if args.cpus:
        words += ["--cpus", args.cpus]
    for extension in args.extension:
        words += ["--extension", extension]
    if args.any_user:
        words.append("--any-user")
    if args.json:
        words += ["--json", str(args.json)]
    if sys.stdout is not None:
        sys.stdout.flush()
    os.execve(sys.executable, [sys.executable, *words], driver_environment())  # noqa: S606
