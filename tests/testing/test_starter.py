"""The package that `nnburst new-executor` writes: its tests pass, its executor conforms."""

from __future__ import annotations

import re
import subprocess
import sys
from importlib.resources import files
from pathlib import Path

import pytest

from nnburst.cli import main
from nnburst.hal.errors import InvalidArgument
from nnburst.testing.starter.write import write_package

PAGE = Path(__file__).resolve().parents[2] / "docs" / "testing_drivers.md"


def test_template_is_the_executor_that_the_manual_shows() -> None:
    shown = re.findall(r"^```python\n(.*?)^```", PAGE.read_text(), re.DOTALL | re.MULTILINE)[0]
    assert (files("nnburst.testing.starter") / "executor.py.in").read_text() == shown


def test_written_package_passes_its_tests(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert main(["new-executor", "my_adder", "--into", str(tmp_path)]) == 0
    assert "nnburst conformance --device my_adder" in capsys.readouterr().out
    monkeypatch.delenv("PYTEST_ADDOPTS", raising=False)
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider"]
    done = subprocess.run(command, cwd=tmp_path / "my_adder", capture_output=True, text=True)
    assert "2 passed" in done.stdout, done.stdout + done.stderr


@pytest.mark.parametrize("name", ["", "My-Adder", "1st", "reference"])
def test_name_that_is_not_a_module_is_refused(tmp_path: Path, name: str) -> None:
    with pytest.raises(InvalidArgument, match="name: "):
        write_package(name, tmp_path)


def test_folder_that_exists_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "mine").mkdir()
    with pytest.raises(InvalidArgument, match="exists already"):
        write_package("mine", tmp_path)
    assert not list((tmp_path / "mine").iterdir())
