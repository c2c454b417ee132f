"""`nnburst inspect`: what is in a .tflite or .onnx file, and what each executor makes of it."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from nnburst.cli.inspect_graph import (
    add_graph_options,
    check_graph_options,
    colours_of,
    write_graphs,
)
from nnburst.cli.network_options import add_network_options, load_options
from nnburst.cli.options import Subparsers
from nnburst.cli.output import (
    Coloured,
    add_json_option,
    printable,
    table,
    text_for_people,
    write_json,
)


def prepare_parser(subparsers: Subparsers) -> None:
    """Add `nnburst inspect`."""
    parser = subparsers.add_parser(
        "inspect",
        help="what is in a .tflite or .onnx file, and who can run it",
        description=__doc__,
    )
    parser.add_argument("model", type=Path, metavar="MODEL", help=".tflite or .onnx file")
    add_network_options(parser)
    parser.add_argument(
        "--executor",
        action="append",
        metavar="NAME",
        help="executor to ask, any number of times (default: all that are known)",
    )
    add_graph_options(parser)
    add_json_option(parser)


def run(args: argparse.Namespace) -> int:
    """Read, look, print, write; 1 if no executor that was asked for runs the model."""
    from nnburst.cli.inspect_contents import contents
    from nnburst.cli.inspect_placement import known_executors, place
    from nnburst.executor.graph.extension import install_from
    from nnburst.executor.operations import SIGNATURES
    from nnburst.hal.validation import validate_model
    from nnburst.importer.load import load

    check_graph_options(args)
    imported = load(args.model, **load_options(args))
    for extension in args.extension:
        install_from(extension)
    validate_model(imported.model, SIGNATURES)
    names = args.executor or known_executors()
    placements = [place(name, imported.model, imported.pools) for name in names]
    with text_for_people(args.json):
        report = {
            "model": str(args.model),
            "file_bytes": args.model.stat().st_size,
            **contents(imported),
            "executors": [placement.as_json() for placement in placements],
        }
        _print(report, colours_of(placements))
        write_graphs(args, imported.model, placements)
    write_json(args.json, report)
    return 0 if any(placement.partitions for placement in placements) else 1


def _print(report: dict[str, Any], colours: dict[str, str]) -> None:
    what = report["description"] or "a network"
    print(printable(f"{report['model']}: {report['file_bytes']} bytes, {what}"))
    _print_border(report)
    table(
        f"{len(report['operations'])} operations, {report['operands']} operands",
        ["#", "operation", "from", "first input", "first output", "constant bytes"],
        [
            [
                operation["number"],
                operation["type"],
                operation["from"],
                _short(operation["inputs"]),
                _short(operation["outputs"]),
                operation["constant_bytes"],
            ]
            for operation in report["operations"]
        ],
    )
    counts = ", ".join(f"{count} {kind}" for kind, count in report["operation_counts"].items())
    print(f"  {counts}")
    _print_dynamic_range(report)
    print(
        f"  {report['constant_bytes']} bytes of constants,"
        f" {report['temporary_bytes']} bytes of temporaries, {report['subgraphs']} subgraphs\n"
    )
    _print_executors(report, colours)


def _print_dynamic_range(report: dict[str, Any]) -> None:
    """Which operations have 8-bit weights for real numbers, and how they are computed."""
    numbers = report["dynamic_range"]["operations"]
    if not numbers:
        return
    how = "in float32"
    if not report["dynamic_range"]["exact"]:
        how = "by an engine that rounds the numbers to 8 bits, too, if it can (--exact: in float32)"
    names = ", ".join(f"{n} {report['operations'][n]['type']}" for n in numbers)
    print(f"  dynamic range: real numbers and 8-bit weights in {names}: computed {how}")


def _print_border(report: dict[str, Any]) -> None:
    """Inputs and outputs, and what else the file has of them."""
    states = {(kind, state[kind]) for state in report["states"] for kind in ("input", "output")}
    rows = [
        [
            f"{kind} {at}{' (state)' if (kind, at) in states else ''}",
            operand["name"],
            operand["type"],
            "x".join(map(str, operand["shape"])),
            f"{operand['scale']:.6g}" if operand["scale"] else "",
            operand["zero_point"] if operand["scale"] else "",
            operand["bytes"],
        ]
        for kind in ("input", "output")
        for at, operand in enumerate(report[f"{kind}s"])
    ]
    columns = ["", "name", "type", "shape", "scale", "zero point", "bytes"]
    table("inputs and outputs", columns, rows)
    for signature in report["signatures"]:
        border = f"{signature['inputs']} -> {signature['outputs']}"
        print(printable(f"  signature {signature['key']}: {border}"))
    for name, size in report["metadata"].items():
        print(printable(f"  metadata {name}: {size} bytes"))
    print()


def _print_executors(report: dict[str, Any], colours: dict[str, str]) -> None:
    """Who runs what, in the picture's colours."""
    total = len(report["operations"])
    rows = []
    for placement in report["executors"]:
        partitions = placement["partitions"]
        first = [placement["executor"], f"{placement['supported']} of {total}", len(partitions)]
        if not partitions:
            rows.append([*first, "", "", placement["problem"]])
        for at, part in enumerate(partitions):
            begin = first if at == 0 else ["", "", ""]
            by = Coloured(part["by"], colours[part["by"]])
            rows.append([*begin, f"{part['first']}-{part['last']}", by, part["why"]])
    columns = ["executor", "supported", "partitions", "operations", "run by", "why"]
    table("executors", columns, rows)


def _short(described: list[str]) -> str:
    """Type and extents of the first operand."""
    return " ".join(described[0].split()[:2]) if described else ""
