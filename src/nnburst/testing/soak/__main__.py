"""`python -m nnburst.testing.soak`: load a driver for hours, and see whether anything grows."""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path

from nnburst.testing.soak.campaign import soak
from nnburst.testing.soak.report import SoakReport


def main(argv: list[str] | None = None) -> int:
    """Soak and report; 0 only if nothing grew and nothing failed."""
    parser = argparse.ArgumentParser(prog="python -m nnburst.testing.soak", description=__doc__)
    parser.add_argument("--seconds", type=float, default=3600.0, help="default: %(default)s")
    parser.add_argument("--executor", default="reference", help="default: %(default)s")
    parser.add_argument("--seed", type=int, default=0, help="of the deaths (default: %(default)s)")
    parser.add_argument(
        "--json", type=Path, metavar="FILE", help="write what was found there, with all samples"
    )
    parser.add_argument(
        "--again", type=Path, metavar="FILE", help="judge the samples of such a file, and load none"
    )
    args = parser.parse_args(argv)
    if args.json:
        args.json.touch()  # a file that cannot be written shall not be found out after hours
    if args.again:
        report = SoakReport.of(json.loads(args.again.read_text()))
    else:
        report = soak(args.executor, args.seconds, args.seed)
    if args.json:
        args.json.write_text(json.dumps(report.facts()) + "\n")
    sys.stdout.write(report.text())
    return 0 if report.passed else 1


if __name__ == "__main__":
    sys.exit(main())
