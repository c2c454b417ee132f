"""Compiles and runs C and C++ programs against libneuralnetworks.so."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, TypeAlias

import msgspec
import pytest

from capi.interface import CInterface
from nnburst.capi import entry, installed
from nnburst.hal.types import OperandPerformance, PerformanceInfo
from nnburst.runtime import Execution, Manager
from nnburst.runtime.devices.driver_device import DriverDevice
from shared_drivers import connect_to

#: Compiles a source text with a compiler of this name; the program.
Compile: TypeAlias = Callable[..., Path]
#: Runs a program to its end; what it printed, stderr behind stdout.
Run: TypeAlias = Callable[..., "subprocess.CompletedProcess[str]"]


def found_compiler(name: str) -> str | None:
    """Path of a compiler, also if it is installed by its version only, as clang++-16; None if it is not."""
    folders = map(Path, os.get_exec_path())
    versions = {
        int(path.name.rpartition("-")[2])
        for folder in folders
        for path in folder.glob(f"{name}-[0-9]*")
        if path.name.removeprefix(f"{name}-").isdigit()
    }
    names = [name, *(f"{name}-{version}" for version in sorted(versions, reverse=True))]
    return next(filter(None, map(shutil.which, names)), None)


def compiled(
    text: str, program: Path, compiler: str, library: Path, words: list[str], libraries: list[str]
) -> Path:
    """Compile C, or C++ if the compiler's name has a +; skips without compiler or library.

    Args:
        text: text of the source, which is written beside the program.
        program: path of the program.
        compiler: name of the compiler.
        library: library that the program is linked to.
        words: further options of the compiler.
        libraries: linker options after the source.
    """
    command = found_compiler(compiler)
    if command is None:
        pytest.skip(f"no {compiler}")
    if not library.is_file():
        pytest.skip(f"no {library}: this nnburst was built without")
    source = program.with_name(f"{program.name}.{'cpp' if '+' in compiler else 'c'}")
    source.write_text(text)
    strict = ["-Wall", "-Wextra", "-Werror", "-D_GNU_SOURCE"]
    strict.append("-Wno-unused-function")  # of the pieces of programs.py
    done = subprocess.run(
        [
            command,
            *words,
            *strict,
            installed.cflags(),
            str(source),
            "-o",
            str(program),
            *libraries,
            "-lpthread",
        ],
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    return program


@pytest.fixture
def compile_program(tmp_path: Path) -> Compile:
    """Compiles C, or C++ if the compiler's name has a +; skips without compiler or library."""

    def compile_(text: str, *flags: str, compiler: str = "gcc", name: str = "program") -> Path:
        words = ["-std=c++11" if "+" in compiler else "-std=c99", "-pedantic"]
        libraries = [*flags, *installed.libs().split()]
        return compiled(text, tmp_path / name, compiler, installed.LIBRARY, words, libraries)

    return compile_


@pytest.fixture
def run_compiled(tmp_path: Path) -> Run:
    """Runs a program with this installation behind the library and no other device than the CPU."""

    def run(
        program: Path, *args: str, timeout: float = 120, **environment: str
    ) -> subprocess.CompletedProcess[str]:
        base = {k: v for k, v in os.environ.items() if not k.startswith("NNBURST_")}
        return subprocess.run(
            [str(program), *args],
            cwd=tmp_path,
            env={**base, "NNBURST_PYTHON": sys.executable, "NNBURST_CPUONLY": "1", **environment},
            capture_output=True,
            text=True,
            check=False,
            timeout=timeout,
        )

    return run


@pytest.fixture
def c(monkeypatch: pytest.MonkeyPatch) -> Iterator[CInterface]:
    """The library over one reference driver that costs less than the CPU."""
    if not installed.LIBRARY.is_file():
        pytest.skip(f"no {installed.LIBRARY}: this nnburst was built without")
    driver = DriverDevice(lambda: connect_to("reference"))
    half = PerformanceInfo(0.5, 0.5)
    cheap = msgspec.structs.replace(
        driver.capabilities,
        operand_performance=tuple(
            OperandPerformance(known.type, half)
            for known in driver.capabilities.operand_performance
        ),
    )
    monkeypatch.setattr(driver, "capabilities", cheap)
    with Manager([driver]) as manager:
        monkeypatch.setattr(Manager, "_one", manager)
        yield CInterface()


@pytest.fixture
def computations(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Names of the framework's computations as they are called."""
    called: list[str] = []
    for name in ("compute", "burst_compute", "_compute_bound"):
        way = getattr(Execution, name)

        def count(self: Execution, *args: Any, name: str = name, way: Any = way) -> None:
            called.append(name)
            way(self, *args)

        monkeypatch.setattr(Execution, name, count)
    return called


@pytest.fixture
def python_calls(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Names of the calls that the library hands on to Python, as they come."""
    called: list[str] = []
    code = entry._code

    def count(what: str, carry_out: Callable[[], int | None]) -> int:
        called.append(what.removeprefix("ANeuralNetworks"))
        return code(what, carry_out)

    monkeypatch.setattr(entry, "_code", count)
    return called
