"""`nnburst fuzz importer`: mutated .tflite or .onnx files, read in this process."""

from __future__ import annotations

import argparse
import time
from pathlib import Path

from nnburst.cli.options import Subparsers, at_least_one, zero_or_more
from nnburst.cli.output import add_json_option, progress, table, text_for_people, write_json


def prepare_parser(subparsers: Subparsers) -> None:
    """Add the command's parser to `subparsers`."""
    parser = subparsers.add_parser(
        "importer", help="mutated .tflite or .onnx files", description=__doc__
    )
    parser.add_argument(
        "networks",
        nargs="*",
        type=Path,
        metavar="FILE",
        help="intact files to mutate beside the built-in ones",
    )
    parser.add_argument(
        "--files",
        type=at_least_one,
        default=100_000,
        help="number of mutated files (default: %(default)s)",
    )
    parser.add_argument(
        "--onnx",
        action="store_true",
        help="the built-in ones are the node tests of the package onnx, not .tflite files",
    )
    parser.add_argument(
        "--seed", type=zero_or_more, default=0, help="seed of the mutations (default: 0)"
    )
    add_json_option(parser)


def run(args: argparse.Namespace) -> int:
    """Fuzz, and report what should not have happened."""
    from nnburst.testing.fuzzing.importer_fuzzer import fuzz_importer

    intact = [path.read_bytes() for path in args.networks]
    intact += _node_tests() if args.onnx else _networks()
    began = time.monotonic()
    with text_for_people(args.json), progress("mutated files", args.files) as advance:
        report = fuzz_importer(intact, args.files, args.seed, advance)
    seconds = time.monotonic() - began
    with text_for_people(args.json):
        table(
            f"{report.files} mutations of {len(intact)} files in {seconds:.0f} s",
            ("outcome", "files"),
            sorted(report.outcomes.items()),
        )
        print(f"slowest file: {report.slowest * 1e3:.0f} ms")
        print(f"most memory for one file: {report.largest / 2**20:.1f} MiB")
        for failure in report.failures:
            print(f"failure: {failure}")
    write_json(
        args.json,
        {
            "files": report.files,
            "seed": args.seed,
            "seconds": round(seconds, 1),
            "outcomes": dict(report.outcomes),
            "failures": report.failures,
            "slowest_seconds": round(report.slowest, 4),
            "largest_bytes": report.largest,
            "passed": not report.failures,
        },
    )
    return 1 if report.failures else 0


def _networks() -> list[bytes]:
    from nnburst.testing.models.tflite_networks import NETWORKS

    return [build() for build in NETWORKS.values()]


def _node_tests() -> list[bytes]:
    from nnburst.testing.conformance.onnx_nodes import files

    return files()
