"""`nnburst fuzz models`: mutated models, requests and packets against a live driver."""

from __future__ import annotations

import argparse
import re
import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from nnburst.cli.options import Subparsers, at_least_one, pattern
from nnburst.cli.output import add_json_option, progress, table, text_for_people, write_json

if TYPE_CHECKING:
    from nnburst.testing.fuzzing.model_fuzzer import FuzzReport
    from nnburst.testing.models.small_models import SmallModel


def prepare_parser(subparsers: Subparsers) -> None:
    """Add the command's parser to `subparsers`."""
    parser = subparsers.add_parser(
        "models",
        help="mutated models, requests and packets against a live driver",
        description="Every mutation must be refused with INVALID_ARGUMENT (packets: with an error),"
        " and the driver must live on.",
    )
    parser.add_argument(
        "sources", nargs="+", metavar="SOURCE", help="'builtin', vector files, or folders of them"
    )
    parser.add_argument(
        "--per-operation",
        type=at_least_one,
        metavar="N",
        help="models of each operation (default: all)",
    )
    parser.add_argument(
        "--model", type=pattern, default="", metavar="REGEX", help="only models whose names match"
    )
    parser.add_argument(
        "--mutation",
        type=pattern,
        default="",
        metavar="REGEX",
        help="only mutations whose descriptions match: VM11 operand 2",
    )
    parser.add_argument(
        "--executor", default="reference", help="executor of the driver (default: reference)"
    )
    add_json_option(parser)


def run(args: argparse.Namespace) -> int:
    """Send all mutations; 0 only if something was sent and all of it was refused."""
    import nnburst
    from nnburst.testing.fuzzing.model_fuzzer import EVERYTHING, FuzzSelection, fuzz

    models = _models(args.sources, args.model, args.per_operation)
    selection = FuzzSelection(args.mutation) if args.mutation else EVERYTHING
    began = time.monotonic()
    with (
        text_for_people(args.json),
        nnburst.launch(args.executor) as device,
        progress(f"mutations of {len(models)} models", len(models)) as advance,
    ):
        report = fuzz(device, models, selection, advance)
        alive = device.is_alive
    seconds = time.monotonic() - began
    with text_for_people(args.json):
        _print(report, args.sources, alive=alive, title=f"{len(models)} models, {seconds:.0f} s")
    passed = alive and report.total > 0 and not report.failures
    write_json(
        args.json,
        {
            "models": len(models),
            "operations": len(frozenset[int]().union(*(m.operations for m in models))),
            "seconds": round(seconds, 1),
            "mutations": report.total,
            "by_mutation": dict(report.sent),
            "refused_by": dict(report.refused_by),
            "failures": [failure._asdict() for failure in report.failures],
            "driver_alive": alive,
            "passed": passed,
        },
    )
    return 0 if passed else 1


def _models(sources: Sequence[str], name: str, per_operation: int | None) -> list[SmallModel]:
    from nnburst.testing.conformance.campaign import find_files
    from nnburst.testing.conformance.vectors import read
    from nnburst.testing.models.small_models import all_models, from_vector, some_per_operation

    found = list(all_models()) if "builtin" in sources else []
    paths = [Path(source) for source in sources if source != "builtin"]
    for file in find_files(paths) if paths else ():
        found += [from_vector(vector) for vector in read(file) if not vector.expect_failure]
    found = [model for model in found if re.search(name, model.name)]
    return found if per_operation is None else list(some_per_operation(found, per_operation))


def _print(report: FuzzReport, sources: Sequence[str], *, alive: bool, title: str) -> None:
    from nnburst.testing.fuzzing.model_fuzzer import KINDS

    table(
        f"{report.total} mutations of {title}",
        ("id", "mutation", "sent"),
        [(kind, KINDS[kind], report.sent[kind]) for kind in KINDS if report.sent[kind]],
    )
    answers = sorted(report.refused_by.items(), key=lambda item: -item[1])
    print("models refused by", ", ".join(f"{rule} {count}" for rule, count in answers))
    print(f"driver: {'alive' if alive else 'DEAD'}; {len(report.failures)} failures")
    for failure in report.failures:
        print(f"FAILED {failure.model}: {failure.mutation}: {failure.reason}")
        print(
            f"       nnburst fuzz models {' '.join(sources)}"
            f" --model '^{re.escape(failure.model)}$' --mutation '{re.escape(failure.mutation)}$'"
        )
