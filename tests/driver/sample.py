"""examples/driver_c, compiled for tests of drivers whose executor is in C."""

from __future__ import annotations

import subprocess
from pathlib import Path

from nnburst.cli.executor import INCLUDE

EXAMPLE = Path(__file__).resolve().parents[2] / "examples" / "driver_c"


def compile_example(folder: Path, *words: str) -> None:
    """Run the example's Makefile, with its results in `folder`."""
    command = ["make", "-s", "-C", str(EXAMPLE), f"OUT={folder}", f"EXECUTOR_CFLAGS=-I{INCLUDE}"]
    done = subprocess.run([*command, *words], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
