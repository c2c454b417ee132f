"""Executors in C for tests, compiled when a test asks for one."""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from kept_builds import kept_folder
from nnburst.cli.executor import INCLUDE

HERE = Path(__file__).resolve().parent


@pytest.fixture(scope="session")
def kept() -> Path:
    """The folder of the libraries that are compiled so far, by their macros."""
    if shutil.which("gcc") is None:
        pytest.skip("needs gcc")
    folder = kept_folder(
        "c_executors", [HERE / "scripted.c", *INCLUDE.rglob("*.h"), Path(__file__)]
    )
    folder.mkdir(parents=True, exist_ok=True)
    return folder


@pytest.fixture
def build(tmp_path: Path, kept: Path) -> Callable[..., Path]:
    """Compiles scripted.c with macros; gives the path of the library."""

    def compile_with(name: str = "scripted", **macros: str) -> Path:
        library = tmp_path / f"lib{name}.so"
        words = [f"-D{macro}={value}" for macro, value in macros.items()]
        made = kept / hashlib.sha256("\0".join(words).encode()).hexdigest()
        if not made.exists():
            unfinished = made.with_suffix(f".{os.getpid()}")
            command = ["gcc", "-std=c11", "-O1", "-shared", "-fPIC", "-I", str(INCLUDE), *words]
            subprocess.run([*command, str(HERE / "scripted.c"), "-o", unfinished], check=True)
            unfinished.replace(made)
        return Path(shutil.copy(made, library))  # a path of its own is a library of its own

    return compile_with
