"""The package that `nnburst new-executor` writes: its tests pass, its executor conforms."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Callable
from importlib.resources import files
from pathlib import Path

import pytest

from nnburst.cli import main, parser
from nnburst.cli.new_executor import write_library, write_package
from nnburst.hal.errors import InvalidArgument

PAGE = Path(__file__).resolve().parents[2] / "docs" / "testing_drivers.md"


def test_template_is_the_executor_that_the_manual_shows() -> None:
    shown = re.findall(r"^```python\n(.*?)^```", PAGE.read_text(), re.DOTALL | re.MULTILINE)[0]
    assert (files("nnburst.testing") / "executor.py.in").read_text() == shown


@pytest.mark.campaign
def test_written_package_passes_its_tests(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert main(["new-executor", "my_adder", "--into", str(tmp_path)]) == 0
    assert "nnburst conformance --device my_adder" in capsys.readouterr().out
    monkeypatch.delenv("PYTEST_ADDOPTS", raising=False)
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider"]
    done = subprocess.run(command, cwd=tmp_path / "my_adder", capture_output=True, text=True)
    assert "2 passed" in done.stdout, done.stdout + done.stderr


@pytest.mark.parametrize("language", ["python", "c"])
def test_folder_with_a_space_is_quoted(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], language: str
) -> None:
    into = tmp_path / "of mine"
    assert main(["new-executor", "my_adder", "--language", language, "--into", str(into)]) == 0
    line = capsys.readouterr().out.partition("\n\n")[2].splitlines()[0]
    assert shlex.split(line)[:2] == ["cd", str(into / "my_adder")]


@pytest.mark.campaign
@pytest.mark.parametrize("language", ["python", "c"])
def test_lines_that_new_executor_prints_run_as_they_stand(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], language: str
) -> None:
    """As a user pastes them, one after the other; pip installs into a folder, and downloads nothing."""
    words = ["new-executor", "my_adder", "--language", language, "--into", str(tmp_path)]
    assert main(words) == 0
    lines = capsys.readouterr().out.partition("\n\n")[2].splitlines()
    assert len(lines) == 2
    site = tmp_path / "site"
    libraries = (
        site / "lib" / f"python{sys.version_info[0]}.{sys.version_info[1]}" / "site-packages"
    )
    programs = tmp_path / "bin"
    programs.mkdir()
    for name, module in (("nnburst", "nnburst"), ("pip", "pip"), ("pytest", "pytest")):
        (programs / name).write_text(f'#!/bin/sh\nexec "{sys.executable}" -m {module} "$@"\n')
        (programs / name).chmod(0o755)
    environment = {
        **os.environ,
        "PATH": f"{programs}:{Path(sys.executable).parent}:{os.environ['PATH']}",
        "PYTHONPATH": f"{libraries}:{tmp_path / 'my_adder' / 'src'}",
        "PIP_NO_BUILD_ISOLATION": "0",  # pip's way to say no isolation
        "PIP_NO_DEPS": "1",
        "PIP_PREFIX": str(site),
        "PYTHON": sys.executable,
        "PYTEST_ADDOPTS": "-p no:cacheprovider",
    }
    script = "set -e\n" + "\n".join(lines)
    done = subprocess.run(
        ["bash", "-c", script], cwd=tmp_path, env=environment, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "my_adder conforms" in done.stdout or "libmy_adder.so conforms" in done.stdout


@pytest.mark.parametrize("write", [write_package, write_library])
def test_commands_of_the_readme_are_spelt_as_they_are_parsed(
    tmp_path: Path, write: Callable[[str, Path], list[Path]]
) -> None:
    write("my_adder", tmp_path)
    text = (tmp_path / "my_adder" / "README.md").read_text()
    commands = re.findall(r"^    nnburst (.+)$", text, re.MULTILINE)
    assert len(commands) == 2
    for command in commands:
        words = command.split()
        parser(words).parse_args(words)


@pytest.mark.campaign
@pytest.mark.skipif(shutil.which("gcc") is None, reason="needs gcc")
def test_written_library_passes_its_tests(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert main(["new-executor", "my_adder", "--language", "c", "--into", str(tmp_path)]) == 0
    assert "nnburst conformance --device ./libmy_adder.so" in capsys.readouterr().out
    monkeypatch.delenv("PYTEST_ADDOPTS", raising=False)
    words = ["all", "check", f"PYTHON={sys.executable}", f"NNBURST={sys.executable} -m nnburst"]
    command = ["make", "-s", "-C", str(tmp_path / "my_adder"), *words]
    done = subprocess.run(command, capture_output=True, text=True)
    assert "2 passed" in done.stdout, done.stdout + done.stderr


@pytest.mark.parametrize("write", [write_package, write_library])
@pytest.mark.parametrize("name", ["", "My-Adder", "1st", "reference"])
def test_name_that_is_not_a_module_is_refused(
    tmp_path: Path, name: str, write: Callable[[str, Path], list[Path]]
) -> None:
    with pytest.raises(InvalidArgument, match="name: "):
        write(name, tmp_path)


@pytest.mark.parametrize("write", [write_package, write_library])
@pytest.mark.parametrize("name", ["class", "import", "nnburst", "numpy", "msgspec", "types"])
def test_name_that_python_or_nnburst_has_is_refused(
    tmp_path: Path, name: str, write: Callable[[str, Path], list[Path]]
) -> None:
    with pytest.raises(InvalidArgument, match=f"name: '{name}' is a keyword .* or a module"):
        write(name, tmp_path)


@pytest.mark.parametrize("write", [write_package, write_library])
@pytest.mark.parametrize("name", ["1a", "_a", "a" * 65])
def test_name_of_lower_case_is_refused_by_what_it_breaks(
    tmp_path: Path, name: str, write: Callable[[str, Path], list[Path]]
) -> None:
    with pytest.raises(InvalidArgument, match="a lower case letter, and up to 63 more"):
        write(name, tmp_path)
    assert write(name[:64].replace("1", "b").replace("_", "c"), tmp_path)


def test_folder_that_exists_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "mine").mkdir()
    with pytest.raises(InvalidArgument, match="exists already"):
        write_package("mine", tmp_path)
    assert not list((tmp_path / "mine").iterdir())
