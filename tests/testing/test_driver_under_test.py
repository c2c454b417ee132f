"""The folder of a driver that a test suite starts goes with it, also if start or end are interrupted."""

from __future__ import annotations

import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import NoReturn

import pytest

from nnburst.testing.driver_under_test import DriverUnderTest


@pytest.fixture(autouse=True)
def parent(monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The folder for temporary files; its path is short, as those of sockets must be."""
    with tempfile.TemporaryDirectory() as folder:
        monkeypatch.setenv("TMPDIR", folder)
        monkeypatch.setattr(tempfile, "tempdir", None)
        yield Path(folder)


def interrupt(*_: object, **_more: object) -> NoReturn:
    raise KeyboardInterrupt


def test_no_folder_is_left_by_an_interrupted_start(
    parent: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(subprocess, "Popen", interrupt)
    with pytest.raises(KeyboardInterrupt):
        DriverUnderTest.start("reference")
    assert list(parent.iterdir()) == []


def test_no_folder_is_left_by_an_interrupted_end(
    parent: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    driver = DriverUnderTest.start("reference")
    assert len(list(parent.iterdir())) == 1
    with monkeypatch.context() as patched, pytest.raises(KeyboardInterrupt):
        patched.setattr(subprocess.Popen, "wait", interrupt)
        driver.close()
    assert list(parent.iterdir()) == []
    driver.close()
