"""Directories of a test's own, so that no driver and no cache of the user's is found."""

from __future__ import annotations

import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from nnburst.hal.utils import driver_environment
from nnburst.runtime import Manager

Serve = Callable[..., int]


@pytest.fixture(autouse=True)
def own_directories(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    for variable in ("XDG_CACHE_HOME", "XDG_CONFIG_HOME", "XDG_STATE_HOME"):
        monkeypatch.setenv(variable, str(tmp_path / variable.lower()))
    monkeypatch.setenv("NNBURST_DEVICES", "")
    with tempfile.TemporaryDirectory() as runtime:  # a socket's path is short
        monkeypatch.setenv("XDG_RUNTIME_DIR", runtime)
        yield


@pytest.fixture
def serve() -> Iterator[Serve]:
    """Starts drivers that any process of this user finds; they end with the test."""
    running: list[subprocess.Popen[bytes]] = []

    def start(name: str, executor: str = "reference") -> int:
        command = [sys.executable, "-m", "nnburst.driver", "--executor", executor, "--serve", name]
        process = subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, env=driver_environment()
        )
        running.append(process)
        assert process.stdout is not None
        process.stdout.readline()
        return process.pid

    yield start
    for process in running:
        process.kill()
        process.communicate(timeout=10)


@pytest.fixture
def manager() -> Iterator[Callable[..., Manager]]:
    """Makes managers that are closed in the end."""
    made: list[Manager] = []

    def make(*arguments: object, **options: object) -> Manager:
        made.append(Manager(*arguments, **options))  # type: ignore[arg-type]
        return made[-1]

    yield make
    for one in made:
        one.close()
