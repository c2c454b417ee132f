"""src/nnburst/_native.pyi is what csrc/cdef.h declares, and the built module has what it types."""

from __future__ import annotations

import ast
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from nnburst._native import lib

ROOT = Path(__file__).resolve().parents[2]
STUB = ROOT / "src" / "nnburst" / "_native.pyi"


def test_types_of_the_c_module_are_what_its_declarations_give(tmp_path: Path) -> None:
    pytest.importorskip("ruff", reason="extra lint is not installed")
    tool, written = ROOT / "tools" / "native_types.py", tmp_path / STUB.name
    shutil.copy(ROOT / "pyproject.toml", tmp_path)  # how lines are laid out
    subprocess.run([sys.executable, str(tool), str(written)], check=True)
    assert written.read_text(encoding="utf-8") == STUB.read_text(encoding="utf-8"), (
        "run: python tools/native_types.py src/nnburst/_native.pyi"
    )


def test_c_module_has_all_that_its_types_name() -> None:
    tree = ast.parse(STUB.read_text(encoding="utf-8"))
    (library,) = (n for n in tree.body if isinstance(n, ast.ClassDef) and n.name == "_Lib")
    functions = {n.name for n in library.body if isinstance(n, ast.FunctionDef)}
    values = {
        n.target.id
        for n in library.body
        if isinstance(n, ast.AnnAssign) and isinstance(n.target, ast.Name)
    }
    assert functions
    assert values
    assert [name for name in sorted(functions | values) if not hasattr(lib, name)] == []
