"""An installation whose C module and library are built with sanitizers, for CTS to run against."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import sysconfig
import venv
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from nnburst.hal.errors import GeneralFailure, InvalidArgument

ROOT: Final = Path(__file__).resolve().parents[2]
#: Any report ends the process, so that the case which caused it counts as crashed. What an interpreter leaves
#: behind when a process ends is not a leak of ours.
_OPTIONS: Final = {
    "ASAN_OPTIONS": "detect_leaks=0:abort_on_error=1",
    "UBSAN_OPTIONS": "halt_on_error=1:abort_on_error=1:print_stacktrace=1",
}


@dataclass(frozen=True)
class Sanitized:
    """A sanitized installation.

    Attributes:
        library: folder of libneuralnetworks.so.
        environment: variables of the processes that use it.
    """

    library: Path
    environment: Mapping[str, str]


def sanitized(sanitizers: str, out: Path) -> Sanitized:
    """Build the package with sanitizers, and an environment that has it in front of this one's packages.

    Args:
        sanitizers: as gcc has them, between commas: "address,undefined".
        out: where both go.

    Raises:
        InvalidArgument: there is no gcc.
        GeneralFailure: it does not compile; the compiler's message.
    """
    compiler = shutil.which("gcc")
    if compiler is None:
        raise InvalidArgument("gcc is not installed")
    packages = out / "packages"
    command = [sys.executable, "-W", "ignore", "setup.py", "--quiet", "build"]
    command += ["--build-lib", str(packages), "--build-temp", str(out / "temporary")]
    _run(command, {"NNBURST_SANITIZE": sanitizers})
    home = out / "environment"
    venv.create(home, with_pip=False)
    places = (packages, sysconfig.get_path("purelib"))
    version = f"python{sys.version_info.major}.{sys.version_info.minor}"
    site = home / "lib" / version / "site-packages" / "sanitized.pth"
    site.write_text("".join(f"{place}\n" for place in places), encoding="utf-8")
    runtime = _run([compiler, "-print-file-name=libasan.so"], {}).strip()
    return Sanitized(
        packages / "nnburst" / "capi" / "lib",
        {"NNBURST_PYTHON": str(home / "bin" / "python"), "LD_PRELOAD": runtime, **_OPTIONS},
    )


def _run(command: list[str], environment: Mapping[str, str]) -> str:
    done = subprocess.run(  # noqa: S603 - our own words
        command,
        cwd=ROOT,
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        raise GeneralFailure(f"{command[0]}: {done.stderr[-500:]}")
    return done.stdout
