"""Programs that a test runs in a process of their own."""

from __future__ import annotations

import os
import subprocess
import sys


def environ_of_tests() -> dict[str, str]:
    """The environment of a Python that may import what tests may."""
    return {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}


def run_program(code: str) -> str:
    """Run Python code that may import what tests may, to its end; its output, and its errors behind it."""
    done = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
        env=environ_of_tests(),
    )
    return done.stdout + done.stderr
