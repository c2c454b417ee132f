"""Prints a map of the source: `python tools/map_page.py` writes docs/map.md's text to stdout.

Every folder and module with the first line of its docstring; in a folder, what is imported stands above what
imports it.
"""

from __future__ import annotations

import ast
import graphlib
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from source_trees import SOURCE, nodes, parsed

_HEAD: Final = """\
# Map

Where everything is: every folder and module of `src/nnburst` with the first line of its docstring. In a
folder, what is imported stands above what imports it. `tools/map_page.py` makes this page when the
documentation is built; `make map` prints it.
"""


def page(source: Path = SOURCE) -> str:
    """The page, in Markdown."""
    lines = [_HEAD]
    for place in _from_the_ground_up(source):
        if place.is_dir():
            lines += [f"\n## {place.name}/\n", f"{_first_line(place)}\n", *_rows(place, 0)]
    return "\n".join(lines) + "\n"


def _rows(folder: Path, depth: int) -> Iterator[str]:
    for place in _from_the_ground_up(folder):
        name = f"{place.name}/" if place.is_dir() else place.name
        yield f"{'  ' * depth}- `{name}`: {_first_line(place)}"
        if place.is_dir():
            yield from _rows(place, depth + 1)


def _from_the_ground_up(folder: Path) -> list[Path]:
    """Folders and modules of a folder, each below what it imports of the others."""
    places = {
        path.stem: path
        for path in sorted(folder.iterdir())
        if (path / "__init__.py").exists()
        or (path.suffix == ".py" and not path.stem.startswith("__"))
    }
    prefix = _dotted(folder)
    graph = {
        name: sorted({*_siblings_imported(place, prefix)} & places.keys() - {name})
        for name, place in places.items()
    }
    return [places[name] for name in graphlib.TopologicalSorter(graph).static_order()]


def _siblings_imported(place: Path, prefix: str) -> Iterator[str]:
    """Names directly below the package `prefix` that a module, or any module of a folder, imports."""
    for path in place.rglob("*.py") if place.is_dir() else (place,):
        if path.name == "__init__.py":
            continue  # a package's own names come from its rooms
        for node in nodes(parsed(path)):
            if isinstance(node, ast.ImportFrom) and node.module is not None:
                dotted = [f"{node.module}.{alias.name}" for alias in node.names]
            elif isinstance(node, ast.Import):
                dotted = [alias.name for alias in node.names]
            else:
                continue
            yield from (
                name.removeprefix(f"{prefix}.").split(".")[0]
                for name in dotted
                if name.startswith(f"{prefix}.")
            )


def _dotted(folder: Path) -> str:
    return ".".join(folder.relative_to(SOURCE.parent).parts)


def _first_line(place: Path) -> str:
    path = place / "__init__.py" if place.is_dir() else place
    text = ast.get_docstring(parsed(path)) or ""
    # A brace or a bracket is not a directive or link of the page's.
    return re.sub(r"([\[\]{}<>|*])", r"\\\1", text.split("\n", 1)[0])


if __name__ == "__main__":
    sys.stdout.write(page())
