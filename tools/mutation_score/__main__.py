"""Change a package in small ways and see which changes its tests notice."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from pathlib import Path

from mutation_score.campaign import Score, score


def main(argv: Sequence[str] | None = None) -> int:
    """Print the score of each part and the survivors; 0 only if all parts reach `--at-least`."""
    parser = argparse.ArgumentParser(prog="mutation_score", description=__doc__)
    parser.add_argument(
        "parts", nargs="+", metavar="PACKAGE", help="serialize, hal/validation, fmq/shared_memory"
    )
    parser.add_argument("--sample", type=int, metavar="N", help="mutants of each; default: all")
    parser.add_argument("--seed", type=int, default=0, help="which mutants a sample has")
    parser.add_argument("--jobs", type=int, default=1, metavar="N", help="mutants at once")
    parser.add_argument(
        "--at-least", type=float, default=90, metavar="PERCENT", help="default: %(default)s"
    )
    parser.add_argument("--root", type=Path, default=Path(), help="of the project (default: here)")
    parser.add_argument("--package", default="nnburst", help="its name (default: %(default)s)")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the scores there")
    parser.add_argument("--verbose", action="store_true", help="a line for each mutant")
    args = parser.parse_args(argv)
    progress = _print if args.verbose else lambda _line: None
    scores = []
    for part in args.parts:
        found = score(args.root, part, args.sample, args.seed, args.jobs, args.package, progress)
        scores.append(found)
        _print(
            f"{part}: {len(found.killed)} of {found.tried} killed ({found.percent:.1f} %),"
            f" of {found.mutants} mutants, seed {args.seed}, {found.seconds:.0f} s"
        )
        for mutant in found.survivors:
            _print(f"  survived: {mutant}")
    if args.json:
        args.json.write_text(json.dumps([_plain(found, args.seed) for found in scores], indent=1))
    return 0 if all(found.percent >= args.at_least for found in scores) else 1


def _print(line: str) -> None:
    print(line, flush=True)


def _plain(found: Score, seed: int) -> dict[str, object]:
    return {
        "part": found.part,
        "seed": seed,
        "mutants": found.mutants,
        "tried": found.tried,
        "percent": found.percent,
        "seconds": found.seconds,
        "killed": [f"{mutant}  {verdict}" for mutant, verdict in found.killed],
        "survivors": [str(mutant) for mutant in found.survivors],
    }


if __name__ == "__main__":
    sys.exit(main())
