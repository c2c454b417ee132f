"""Writes what nnburst knows of the .tflite format: tables with their fields, and enumerations.

    pip install ai-edge-litert && python tools/tflite_format.py

The figures are read from the classes that the format's authors generate: for each field of a table its name,
its place in the table of fields, its kind and what it is if a file leaves it out.
"""

from __future__ import annotations

import ast
import importlib.util
import json
from pathlib import Path
from typing import Any, Final

TARGET: Final = Path(__file__).resolve().parent.parent / "src/nnburst/formats/format.json"
#: Suffixes of methods that say more of a vector's field.
_OF_VECTORS: Final = ("AsNumpy", "Length", "IsNone")


def main() -> None:
    """Read the classes and write the file."""
    spec = importlib.util.find_spec("ai_edge_litert")
    if spec is None or not spec.submodule_search_locations:
        raise SystemExit("ai-edge-litert is not installed")
    source = Path(spec.submodule_search_locations[0], "schema_py_generated.py")
    tables, enumerations = read_format(source.read_text(encoding="utf-8"))
    text = json.dumps({"tables": tables, "enumerations": enumerations}, separators=(",", ":"))
    TARGET.write_text(text.replace('},"', '},\n"') + "\n", encoding="utf-8")
    print(f"{len(tables)} tables, {len(enumerations)} enumerations, {TARGET.stat().st_size} bytes")


def read_format(source: str) -> tuple[dict[str, dict[str, list[Any]]], dict[str, dict[str, int]]]:
    """Tables and enumerations of the generated classes."""
    tables: dict[str, dict[str, list[Any]]] = {}
    enumerations: dict[str, dict[str, int]] = {}
    for node in ast.parse(source).body:
        if not isinstance(node, ast.ClassDef) or node.name.endswith("T"):
            continue
        methods = [one for one in node.body if isinstance(one, ast.FunctionDef)]
        if any(one.name == "Init" for one in methods):
            tables[node.name] = _fields(methods)
        elif not methods:
            enumerations[node.name] = _members(node)
    return tables, enumerations


def _members(node: ast.ClassDef) -> dict[str, int]:
    found = {}
    for one in node.body:
        if isinstance(one, ast.Assign) and isinstance(one.targets[0], ast.Name):
            found[one.targets[0].id] = int(ast.literal_eval(one.value))
    return found


def _fields(methods: list[ast.FunctionDef]) -> dict[str, list[Any]]:
    """Name: place, kind, and the number or the table that it is about."""
    names = {one.name for one in methods}
    found = {}
    for one in methods:
        text = ast.unparse(one)
        if "_tab.Offset(" not in text or one.name.endswith(_OF_VECTORS):
            continue
        place = int(text.partition("_tab.Offset(")[2].partition(")")[0])
        found[one.name] = [place, *_kind(text, one, f"{one.name}Length" in names)]
    return found


def _kind(text: str, method: ast.FunctionDef, is_vector: bool) -> list[Any]:
    if "_tab.Union(" in text:
        return ["union"]
    if "_tab.String(" in text:
        return ["strings" if is_vector else "string"]
    if "_tab.Indirect(" in text:
        return ["tables" if is_vector else "table", text.partition("obj = ")[2].partition("(")[0]]
    number = text.partition("number_types.")[2]
    while not number.partition(")")[0].partition(",")[0].endswith("Flags") or number.startswith(
        "UOffset"
    ):
        number = number.partition("number_types.")[2]
    name = number.partition("Flags")[0].lower()
    if is_vector:
        return ["numbers", name]
    last = method.body[-1]
    assert isinstance(last, ast.Return)
    assert last.value is not None
    return ["number", name, ast.literal_eval(last.value)]


if __name__ == "__main__":
    main()
