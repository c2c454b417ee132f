"""`python -m tools.wheels.trial DIST [PYTHON...]`: a wheel on every Python, without a compiler."""

from __future__ import annotations

import argparse
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from tools.wheels.compile import BuildFailed, run

#: A build that tries to compile anything fails.
_NO_COMPILER: Final = {"CC": "/bin/false", "CXX": "/bin/false"}
_OLDEST: Final = (3, 11)
_MINORS: Final = range(11, 20)


def main(argv: Sequence[str] | None = None) -> int:
    """Exit code 1 if nnburst cannot be installed for one of the Pythons, or fails its selftest there."""
    parser = argparse.ArgumentParser(prog="python -m tools.wheels.trial", description=__doc__)
    parser.add_argument("dist", type=Path, help="folder with wheels")
    parser.add_argument("pythons", nargs="*", help="interpreters (default: all that are found)")
    args = parser.parse_args(argv)
    failed = False
    for python in args.pythons or pythons():
        try:
            print(f"{version(python)}: {try_wheel(args.dist, python)}", flush=True)
        except BuildFailed as error:
            failed = True
            print(f"{python}: {error}", file=sys.stderr)
    return int(failed)


def pythons() -> list[str]:
    """Interpreters of this machine, one for each version from 3.11: on the path, and pyenv's."""
    candidates = [shutil.which(f"python3.{minor}") for minor in _MINORS]
    candidates += sorted(map(str, Path.home().glob(".pyenv/versions/3.*/bin/python")))
    found = {version(path): path for path in candidates if path and works(path)}
    return [found[each] for each in sorted(found, key=_numbers) if _numbers(each) >= _OLDEST]


def works(python: str) -> bool:
    """Whether it is an interpreter that can make environments, and no shim for one that is missing."""
    command = [python, "-c", "import ensurepip, venv"]
    return subprocess.run(command, check=False, capture_output=True).returncode == 0  # noqa: S603


def version(python: str) -> str:
    """As the interpreter reports it."""
    return run(python, "-c", "import platform; print(platform.python_version())").strip()


def try_wheel(dist: Path, python: str) -> str:
    """Install nnburst from `dist` into a new environment, where nothing compiles, and run its selftest.

    Returns:
        The last line of the selftest.

    Raises:
        BuildFailed: what failed, with its output.
    """
    with tempfile.TemporaryDirectory() as scratch:
        run(python, "-m", "venv", scratch)
        binaries = Path(scratch) / "bin"
        install = ("install", "--quiet", "--only-binary", ":all:", "--find-links", dist.resolve())
        run(binaries / "python", "-m", "pip", *install, "nnburst[cli]", **_NO_COMPILER)
        output = run(binaries / "nnburst", "selftest", PATH=str(binaries))
    return output.strip().splitlines()[-1].strip()


def _numbers(text: str) -> tuple[int, ...]:
    return tuple(int(part) for part in text.split(".") if part.isdecimal())


if __name__ == "__main__":
    sys.exit(main())
