"""`python -m cts SOURCES`: build CTS and run it against the library of this installation."""

from __future__ import annotations

import argparse
import json
import math
import os
import resource
import shutil
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from cts import report
from cts.build import build
from cts.devices import DEVICES, environment
from cts.expected import unexpected
from cts.program import cases
from cts.run import Results, run
from cts.sanitized import sanitized
from nnburst.capi.installed import LIBRARY_FOLDER
from nnburst.hal.errors import NnburstError


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m cts", description=__doc__)
    parser.add_argument("sources", type=Path, help="a checkout of Android's NeuralNetworks module")
    parser.add_argument("--out", type=Path, default=Path("build/cts"), help="objects and results")
    parser.add_argument(
        "--library", type=Path, default=LIBRARY_FOLDER, help="folder of the library"
    )
    parser.add_argument(
        "--sanitize",
        default="",
        help="sanitizers of gcc, such as address,undefined: CTS runs against a build of its own with them",
    )
    parser.add_argument("--what", choices=["core", "all"], default="core")
    parser.add_argument(
        "--devices",
        choices=DEVICES,
        help="the CPU alone, LiteRT before it, or two drivers before it that each refuse half;"
        " else what the environment has",
    )
    parser.add_argument("--shards", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument(
        "--patience", type=float, default=120, help="seconds that a case may be silent"
    )
    parser.add_argument("--filter", default="", help="run only cases that contain this")
    parser.add_argument("--every", type=int, default=1, help="run only one case in so many")
    parser.add_argument(
        "--minutes",
        type=float,
        default=math.inf,
        help="begin no further processes then; the next run goes on, and exit status 3 asks for it",
    )
    parser.add_argument("--fresh", action="store_true", help="forget the results of an earlier run")
    parser.add_argument("--json", type=Path, help="also write the figures as JSON")
    return parser.parse_args()


def main() -> int:
    """Build, run and report; 1 if a result is not as it must be, 3 if cases are left for the next run."""
    args = _arguments()
    out = args.out.resolve()
    library, variables = args.library, {"NNBURST_PYTHON": sys.executable}
    if args.sanitize:
        ours = sanitized(args.sanitize, out / "sanitized")
        library, variables = ours.library, dict(ours.environment)
    program = build(args.sources, out, library, generated=args.what == "all", jobs=args.shards)
    names = [name for name in cases(program, variables) if args.filter in name][:: args.every]
    with tempfile.TemporaryDirectory(prefix="cts-", ignore_cleanup_errors=True) as folder:
        if args.devices:
            variables |= environment(args.devices, Path(folder))
        return _run(args, out, program, names, variables)


def _run(
    args: argparse.Namespace,
    out: Path,
    program: Path,
    names: Sequence[str],
    variables: dict[str, str],
) -> int:
    kind = "-".join(filter(None, (args.what, args.devices)))
    results = Results(out / f"results-{kind}.jsonl", resume=not args.fresh)
    counts = out / f"executions-{kind}"
    if args.fresh:
        shutil.rmtree(counts, ignore_errors=True)
    counts.mkdir(exist_ok=True)
    began = time.monotonic()

    def progress(done: int) -> None:
        if done % 100 == 0:
            sys.stderr.write(f"{done} of {len(names)} cases\n")

    try:
        run(
            program,
            names,
            results,
            shards=args.shards,
            patience=args.patience,
            environment={**variables, "NNBURST_EXECUTION_COUNTS": str(counts)},
            progress=progress,
            until=began + args.minutes * 60,
        )
    finally:
        results.close()
    wanted = {name: results.by_name[name] for name in names if name in results.by_name}
    left = len(names) - len(wanted)
    facts = {
        "minutes": round((time.monotonic() - began) / 60, 1),
        "peak_mib": resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss // 1024,
        "cases": len(wanted),
        "left": left,
    }
    executions = report.added_up(counts)
    sys.stdout.write(report.text(wanted, executions, facts))
    if args.json:
        args.json.write_text(json.dumps(report.as_json(wanted, executions, facts), indent=2) + "\n")
    if unexpected(wanted):
        return 1
    return 3 if left else 0


if __name__ == "__main__":
    try:
        sys.exit(main())
    except NnburstError as error:
        sys.exit(f"nnburst: {error}")
