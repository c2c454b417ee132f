"""The Python that processes of this package are started with."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from nnburst.hal.utils import interpreter


def test_a_python_starts_itself() -> None:
    assert interpreter() == sys.executable


@pytest.mark.parametrize("first_on_path", ["/bin/true", "", "/nonexistent/python3"])
def test_a_program_with_python_in_it_starts_the_python_of_its_prefix(
    first_on_path: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "executable", first_on_path)
    found = interpreter()
    command = [found, "-c", "import sys; print(sys.version_info[:2], sys.prefix)"]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert done.stdout.split(") ") == [f"{sys.version_info[:2]}"[:-1], f"{sys.prefix}\n"]


def test_without_a_python_of_the_prefix_sys_executable_is_taken(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "executable", "/bin/true")
    monkeypatch.setattr(sys, "exec_prefix", str(tmp_path))
    monkeypatch.setattr(sys, "base_exec_prefix", str(tmp_path))
    assert interpreter() == "/bin/true"
