"""`nnburst bench prepare`: measures a driver from its start to the first result, and the engine's share.

Every figure comes from processes that have just been started. `prepare` is the first preparation in its
driver; `compile` is the engine's part of it, measured on the file in another new process. `from cache` is
the first preparation in a driver that finds the cache files of another one.
"""

from __future__ import annotations

import argparse
import importlib.util
import statistics
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Final

import nnburst
from nnburst.cli.options import Subparsers, at_least_one
from nnburst.cli.output import add_json_option, progress, table, text_for_people, write_json

_STEPS: Final = (
    "launch",
    "prepare",
    "open and bind",
    "first run",
    "start to first result",
    "prepare again",
    "prepare and save",
    "from cache",
    "open and try",
    "compile",
)


def prepare_parser(subparsers: Subparsers) -> None:
    """Add the command's parser to `subparsers`."""
    parser = subparsers.add_parser(
        "prepare", help="from the start of a driver to its first result", description=__doc__
    )
    parser.add_argument("networks", nargs="+", type=Path, help=".tflite files")
    parser.add_argument(
        "--rounds", type=at_least_one, default=9, help="starts of each network (default: 9)"
    )
    add_json_option(parser)


def run(args: argparse.Namespace) -> int:
    """Measure the starts, print the table, and write the JSON."""
    if find_spec("ai_edge_litert") is None:
        print("bench prepare needs ai-edge-litert: pip install 'nnburst[litert]'")
        return 1
    for path in args.networks:
        nnburst.load(path)  # what is no network is refused before the first process starts
    with text_for_people(args.json):
        with progress("starts", args.rounds * len(args.networks)) as advance:
            found = [_measure(path, args.rounds, advance) for path in args.networks]
        columns = ["network", *_STEPS, "prepare - compile", "from cache / prepare"]
        rows = [
            [n["network"], *(f"{n[c]:.1f}" for c in columns[1:-1]), f"{n[columns[-1]]:.2f}"]
            for n in found
        ]
        table("milliseconds, medians of the rounds", columns, rows)
        if not _is_bytecode_kept():
            print("without cached bytecode: an installed package has it and starts faster")
    write_json(args.json, {"bytecode": _is_bytecode_kept(), "networks": found})
    return 0


def _measure(path: Path, rounds: int, advance: Any) -> dict[str, Any]:  # noqa: ANN401
    from nnburst.bench.preparing import measure

    laps: list[dict[str, float]] = []
    for _ in range(rounds):
        sides = [measure(side, path) for side in ("driver", "cached", "engine")]
        laps.append(sides[0] | sides[1] | sides[2])
        advance(1)
    return {
        "network": path.stem,
        **{step: statistics.median(lap[step] for lap in laps) for step in _STEPS},
        "from cache / prepare": statistics.median(
            lap["from cache"] / lap["prepare"] for lap in laps
        ),
        "prepare - compile": statistics.median(lap["prepare"] - lap["compile"] for lap in laps),
        "cases": [
            {"name": step, "blocks_ns": [1e6 * lap[step] for lap in laps]} for step in _STEPS
        ],
    }


def _is_bytecode_kept() -> bool:
    """Whether Python finds the package's modules compiled, as .pyc files."""
    return Path(importlib.util.cache_from_source(nnburst.__file__)).exists()
