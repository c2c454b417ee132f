"""`nnburst fuzz graphs`: random models against a naive evaluator."""

from __future__ import annotations

import argparse
import time
from pathlib import Path
from typing import NamedTuple

from nnburst.cli.options import Subparsers, at_least_one, zero_or_more
from nnburst.cli.output import add_json_option, progress, table, text_for_people, write_json
from nnburst.hal.enums import OperandType
from nnburst.hal.errors import InvalidArgument
from nnburst.testing.conformance.run_result import Unsupported
from nnburst.testing.conformance.runners import RUNNERS, Runner
from nnburst.testing.conformance.vectors import write
from nnburst.testing.models.random_graphs import PRIMARY, RandomGraph, check, generate, shrink
from nnburst.testing.models.random_graphs.as_vector import as_vector
from nnburst.testing.models.random_graphs.check import tolerance_for


class Failure(NamedTuple):
    """A graph whose results are wrong, shrunk."""

    name: str
    operations: list[str]
    reason: str
    file: str


def prepare_parser(subparsers: Subparsers) -> None:
    """Add the command."""
    parser = subparsers.add_parser(
        "graphs", help="random models against a naive evaluator", description=__doc__
    )
    parser.add_argument(
        "--executor",
        default="reference",
        metavar="NAME",
        help="executor to try (default: reference)",
    )
    parser.add_argument(
        "--via",
        default="local",
        choices=("local", "execute", "burst"),
        help="how graphs reach it (default: local)",
    )
    parser.add_argument(
        "--size", default="all", choices=(*PRIMARY, "all"), help="size of the graphs (default: all)"
    )
    parser.add_argument(
        "--seeds",
        type=at_least_one,
        default=50,
        metavar="N",
        help="seeds of each class (default: %(default)s)",
    )
    parser.add_argument(
        "--first", type=zero_or_more, default=0, metavar="SEED", help="first seed (default: 0)"
    )
    parser.add_argument(
        "--dump",
        type=Path,
        default=Path("graph-failures"),
        metavar="DIR",
        help="where to write failing graphs as vector files (default: %(default)s)",
    )
    add_json_option(parser)


def run(args: argparse.Namespace) -> int:
    """Run all graphs; 0 only if none fails."""
    if args.via not in RUNNERS:
        raise InvalidArgument(f"--via {args.via} is not available, there is {', '.join(RUNNERS)}")
    sizes = list(PRIMARY) if args.size == "all" else [args.size]
    classes = [(size, kind) for size in sizes for kind in PRIMARY[size]]
    seeds = range(args.first, args.first + args.seeds)
    runner = RUNNERS[args.via](args.executor)
    started = time.monotonic()
    rows, failures = [], []
    with text_for_people(args.json), progress("random graphs", len(classes)) as advance:
        for size, kind in classes:
            found, skipped = _run_class(size, kind, seeds, runner, args.dump)
            rows.append((f"{size} {kind.name}", len(seeds), len(found), skipped))
            failures += found
            advance(1)
    runner.close()
    total = len(classes) * len(seeds)
    with text_for_people(args.json):
        table("random graphs", ("class", "graphs", "failed", "not supported"), rows)
        for failure in failures:
            print(f"FAILED {failure.name}: {', '.join(failure.operations)}: {failure.reason}")
            print(f"       {failure.file}")
        print(f"{total} graphs, {len(failures)} failed in {time.monotonic() - started:.1f} s")
    write_json(
        args.json,
        {
            "graphs": total,
            "failed": len(failures),
            "failures": [failure._asdict() for failure in failures],
        },
    )
    return 1 if failures else 0


def _run_class(
    size: str, kind: OperandType, seeds: range, runner: Runner, dump: Path
) -> tuple[list[Failure], int]:
    """Failures, and how many graphs the executor cannot run."""
    failures, skipped = [], 0
    for seed in seeds:
        graph = generate(size, kind, seed)
        try:
            if check(graph, runner) is not None:
                failures.append(_shrunk(graph, runner, dump))
        except Unsupported:
            skipped += 1
    return failures, skipped


def _shrunk(graph: RandomGraph, runner: Runner, dump: Path) -> Failure:
    kept = shrink(graph, lambda keep: check(graph, runner, keep) is not None)
    path = dump / f"{graph.name}.json.gz"
    write(path, as_vector(graph, kept, tolerance_for(graph, kept)))
    names = [graph.operations[i].kind.name for i in kept]
    return Failure(graph.name, names, check(graph, runner, kept) or "", str(path))
