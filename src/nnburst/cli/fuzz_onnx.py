"""`nnburst fuzz onnx`: mutated .onnx files as whole graphs through a driver of the executor onnxruntime.

The mutated bytes go to the driver as a hostile client sends them: no library has read them before. A graph
that ends its worker is counted, but not as a failure: the worker serves this client only. Failures are a
supervisor that does not go on, and errors of the client that are not nnburst's own.
"""

from __future__ import annotations

import argparse
import time
from pathlib import Path

from nnburst.cli.options import Subparsers, at_least_one, zero_or_more
from nnburst.cli.output import add_json_option, progress, table, text_for_people, write_json


def prepare_parser(subparsers: Subparsers) -> None:
    """Add the command's parser to `subparsers`."""
    parser = subparsers.add_parser(
        "onnx", help="mutated .onnx files through a driver", description=__doc__
    )
    parser.add_argument(
        "networks",
        nargs="*",
        type=Path,
        metavar="FILE",
        help="intact files to mutate (default: the node tests of the package onnx)",
    )
    parser.add_argument(
        "--graphs",
        type=at_least_one,
        default=10_000,
        help="number of mutated graphs (default: %(default)s)",
    )
    parser.add_argument(
        "--seed", type=zero_or_more, default=0, help="seed of the mutations (default: 0)"
    )
    parser.add_argument(
        "--first", type=zero_or_more, default=0, help="number of the first graph (default: 0)"
    )
    add_json_option(parser)


def run(args: argparse.Namespace) -> int:
    """Fuzz, and report what should not have happened."""
    from nnburst.testing.conformance.onnx_nodes import files
    from nnburst.testing.fuzzing.graph_fuzzer import fuzz_graphs

    intact = [path.read_bytes() for path in args.networks] or files()
    began = time.monotonic()
    with text_for_people(args.json), progress("mutated graphs", args.graphs) as advance:
        report = fuzz_graphs(intact, args.graphs, args.seed, advance, first=args.first)
    seconds = time.monotonic() - began
    with text_for_people(args.json):
        table(
            f"{report.graphs} mutations of {len(intact)} files in {seconds:.0f} s",
            ("outcome", "graphs"),
            sorted(report.outcomes.items()),
        )
        print(f"the supervisor grew by {report.supervisor_growth / 2**20:.1f} MiB")
        if report.worker_ends:
            print("the engine ended its worker:", ", ".join(map(str, report.worker_ends)))
        for failure in report.failures:
            print(f"failure: {failure}")
    write_json(
        args.json,
        {
            "graphs": report.graphs,
            "seed": args.seed,
            "first": args.first,
            "seconds": round(seconds, 1),
            "outcomes": dict(report.outcomes),
            "worker_ends": report.worker_ends,
            "failures": report.failures,
            "supervisor_growth_bytes": report.supervisor_growth,
            "passed": not report.failures,
        },
    )
    return 1 if report.failures else 0
