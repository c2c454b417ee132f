"""Engines and numpy over minor versions: each, in a folder of its own, runs the tests of what needs it.

    python tools/engines.py FOLDER [--only NAME==VERSION]

A version passes if the self-test at load takes it (the native route, for LiteRT), and the tests that compare
results with the reference executor's and the engine's own do. Prints a table; 1 if a version fails.
"""

from __future__ import annotations

import argparse
import os
import re
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).resolve().parent.parent
#: Seconds that the tests of one version may take.
_PATIENCE: Final = 1800


@dataclass(frozen=True)
class Engine:
    """A distribution, its versions, and what tries them.

    Attributes:
        name: of the distribution.
        versions: as pip takes them; the newest of each minor version.
        check: prints the version and the route in a process that has it.
        tests: paths below tests/.
    """

    name: str
    versions: tuple[str, ...]
    check: str
    tests: tuple[str, ...]


ENGINES: Final = (
    Engine(
        "ai-edge-litert",
        ("2.1.*", "2.2.*", "2.3.*"),
        "from nnburst.executor.litert import native;"
        "print(native.package_version(), 'native' if native.available() else 'interpreter')",
        (
            "executor/litert/test_models.py",
            "executor/litert/test_native.py",
            "driver/weights",
            "litert_delegate",
        ),
    ),
    Engine(
        "onnxruntime",
        ("1.30.*", "1.31.*", "1.32.*"),
        "import onnxruntime; from nnburst.executor.onnxruntime.native import library;"
        "print(onnxruntime.__version__, 'native' if library() else 'refused')",
        ("executor/onnxruntime",),
    ),
    Engine(
        "openvino",
        ("2025.4.*", "2026.4.*"),
        "from nnburst.executor.openvino import library; print(library().partition('-')[0], 'native')",
        ("executor/test_openvino.py", "executor/onnxruntime/test_reals.py"),
    ),
    Engine(
        "numpy",
        ("1.26.*", "2.2.*", "2.4.*"),
        "import numpy, nnburst.executor.reference.executor;print(numpy.__version__, 'imported')",
        (
            "executor/test_numpy_functions.py",
            "executor/operations/test_lstm.py",
            "executor/operations/test_rnn.py",
            "executor/test_not_finite.py",
            "client/test_burst.py",
        ),
    ),
)
#: Routes of a version that is not taken whole.
_LESSER: Final = ("", "interpreter", "refused")


def main(arguments: Sequence[str]) -> int:
    """Print a line for each version; 1 if one of them fails."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path, help="where versions are installed, and stay")
    parser.add_argument("--only", help="NAME==VERSION of the table")
    args = parser.parse_args(arguments)
    failed = 0
    print("| engine | found | route | tests |\n|---|---|---|---|")
    for engine in ENGINES:
        for version in engine.versions:
            wanted = f"{engine.name}=={version}"
            if args.only in (None, wanted):
                found, route, outcome = _try(engine, wanted, args.folder)
                failed += route in _LESSER or "failed" in outcome or "passed" not in outcome
                print(f"| {wanted} | {found} | {route} | {outcome} |", flush=True)
    return 1 if failed else 0


def _try(engine: Engine, wanted: str, folder: Path) -> tuple[str, str, str]:
    """The version that was found, its route, and how its tests ended."""
    target = folder.absolute() / re.sub(r"[^\w.-]+", "-", wanted)
    install = ["-m", "pip", "install", "-q", "--no-deps", "--upgrade", "--target", str(target)]
    if not target.exists() and _run([*install, wanted], {}).returncode:
        return "", "", "cannot be installed"
    path = {"PYTHONPATH": str(target)}
    checked = _run(["-c", engine.check], path)
    if checked.returncode:
        return "", "refused", checked.stderr.strip().splitlines()[-1]
    found, _, route = checked.stdout.strip().partition(" ")
    tests = [f"tests/{each}" for each in engine.tests]
    ended = _run(["-m", "pytest", "-q", "-n", "0", "-p", "no:cacheprovider", *tests], path)
    lines = ended.stdout.strip().splitlines()
    return found, route, lines[-1].split(" in ")[0] if lines else ended.stderr[-200:]


def _run(words: Sequence[str], more: dict[str, str]) -> subprocess.CompletedProcess[str]:
    return subprocess.run(  # noqa: S603
        [sys.executable, *words],
        check=False,
        cwd=ROOT,
        env={**os.environ, **more},
        text=True,
        capture_output=True,
        timeout=_PATIENCE,
    )


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
