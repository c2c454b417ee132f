"""Modules as syntax trees, parsed once for whatever looks at them in a process."""

from __future__ import annotations

import ast
import gc
from functools import cache
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).resolve().parent.parent
SOURCE: Final = ROOT / "src" / "nnburst"
TESTS: Final = ROOT / "tests"


def parsed(path: Path) -> ast.Module:
    """The tree of a file."""
    for folder in (SOURCE, TESTS):
        if path.is_relative_to(folder):
            return trees(folder)[path]
    return ast.parse(path.read_text(encoding="utf-8"))


@cache
def trees(folder: Path) -> dict[Path, ast.Module]:
    """The tree of every module below a folder, by its file, in the order of their paths.

    The garbage collector is kept from them: it would look through all of them again and again, which is four
    times the time while they are made, and a second in each collection of the process from then on.
    """
    enabled = gc.isenabled()
    gc.collect()
    gc.disable()
    try:
        files = sorted(folder.rglob("*.py"))
        found = {file: ast.parse(file.read_text(encoding="utf-8")) for file in files}
        gc.freeze()
    finally:
        if enabled:
            gc.enable()
    return found


@cache
def nodes(tree: ast.Module) -> tuple[ast.AST, ...]:
    """Every node of a module in the order of `ast.walk`, which takes a second for all modules."""
    return tuple(ast.walk(tree))
