"""Runs programs of tests in processes of their own."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
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


_AS_USER = """
import json, os, sys
user, environment = int(sys.argv[1]), json.loads(sys.argv[2])
os.setgroups([])
os.setresgid(user, user, user)
os.setresuid(user, user, user)
os.execve(sys.argv[3], sys.argv[3:], environment)
"""


def as_user(user: int, words: Sequence[str], environment: Mapping[str, str]) -> list[str]:
    """A command of root's that becomes another user with a group of the same number, and runs `words`.

    With `user=`, subprocess forks as a program of its own does, and in a process with gRPC such a child
    dies of SIGSEGV now and then, in gRPC's handlers of forks.
    """
    return [sys.executable, "-I", "-c", _AS_USER, str(user), json.dumps(dict(environment)), *words]
