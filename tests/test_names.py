"""One word, one thing: five verbs of ending, and class names that are unique within a layer."""

from __future__ import annotations

import ast
import re
from collections import defaultdict
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Final

from source_trees import nodes, parsed

SOURCE: Final = Path(__file__).resolve().parent.parent / "src" / "nnburst"

GLOSSARY: Final = SOURCE.parents[1] / "docs" / "glossary.md"

#: Verbs that once ended our objects. Now: close, release, cancel, abandon, fail (CONTRIBUTING).
ENDING_VERBS: Final = frozenset(
    """
    clean_up destroy discard dismiss disown dispose drop end_with expel finalise finalize forbid forget
    forsake free give_away give_back give_up hang_up kill_off leave_to_parent let_end let_go orphan put_back
    quit relinquish retire revoke shut_down stop surrender tear_down terminate unregister withdraw
    """.split()  # noqa: SIM905 - read as a list of words
)
#: Words of the HAL, of NNAPI and of the protocols that are spoken: those keep their names.
THEIR_WORDS: Final = frozenset({"free_memory", "unregister"})
#: Starts a driver's process, and nothing else.
LAUNCH: Final = frozenset({"client/launch.py", "__init__.py"})
#: Layers that carry NNAPI's names, which repeat.
CARRY_NNAPI_NAMES: Final = frozenset({"compat", "runtime"})


@cache
def trees() -> dict[str, ast.Module]:
    return {str(path.relative_to(SOURCE)): parsed(path) for path in sorted(SOURCE.rglob("*.py"))}


def methods() -> Iterator[tuple[str, str]]:
    """Every method: where it is, as `file.py:Class.method`, and its name without underscores."""
    for file, tree in trees().items():
        for class_ in (node for node in nodes(tree) if isinstance(node, ast.ClassDef)):
            for node in class_.body:
                if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                    yield f"{file}:{class_.name}.{node.name}", node.name.strip("_")


def begins_with(name: str, verbs: frozenset[str]) -> bool:
    """Whether a name is a verb, or a verb and its object."""
    return name == "end" or any(f"{name}_".startswith(f"{verb}_") for verb in verbs)


def test_what_ends_is_ended_by_one_of_five_verbs() -> None:
    found = [
        where
        for where, name in methods()
        if name not in THEIR_WORDS and begins_with(name, ENDING_VERBS)
    ]
    assert found == []


def test_only_a_process_is_launched() -> None:
    defined = [
        f"{file}:{node.name}"
        for file, tree in trees().items()
        if file not in LAUNCH
        for node in nodes(tree)
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef)
        and "launch" in node.name.lower()
    ]
    assert defined == []


def test_a_class_name_has_one_meaning_in_its_layer() -> None:
    places: dict[tuple[str, str], list[str]] = defaultdict(list)
    for file, tree in trees().items():
        layer = file.partition("/")[0]
        for node in tree.body:
            if isinstance(node, ast.ClassDef) and layer not in CARRY_NNAPI_NAMES:
                places[layer, node.name].append(file)
    assert {name: files for name, files in places.items() if len(files) > 1} == {}


def test_class_names_that_the_glossary_explains_stand_in_several_layers() -> None:
    layers: dict[str, set[str]] = defaultdict(set)
    for file, tree in trees().items():
        for node in tree.body:
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                layers[node.name].add(file.partition("/")[0])
    several = {name for name, found in layers.items() if len(found) > 1}
    table = GLOSSARY.read_text(encoding="utf-8").partition("## Classes of one name")[2]
    explained = set(re.findall(r"`([A-Z]\w+)`", table))
    assert len(explained) > 50
    assert explained <= several
