"""`nnburst new-executor`: a package with an executor of your own, its entry point and its tests."""

from __future__ import annotations

import argparse
from pathlib import Path

from nnburst.cli.options import Subparsers
from nnburst.testing.starter.write import write_package


def prepare_parser(subparsers: Subparsers) -> None:
    """Add the command."""
    parser = subparsers.add_parser(
        "new-executor",
        help="write a package with an executor of your own",
        description=__doc__,
    )
    parser.add_argument("name", help="name of the package and its executor, for example my_adder")
    parser.add_argument(
        "--into",
        type=Path,
        default=Path(),
        metavar="DIR",
        help="folder that the package is written to (default: here)",
    )


def run(args: argparse.Namespace) -> int:
    """Write it, and print what to do next."""
    for path in write_package(args.name, args.into):
        print(path)
    print(f"\ncd {args.into / args.name} && pip install -e . && pytest")
    print(f"nnburst conformance --device {args.name}")
    return 0
