"""The header for executors in C: every compiler takes it, and it says what the package says."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import pytest

import nnburst.capi
from nnburst._native import lib
from nnburst.cli import main
from nnburst.cli.executor import INCLUDE, PKG_CONFIG_FOLDER
from nnburst.hal import enums
from nnburst.hal.limits import MAX_RANK, NO_TIMING

HEADER = INCLUDE / "nnburst" / "executor.h"
#: The folder of the header of clients.
CLIENTS = Path(nnburst.capi.__file__).parent / "include"
PROGRAM = """
#include <nnburst.h> /* of clients, which a program may use beside it */
#include <nnburst/executor.h>
static const struct nnburst_executor functions = {
    NNBURST_EXECUTOR_ABI, sizeof functions, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL,
    NULL, NULL, NULL, NULL};
NNBURST_EXPORT_EXECUTOR(functions)
"""
STRICT = ["-Wall", "-Wextra", "-Wpedantic", "-Wconversion", "-Wshadow", "-Werror"]
#: Each compiler with the languages that it is for.
COMPILERS = [
    *[("gcc", "c", f"c{year}") for year in (11, 17)],
    *[("clang", "c", f"c{year}") for year in (11, 17)],
    *[("g++", "c++", f"c++{year}") for year in (11, 17, 20)],
    *[("clang++", "c++", f"c++{year}") for year in (11, 17, 20)],
]


@pytest.mark.parametrize(("compiler", "language", "standard"), COMPILERS)
def test_header_compiles_without_a_warning(
    compiler: str, language: str, standard: str, tmp_path: Path
) -> None:
    if shutil.which(compiler) is None:
        pytest.skip(f"{compiler} is not installed")
    source = tmp_path / f"program.{'c' if language == 'c' else 'cpp'}"
    source.write_text(PROGRAM)
    folders = ["-I", str(INCLUDE), "-I", str(CLIENTS)]
    command = [compiler, f"-std={standard}", *STRICT, *folders, "-c", str(source)]
    subprocess.run([*command, "-o", str(tmp_path / "program.o")], check=True)


def enumerators(prefix: str) -> dict[str, int]:
    """The header's enumerators that begin so, without it."""
    found = re.findall(rf"^\s+{prefix}(\w+) = (\d+)", HEADER.read_text(), re.MULTILINE)
    return {name: int(value) for name, value in found}


def test_statuses_and_lifetimes_are_those_of_the_hal() -> None:
    named = enumerators("NNBX_")
    statuses = {s.name: int(s) for s in enums.ErrorStatus if s.name != "DEAD_OBJECT"}
    lifetimes = {t.name: int(t) for t in enums.OperandLifeTime if t.name != "POINTER"}
    types = {
        f"DEVICE_{t.name}": int(t) for t in enums.DeviceType if t is not enums.DeviceType.UNKNOWN
    }
    assert named == {**statuses, **lifetimes, **types}


def test_limits_are_those_of_the_package() -> None:
    assert lib.NNBX_MAX_RANK == MAX_RANK
    assert lib.NNBX_NOT_AVAILABLE == NO_TIMING
    assert lib.NNBX_MEASURED == NO_TIMING - 1


def test_command_prints_what_compilers_need(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["executor", "--cflags"]) == 0
    assert capsys.readouterr().out == f"-I{INCLUDE}\n"
    assert main(["executor", "--header"]) == 0
    assert Path(capsys.readouterr().out.strip()).samefile(HEADER)


@pytest.mark.skipif(shutil.which("pkg-config") is None, reason="needs pkg-config")
def test_pkg_config_finds_the_header() -> None:
    done = subprocess.run(
        ["pkg-config", "--cflags", "nnburst-executor"],
        env={"PKG_CONFIG_PATH": str(PKG_CONFIG_FOLDER), "PATH": "/usr/bin:/bin"},
        capture_output=True,
        text=True,
        check=True,
    )
    folder = Path(done.stdout.strip().removeprefix("-I"))
    assert (folder / "nnburst" / "executor.h").samefile(HEADER)
