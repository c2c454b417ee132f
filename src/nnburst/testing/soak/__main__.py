"""`python -m nnburst.testing.soak`: load a driver for hours, and see whether anything grows."""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path

from nnburst.testing.soak.campaign import Report, soak


def main(argv: list[str] | None = None) -> int:
    """Soak and report; 0 only if nothing grew and nothing failed."""
    parser = argparse.ArgumentParser(prog="python -m nnburst.testing.soak", description=__doc__)
    parser.add_argument("--seconds", type=float, default=3600.0, help="default: %(default)s")
    parser.add_argument("--executor", default="reference", help="default: %(default)s")
    parser.add_argument("--seed", type=int, default=0, help="of the deaths (default: %(default)s)")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write what was found")
    args = parser.parse_args(argv)
    report = soak(args.executor, args.seconds, args.seed)
    _print(report)
    if args.json:
        args.json.write_text(json.dumps(_facts(report), indent=1) + "\n")
    return 0 if report.passed else 1


def _print(report: Report) -> None:
    lines = [f"{report.seconds:.0f} s"]
    lines += [f"  {count:9} {name}" for name, count in report.counts.items()]
    lines += [f"  {count:9} rounds of {name}" for name, count in report.rounds.items()]
    lines.append(f"  {'first':>9} {'growth':>8} {'noise':>8}")
    for name, trend in report.trends.items():
        mark = "" if trend.is_flat else "   GROWS"
        lines.append(f"  {trend.first:9.1f} {trend.growth:+8.2f} {trend.noise:8.2f} {name}{mark}")
    lines += [f"error: {error}" for error in report.errors]
    lines.append("passed" if report.passed else "FAILED")
    sys.stdout.write("\n".join(lines) + "\n")


def _facts(report: Report) -> dict[str, object]:
    return {
        "seconds": round(report.seconds, 1),
        "counts": report.counts,
        "rounds": report.rounds,
        "errors": report.errors,
        "growing": report.growing,
        "trends": {
            name: {**trend._asdict(), "is_flat": trend.is_flat}
            for name, trend in report.trends.items()
        },
        "passed": report.passed,
    }


if __name__ == "__main__":
    sys.exit(main())
