"""Executors in C for tests, compiled when a test asks for one."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from nnburst.cli.executor import INCLUDE

HERE = Path(__file__).resolve().parent


@pytest.fixture
def build(tmp_path: Path) -> Callable[..., Path]:
    """Compiles scripted.c with macros; gives the path of the library."""
    if shutil.which("gcc") is None:
        pytest.skip("needs gcc")

    def compile_with(name: str = "scripted", **macros: str) -> Path:
        library = tmp_path / f"lib{name}.so"
        words = [f"-D{macro}={value}" for macro, value in macros.items()]
        command = ["gcc", "-std=c11", "-O1", "-shared", "-fPIC", "-I", str(INCLUDE), *words]
        subprocess.run([*command, str(HERE / "scripted.c"), "-o", str(library)], check=True)
        return library

    return compile_with
