"""`nnburst new-executor`: writes a new executor with its tests, a package in Python or a library in C."""

from __future__ import annotations

import argparse
from pathlib import Path

from nnburst.cli.options import Subparsers
from nnburst.testing.starter import write_library, write_package


def prepare_parser(subparsers: Subparsers) -> None:
    """Add the command."""
    parser = subparsers.add_parser(
        "new-executor",
        help="write an executor of your own, to begin with",
        description=__doc__,
    )
    parser.add_argument("name", help="name of the package and its executor, for example my_adder")
    parser.add_argument(
        "--language",
        choices=("python", "c"),
        default="python",
        help="python: a package with an entry point (default); c: a shared library with a Makefile",
    )
    parser.add_argument(
        "--into",
        type=Path,
        default=Path(),
        metavar="DIR",
        help="folder that the package is written to (default: here)",
    )


def run(args: argparse.Namespace) -> int:
    """Write it, and print what to do next."""
    if args.language == "c":
        for path in write_library(args.name, args.into):
            print(path)
        print(f"\ncd {args.into / args.name} && make -s all check")
        print(f"nnburst conformance --device ./lib{args.name}.so")
        return 0
    for path in write_package(args.name, args.into):
        print(path)
    print(f"\ncd {args.into / args.name} && pip install -e . && pytest")
    print(f"nnburst conformance --device {args.name}")
    return 0
