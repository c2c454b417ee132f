"""Compiles plugins for engines, and programs in C that load them, with the sanitizers."""

from __future__ import annotations

import os
import runpy
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
FLAGS = ["-std=c11", "-O1", "-g", "-D_GNU_SOURCE", "-fsanitize=address,undefined"]
FLAGS += ["-fno-sanitize-recover=all", "-DNNBURST_NO_TRACE_POINTS", "-Icsrc"]
FLAGS += ["-Isrc/nnburst/capi/include", "-Isrc/nnburst/executor/include"]


def compiled(words: list[str]) -> None:
    """Run gcc in the checkout."""
    done = subprocess.run(
        ["gcc", *FLAGS, *words], capture_output=True, text=True, cwd=ROOT, timeout=600
    )
    assert done.returncode == 0, done.stderr


def compiled_plugin(name: str, folder: Path) -> Path:
    """A library of csrc/build.py, by its file's name."""
    path = folder / name
    build = runpy.run_path(str(ROOT / "csrc" / "build.py"))
    (row,) = [each for each in build["LIBRARIES"] if each.path.endswith(f"/{name}")]
    sources = [f"csrc/{source}" for source in row.sources]
    script = next(word for word in row.link if "version-script" in word)
    compiled(["-fPIC", "-shared", *sources, script, "-lpthread", "-ldl", "-o", str(path)])
    return path


def compiled_host(name: str, folder: Path) -> Path:
    """A program of csrc/tests."""
    path = folder / name
    compiled([f"csrc/tests/{name}.c", "-ldl", "-lm", "-o", str(path)])
    return path


def output_of(host: Path, *words: str) -> str:
    """The output of a program, which must succeed; its drivers run with this Python."""
    environment = os.environ | {
        "NNBURST_PYTHON": sys.executable,
        "ASAN_OPTIONS": "allocator_may_return_null=1",
    }
    done = subprocess.run(
        [str(host), *words],
        capture_output=True,
        text=True,
        env=environment,
        timeout=600,
        check=False,
    )
    assert done.returncode == 0, f"{words}: {done.stderr[-4000:]}"
    return done.stdout
