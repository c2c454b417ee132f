"""Runs the wheel for musl on a Python for musl: selftest, which executes a burst, and suites.

    python -m tools.musl FOLDER [--suites hal,fmq] [--again]

The folder (about 1 GiB) keeps sources, Python and wheels, so that a second run is quick. LiteRT and
onnxruntime have no wheels for musl: what needs them skips. Wants gcc, make, apt-get and the keys of
Debian, and not root.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from tools.musl.python import MACHINE, VERSION, make, missing

ROOT: Final = Path(__file__).resolve().parents[2]
PLATFORM: Final = f"musllinux_1_2_{MACHINE}"
SUITES: Final = ("hal", "serialize", "fmq", "control", "client")
DEPENDENCIES: Final = (
    *("numpy", "cffi", "msgspec", "posix_ipc", "rich"),
    *("pytest", "hypothesis", "pytest-xdist"),
)


def main(argv: Sequence[str] | None = None) -> int:
    """Exit code 1 if anything fails, 2 if something to run it is missing."""
    parser = argparse.ArgumentParser(prog="python -m tools.musl", description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--suites", default=",".join(SUITES), help="folders and files below tests/")
    parser.add_argument("--again", action="store_true", help="with the wheel that is installed")
    args = parser.parse_args(argv)
    if lacking := missing():
        print(f"make musl wants {', '.join(lacking)}", file=sys.stderr)
        return 2
    folder = args.folder.resolve()
    binaries = folder / "venv" / "bin"
    if not args.again:
        install(make(folder / "python"), folder)
    failed = [] if passes(binaries / "nnburst", "selftest") else ["selftest"]
    for suite in filter(None, args.suites.split(",")):
        print(f"tests/{suite}", flush=True)
        words = ("-m", "pytest", "-q", "-p", "no:cacheprovider", f"tests/{suite}")
        failed += [] if passes(binaries / "python", *words) else [f"tests/{suite}"]
    print("failed: " + ", ".join(failed) if failed else "all passed")
    return int(bool(failed))


def install(python: Path, folder: Path) -> None:
    """Put wheels for musl, this checkout's among them, into a fresh environment, by that Python's own pip.

    Raises:
        subprocess.CalledProcessError: a command failed.
    """
    wheels, venv = folder / "wheels", folder / "venv"
    abis = (f"cp{VERSION.replace('.', '')}", "abi3", "none")
    wanted = ["--only-binary", ":all:", "--python-version", VERSION, "--platform", PLATFORM]
    wanted += [word for abi in abis for word in ("--abi", abi)]
    offline = ["install", "-q", "--no-index", "--find-links", wheels]
    own = [sys.executable, "-m"]  # that Python has no ssl
    for command in (
        [*own, "pip", "download", "-q", "-d", wheels, *wanted, *DEPENDENCIES],
        [*own, "tools.wheels", "--outdir", wheels, "--only", PLATFORM],
        [python, "-m", "venv", "--clear", venv],
        [venv / "bin" / "pip", *offline, *DEPENDENCIES, "nnburst"],
    ):
        subprocess.run(list(map(str, command)), cwd=ROOT, check=True)


def passes(*words: object) -> bool:
    """Run a program in this checkout, with its output shown; return whether it succeeded."""
    return subprocess.run(list(map(str, words)), cwd=ROOT, check=False).returncode == 0


if __name__ == "__main__":
    sys.exit(main())
