"""`nnburst bench operations`: measures the reference executor beside LiteRT's reference kernels."""

from __future__ import annotations

import argparse
import os
import statistics
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import Final

from nnburst.cli.options import Subparsers, at_least_one
from nnburst.cli.output import add_json_option, table, text_for_people, write_json

_ONE_THREAD: Final = dict.fromkeys(
    ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS"), "1"
)


def prepare_parser(subparsers: Subparsers) -> None:
    """Add the command's parser to `subparsers`."""
    parser = subparsers.add_parser(
        "operations", help="numpy kernels beside LiteRT's reference kernels", description=__doc__
    )
    parser.add_argument("networks", nargs="+", type=Path, help=".tflite or vector files")
    parser.add_argument(
        "--rounds", type=at_least_one, default=9, help="turns of each network (default: 9)"
    )
    parser.add_argument(
        "--repeats", type=at_least_one, default=10, help="runs in a turn (default: 10)"
    )
    add_json_option(parser)


def run(args: argparse.Namespace) -> int:
    """Measure the operations, print the table, and write the JSON."""
    if find_spec("ai_edge_litert") is None:
        print("bench operations needs ai-edge-litert: pip install 'nnburst[litert]'")
        return 1
    if any(os.environ.get(name) != "1" for name in _ONE_THREAD):
        # numpy reads these variables when it is imported, so the process starts anew with one thread.
        os.execve(sys.executable, sys.orig_argv, os.environ | _ONE_THREAD)  # noqa: S606
    from nnburst.bench.operations import compare

    with text_for_people(args.json):
        found = [compare(path, args.rounds, args.repeats) for path in args.networks]
        table(
            "one thread, the same input, medians of the rounds",
            ("network", "numpy ms", "LiteRT REF ms", "numpy / LiteRT", "largest difference"),
            [
                (
                    c.network,
                    f"{statistics.median(c.numpy_ms):.2f}",
                    f"{statistics.median(c.litert_ref_ms):.2f}",
                    f"{c.ratio:.3f}",
                    f"{c.largest_difference:.3g}",
                )
                for c in found
            ],
        )
    write_json(args.json, {"networks": [c.as_json() for c in found]})
    return 0
