"""src/nnburst/_native.pyi is what csrc/cdef.h declares, and the built module has what it types."""

from __future__ import annotations

import ast
import sys
from pathlib import Path

from nnburst._native import lib

ROOT = Path(__file__).resolve().parents[2]
STUB = ROOT / "src" / "nnburst" / "_native.pyi"


def without_layout(text: str) -> str:
    """A module's text, as its formatting does not matter."""
    return ast.unparse(ast.parse(text))


def test_types_of_the_c_module_are_what_its_declarations_give() -> None:
    sys.path.insert(0, str(ROOT / "tools"))
    try:
        import native_types
    finally:
        sys.path.remove(str(ROOT / "tools"))
    written = without_layout(STUB.read_text(encoding="utf-8"))
    assert written == without_layout(native_types.stub()), (
        "run: python tools/native_types.py src/nnburst/_native.pyi && ruff format src/nnburst/_native.pyi"
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
