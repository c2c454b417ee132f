"""One wheel, by zig as cross compiler: nothing of this machine's C library gets into it."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Final

from tools.wheels.target import Target

ROOT: Final = Path(__file__).resolve().parents[2]
#: What zig has compiled of C libraries; the second build takes seconds.
_CACHE: Final = ROOT / "build" / "zig"
_NOT_SOURCES: Final = shutil.ignore_patterns(
    ".*", "build", "dist", "*.egg-info", "*.so", "__pycache__", "results", "_build"
)
_SECONDS: Final = 600
#: Left out of the environment: they would change what is compiled.
_FLAGS: Final = ("CFLAGS", "CPPFLAGS", "LDFLAGS", "NNBURST_SANITIZE", "NNBURST_TRAPS")


class BuildFailed(Exception):
    """A command failed; the message is what it has printed."""


def run(*command: object, **environment: str) -> str:
    """Output of a command that must succeed, with `environment` on top of this process's."""
    inherited = {name: value for name, value in os.environ.items() if name not in _FLAGS}
    done = subprocess.run(  # noqa: S603
        [str(word) for word in command],
        env=inherited | environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
        timeout=_SECONDS,
    )
    if done.returncode:
        raise BuildFailed(f"{command}:\n{done.stdout}")
    return done.stdout


def compile_wheel(target: Target, folder: Path) -> Path:
    """Compile the sources of this checkout for `target`, from a copy of their own.

    Args:
        target: the machine.
        folder: where the wheel goes.

    Returns:
        The wheel's path, with all symbols but the exported ones stripped.
    """
    compiler = f"{sys.executable} -m ziglang cc -target {target.zig}"
    with tempfile.TemporaryDirectory() as scratch:
        source = Path(scratch) / "nnburst"
        shutil.copytree(ROOT, source, ignore=_NOT_SOURCES)
        made = Path(scratch) / "made"
        run(
            *(sys.executable, "-m", "build", "--no-isolation", "--wheel", "--outdir", made),
            *(f"--config-setting=--build-option=--plat-name={target.platform}", source),
            CC=compiler,
            LDSHARED=f"{compiler} -shared -s",
            ZIG_GLOBAL_CACHE_DIR=str(_CACHE),
            ZIG_LOCAL_CACHE_DIR=str(_CACHE / "local"),
        )
        (wheel,) = made.glob("*.whl")
        folder.mkdir(parents=True, exist_ok=True)
        return Path(shutil.copy(wheel, folder / wheel.name))
