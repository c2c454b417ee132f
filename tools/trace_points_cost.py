"""Measures what trace points that are off add to a round trip, by builds with and without them in turn.

    python tools/trace_points_cost.py FOLDER [--rounds N] [--json FILE]

Two builds have the points and one has none (NNBURST_TRACE_POINTS=0); those that FOLDER has already are not
made anew. A client of each, with a driver of its own, executes `null_1in1out` in short blocks, one build
after the other in each round. Of a block the time counts that a tenth of its single executions keep below,
and only blocks count in which both sides were awake: on a machine that others use most executions wait for a
core. Prints how the medians with and without differ, and those of the two with, which is what two builds of
one commit differ by. Ends with 1 if the points cost more than 2 % and more than that, and with 2 if too few
blocks were awake.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Final

import numpy as np

ROOT: Final = Path(__file__).resolve().parent.parent
#: Builds by name, and whether they have trace points.
BUILDS: Final = {"with": "1", "with, again": "1", "without": "0"}
#: Executions of a block, and the percent of them that keep below what counts.
_BLOCK: Final = 400
_SHARE: Final = 10
#: A block was awake if it took less than so many times the quickest of all; how many are enough.
_ASLEEP: Final = 3.0
_ENOUGH: Final = 30
_CLIENT: Final = f"""
import os, sys
from contextlib import ExitStack
import numpy as np
import nnburst._native
from nnburst.bench.cases import Looped
from nnburst.bench.cases import adding_model, null_driver, open_bound, pinned

here, there = sorted(os.sched_getaffinity(0))[:2]
with ExitStack() as stack:
    device = stack.enter_context(null_driver(there))
    stack.enter_context(pinned(here))
    _, bound = open_bound(stack, device, adding_model(1, 1))
    case = Looped("null_1in1out", bound.run)
    print(nnburst._native.__file__, flush=True)
    for _ in sys.stdin:
        print(float(np.percentile(case.samples({_BLOCK}), {_SHARE})), flush=True)
"""


def build(name: str, folder: Path) -> Path:
    """A copy of the sources with a C module of its own; the folder that PYTHONPATH names.

    Raises:
        CalledProcessError: it does not compile.
    """
    target = folder / name.replace(", ", "_")
    if not target.exists():
        shutil.copytree(ROOT / "csrc", target / "csrc", ignore=shutil.ignore_patterns("tests"))
        shutil.copytree(
            ROOT / "src", target / "src", ignore=shutil.ignore_patterns("*.so", "__pycache__")
        )
        for file in ("setup.py", "pyproject.toml", "README.md", "LICENSE", "NOTICE"):
            shutil.copy(ROOT / file, target)
        subprocess.run(
            [sys.executable, "-W", "ignore", "setup.py", "--quiet", "build_ext", "--inplace"],
            cwd=target,
            env={**os.environ, "NNBURST_TRACE_POINTS": BUILDS[name]},
            check=True,
        )
    return target / "src"


@contextmanager
def client(path: Path) -> Iterator[subprocess.Popen[str]]:
    """A process that executes a block whenever it gets a line, and prints what it took."""
    process = subprocess.Popen(  # noqa: S603 - this interpreter, a program of this file
        [sys.executable, "-c", _CLIENT],
        env={**os.environ, "PYTHONPATH": str(path)},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    with process:
        found = _line(process)
        if not found.startswith(str(path)):
            raise RuntimeError(f"{path}: the client took {found}")
        yield process


def block(process: subprocess.Popen[str]) -> float:
    """Nanoseconds of one execution that did not wait for a core."""
    assert process.stdin is not None
    process.stdin.write("go\n")
    process.stdin.flush()
    return float(_line(process))


def _line(process: subprocess.Popen[str]) -> str:
    assert process.stdout is not None
    return process.stdout.readline().strip()


def measure(folder: Path, rounds: int) -> dict[str, list[float]]:
    """Nanoseconds of each build in each round."""
    paths = {name: build(name, folder) for name in BUILDS}
    found: dict[str, list[float]] = {name: [] for name in BUILDS}
    with ExitStack() as stack:
        clients = {name: stack.enter_context(client(path)) for name, path in paths.items()}
        for turn in range(rounds):
            for name in list(clients)[:: 1 if turn % 2 == 0 else -1]:
                found[name].append(block(clients[name]))
    return found


def main() -> int:
    """Build, measure, print."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--rounds", type=int, default=600)
    parser.add_argument("--json", type=Path)
    parser.add_argument("--only-build", action="store_true")
    args = parser.parse_args()
    folder = args.folder.resolve()  # as clients name the module that they have found
    folder.mkdir(parents=True, exist_ok=True)
    if args.only_build:
        for name in BUILDS:
            build(name, folder)
        return 0
    found = {name: np.array(blocks) for name, blocks in measure(folder, args.rounds).items()}
    quickest = min(float(blocks.min()) for blocks in found.values())
    awake = {name: blocks[blocks < _ASLEEP * quickest] for name, blocks in found.items()}
    if args.json is not None:
        args.json.write_text(json.dumps({name: list(blocks) for name, blocks in found.items()}))
    for name, blocks in awake.items():
        print(f"{name}: {len(blocks)} of {len(found[name])} blocks awake", end="")
        quartiles = np.percentile(blocks, [25, 50, 75]) if len(blocks) else ()
        print("".join(f", {quartile:.0f} ns" for quartile in quartiles))
    if min(map(len, awake.values())) < _ENOUGH:
        print(f"noisy: fewer than {_ENOUGH} blocks of a build were awake")
        return 2
    plain, again, without = (float(np.median(blocks)) for blocks in awake.values())
    cost = (plain + again) / 2 / without - 1
    spread = again / plain - 1
    print(f"trace points that are off: {cost:+.2%}; two builds of one commit: {spread:+.2%}")
    return int(cost > max(0.02, abs(spread)))


if __name__ == "__main__":
    raise SystemExit(main())
