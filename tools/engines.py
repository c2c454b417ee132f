"""Engines, numpy and Python over minor versions, one axis at a time: each runs the tests of what needs it.

    python -m tools.engines FOLDER [--only NAME==VERSION]

A version passes if the self-test at load takes it (the native route, for LiteRT), and the tests that compare
results with the reference executor's and the engine's own do. Versions of engines and of numpy are tried with
this Python, Pythons with the newest version of each engine. Prints a table; 1 if a version fails. A version
that has no wheel for a Python, and a Python that this machine lacks, are reported as that and are no failure.
"""

from __future__ import annotations

import argparse
import os
import platform
import re
import subprocess
import sys
import tomllib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from tools.wheels.trial import pythons, version

ROOT: Final = Path(__file__).resolve().parent.parent
#: Seconds that the tests of one version may take.
_PATIENCE: Final = 1800


@dataclass(frozen=True)
class Engine:
    """A distribution, its versions, and what tries them.

    Attributes:
        name: of the distribution.
        versions: as pip takes them: the newest of each minor version, or of all.
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
        ("==2.1.*", "==2.2.*", "==2.3.*"),
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
        ("==1.30.*", "==1.31.*", "==1.32.*"),
        "import onnxruntime; from nnburst.executor.onnxruntime.native import library;"
        "print(onnxruntime.__version__, 'native' if library() else 'refused')",
        ("executor/onnxruntime", "executor/test_engines.py"),
    ),
    Engine(
        "openvino",
        ("==2025.4.*", "==2026.4.*"),
        "from nnburst.executor.openvino import library; print(library().partition('-')[0], 'native')",
        (
            "executor/test_openvino.py",
            "executor/test_engines.py",
            "executor/onnxruntime/test_reals.py",
        ),
    ),
    Engine(
        "numpy",
        ("==1.26.*", "==2.2.*", "==2.4.*", ""),
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
PYTHONS: Final = ("3.11", "3.12", "3.13", "3.14")
#: Routes of a version that is not taken whole.
_LESSER: Final = ("", "interpreter", "refused")
#: How rows end that are no failure.
NO_WHEEL, NOT_HERE = _NOT_TRIED = ("no wheel", "not on this machine")


@dataclass(frozen=True)
class Row:
    """The outcome of one version of an engine on one Python.

    Attributes:
        engine: the distribution, as it was asked for.
        python: the Python's version.
        found: the version of the engine that was installed; empty if none was.
        route: by which the engine is used.
        outcome: how the tests ended, or why there were none.
    """

    engine: str
    python: str
    found: str = ""
    route: str = ""
    outcome: str = ""

    @property
    def failed(self) -> bool:
        """Whether it was tried, and is not taken whole or did not pass."""
        if self.outcome in _NOT_TRIED:
            return False
        passed = re.search(r"\bpassed\b", self.outcome)
        return self.route in _LESSER or not passed or bool(re.search("failed|error", self.outcome))

    def __str__(self) -> str:
        """As a row of the table."""
        return f"| {self.engine} | {self.python} | {self.found} | {self.route} | {self.outcome} |"


def main(arguments: Sequence[str]) -> int:
    """Print a line for each version; 1 if one of them fails."""
    parser = argparse.ArgumentParser(prog="python -m tools.engines", description=__doc__)
    parser.add_argument("folder", type=Path, help="where versions are installed, and stay")
    parser.add_argument("--only", help="NAME==VERSION of the table, or python==VERSION")
    args = parser.parse_args(arguments)
    failed = False
    print("| engine | Python | found | route | tests |\n|---|---|---|---|---|")
    for row in _rows(args.folder.absolute(), args.only):
        failed = failed or row.failed
        print(row, flush=True)
    return int(failed)


def _rows(folder: Path, only: str | None) -> Iterator[Row]:
    for engine in ENGINES:
        for wanted in (engine.name + each for each in engine.versions):
            if only in (None, wanted):
                yield _on_this_python(engine, wanted, folder)
    found = {version(path): path for path in pythons()}
    for minor in PYTHONS:
        if only in (None, f"python=={minor}"):
            path = next((p for each, p in found.items() if each.startswith(f"{minor}.")), None)
            for engine in ENGINES:
                yield _on_python(path, minor, engine, folder)


def _on_this_python(engine: Engine, wanted: str, folder: Path) -> Row:
    """A version of an engine, in a folder that comes before this environment's."""
    row = Row(wanted, platform.python_version())
    target = folder / re.sub(r"[^\w.-]+", "-", wanted)
    if not target.exists():
        problem = _install(sys.executable, "--no-deps", "--target", str(target), wanted)
        if problem:
            return replace(row, outcome=problem)
    return _tried(row, engine, sys.executable, str(target))


def _on_python(path: str | None, minor: str, engine: Engine, folder: Path) -> Row:
    """An engine's newest version on a Python, in an environment of its own."""
    row = Row(engine.name, minor)
    if path is None:
        return replace(row, outcome=NOT_HERE)
    row = replace(row, python=version(path))
    environment = folder / f"python-{minor}"
    python = str(environment / "bin" / "python")
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    extras = project["optional-dependencies"]
    if not environment.exists():
        _run(path, ["-m", "venv", str(environment)])
        for packages in environment.glob("lib/python3*/site-packages"):
            (packages / "nnburst.pth").write_text(str(ROOT / "src"))
    wanted = [*project["dependencies"], *extras["test"]]
    wanted += [
        each
        for name in ("litert", "onnxruntime", "openvino")
        for each in extras[name]
        if engine.name in each
    ]
    problem = _install(python, *wanted)
    return replace(row, outcome=problem) if problem else _tried(row, engine, python)


def _install(python: str, *words: str) -> str:
    """Install distributions without compiling anything; the problem, empty if there was none."""
    done = _run(
        python, ["-m", "pip", "install", "-q", "--upgrade", "--only-binary", ":all:", *words]
    )
    if done.returncode == 0:
        return ""
    return NO_WHEEL if "No matching distribution" in done.stderr else "cannot be installed"


def _tried(row: Row, engine: Engine, python: str, path: str = "") -> Row:
    """The row with the version that was found, its route, and how its tests ended."""
    checked = _run(python, ["-c", engine.check], path)
    if checked.returncode:
        return replace(row, route="refused", outcome=checked.stderr.strip().splitlines()[-1])
    found, _, route = checked.stdout.strip().partition(" ")
    tests = [f"tests/{each}" for each in engine.tests]
    words = ["-m", "pytest", "-q", "-n", "0", "-p", "no:cacheprovider", *tests]
    try:
        ended = _run(python, words, path)
    except subprocess.TimeoutExpired:
        return replace(row, found=found, route=route, outcome=f"not done after {_PATIENCE} s")
    lines = ended.stdout.strip().splitlines()
    outcome = lines[-1].split(" in ")[0] if lines else ended.stderr[-200:]
    return replace(row, found=found, route=route, outcome=outcome)


def _run(python: str, words: Sequence[str], path: str = "") -> subprocess.CompletedProcess[str]:
    return subprocess.run(  # noqa: S603
        [python, *words],
        check=False,
        cwd=ROOT,
        # Drivers of programs in C run on this Python, too.
        env={**os.environ, "NNBURST_PYTHON": python, **({"PYTHONPATH": path} if path else {})},
        text=True,
        capture_output=True,
        timeout=_PATIENCE,
    )


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
