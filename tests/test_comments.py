"""House rules of the text: memory orders explained in pairs, files and functions short."""

from __future__ import annotations

import ast
import re
from collections import Counter
from functools import cache
from pathlib import Path
from statistics import median, quantiles
from typing import Final

from source_trees import nodes, parsed

ROOT = Path(__file__).resolve().parent.parent
PYTHON = sorted((ROOT / "src").rglob("*.py"))
C = sorted(
    path for path in (ROOT / "csrc").rglob("*.[ch]") if "tests" not in path.relative_to(ROOT).parts
)
TESTS = sorted((ROOT / "tests").rglob("*.py"))

LONGEST_FILE: Final = 800
LONGEST_FUNCTION: Final = 80
#: An explanation stands at most this many lines above the ordered access that it explains.
NEAR: Final = 12

SYNC_POINT = re.compile(r"SYNC POINT ([A-Z]+\d*)\b")
ORDERED_CALL = re.compile(
    r"\bnnb_(?:(?:load|store)_(?:acquire|release)_u\d+|fetch_\w+|fence|try_lock|unlock)\("
)
#: Words of a process's own memory; every other word that is read can be written by a peer.
PRIVATE_WORD = re.compile(
    r"\bnnb_\w+\((?:&\w+(?:->|\.)(?:waiter\.)?(?:attention|ready|suspended_on)|stop)\b"
)
READ_CALL = re.compile(r"\bnnb_(?:load|fetch)_\w+\(")
#: What a compiler offers to order memory; only atomics.h may name it.
MEMORY_ORDER = re.compile(r"\b(memory_order_\w+|atomic_\w+|__atomic_\w+|__sync_\w+|_Atomic)\b")
UNFINISHED = re.compile(r"\b(TODO|FIXME|XXX|HACK)\b")


def name(path: Path) -> str:
    return str(path.relative_to(ROOT))


@cache
def functions(path: Path) -> list[ast.FunctionDef | ast.AsyncFunctionDef]:
    kinds = (ast.FunctionDef, ast.AsyncFunctionDef)
    return [node for node in nodes(parsed(path)) if isinstance(node, kinds)]


def code_lines(function: ast.FunctionDef | ast.AsyncFunctionDef) -> int:
    """Lines from `def` to the end, less the docstring."""
    lines = (function.end_lineno or 0) - function.lineno + 1
    first = function.body[0]
    if ast.get_docstring(function) is not None:
        lines -= (first.end_lineno or 0) - first.lineno + 1
    return lines


def test_every_sync_point_has_a_partner() -> None:
    letters = Counter(letter for path in C for letter in SYNC_POINT.findall(path.read_text()))
    assert letters, "no SYNC POINT at all: the pattern no longer fits the sources"
    assert [letter for letter, count in letters.items() if count < 2] == []


def calls_without(comment: str, path: Path, call: re.Pattern[str]) -> list[str]:
    """The lines that match `call` and have no `comment` near above them."""
    lines = path.read_text().splitlines()
    return [
        f"{name(path)}:{number + 1}"
        for number, line in enumerate(lines)
        if call.search(line)
        and not PRIVATE_WORD.search(line if comment == "TRUST" else "")
        and not any(comment in above for above in lines[max(0, number - NEAR) : number + 1])
    ]


def test_every_ordered_access_has_a_comment_on_what_becomes_visible() -> None:
    others = [path for path in C if path.name != "atomics.h"]
    assert [
        line for path in others for line in calls_without("SYNC POINT", path, ORDERED_CALL)
    ] == []


def test_every_read_of_a_shared_word_has_a_comment_on_its_check() -> None:
    # The benchmark is its own peer.
    others = [path for path in C if path.name not in ("atomics.h", "bench.c")]
    assert [line for path in others for line in calls_without("TRUST", path, READ_CALL)] == []


def test_only_atomics_h_names_memory_orders() -> None:
    others = [path for path in C if path.name != "atomics.h"]
    named = {name(path): MEMORY_ORDER.findall(path.read_text()) for path in others}
    assert {path: orders for path, orders in named.items() if orders} == {}


def test_files_are_short() -> None:
    lines = {
        name(p): len(p.read_text(encoding="utf-8").splitlines()) for p in [*PYTHON, *C, *TESTS]
    }
    assert {path: count for path, count in lines.items() if count > LONGEST_FILE} == {}


def test_functions_are_short() -> None:
    lengths = {f"{name(p)}:{f.name}": code_lines(f) for p in PYTHON for f in functions(p)}
    assert {place: count for place, count in lengths.items() if count > LONGEST_FUNCTION} == {}


def test_most_files_and_functions_fit_on_a_page() -> None:
    files = [len(path.read_text(encoding="utf-8").splitlines()) for path in PYTHON]
    lengths = [code_lines(function) for path in PYTHON for function in functions(path)]
    assert 190 <= median(files) <= 250
    assert median(lengths) <= 10
    assert quantiles(lengths, n=10)[-1] <= 35


def test_nothing_is_left_unfinished() -> None:
    looked_at = [path for path in [*PYTHON, *C, *TESTS] if path != Path(__file__)]
    found = {name(p): UNFINISHED.findall(p.read_text(encoding="utf-8")) for p in looked_at}
    assert {path: words for path, words in found.items() if words} == {}
