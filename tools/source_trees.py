"""The package's modules as syntax trees, parsed once for all tests of a process."""

from __future__ import annotations

import ast
import gc
from functools import cache
from pathlib import Path
from typing import Final

SOURCE: Final = Path(__file__).resolve().parent.parent / "src" / "nnburst"


def parsed(path: Path) -> ast.Module:
    """The tree of a file."""
    tree = package().get(path)
    return ast.parse(path.read_text(encoding="utf-8")) if tree is None else tree


@cache
def package() -> dict[Path, ast.Module]:
    """The tree of every module, by its file."""
    enabled = gc.isenabled()
    gc.disable()  # a collection would look through all trees, again and again: four times the time
    try:
        files = sorted(SOURCE.rglob("*.py"))
        return {file: ast.parse(file.read_text(encoding="utf-8")) for file in files}
    finally:
        if enabled:
            gc.enable()
