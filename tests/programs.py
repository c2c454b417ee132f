"""Runs programs of tests in processes of their own."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from nnburst.hal.utils import driver_environment

TESTS = Path(__file__).resolve().parent


def environ_of_tests() -> dict[str, str]:
    """The environment of a Python that may import what tests may."""
    return {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}


def driver_environ_of_tests() -> dict[str, str]:
    """The environment of a driver whose executor and models may be modules of the tests."""
    environment = driver_environment()
    path = [str(TESTS), environment.get("PYTHONPATH", "")]
    environment["PYTHONPATH"] = os.pathsep.join(filter(None, path))
    return environment


def run_program(code: str) -> str:
    """Run Python code that may import what tests may; its output, followed by its standard error."""
    done = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
        env=environ_of_tests(),
    )
    return done.stdout + done.stderr
