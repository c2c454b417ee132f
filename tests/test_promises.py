"""Promises that cannot rot: every number is there once; every test, word and file that is named exists."""

from __future__ import annotations

import ast
import json
import re
from functools import cache
from pathlib import Path

import pytest

from source_trees import nodes, parsed

ROOT = Path(__file__).resolve().parent.parent
DOCS = ROOT / "docs"
PAGES = ("promises.md", "assurance_case.md", "features.md")

TEST = re.compile(r"`(tests/[\w/]+\.py)::(\w+)`")
WORD = re.compile(r"`make ([a-z-]+)`")
FILE = re.compile(
    r"`((?:src|csrc|tests|docs|tools|examples|contrib|bench)/[\w./-]+?|\.ci/run)(?:::\w+)?`"
)
COMMAND = re.compile(r"`nnburst ([a-z]+)(?: ([a-z]+))?")

#: The table of threats has 23 rows, each of which is a promise.
PROMISES = [f"P{number}" for number in range(1, 31)]

#: Numbers of the features that the original's pages and types name, and of behaviours that its tests of the
#: framework pin down.
IDS = json.loads((ROOT / "tests" / "feature_ids.json").read_text(encoding="utf-8"))
#: Behaviours of a part that is not here; their rows say so.
ABSENT = {"RTT:Q3", "RTT:T3", "RTT:T4"}
#: Features of our own in the last table.
BEYOND = 8


def text(page: str) -> str:
    return (DOCS / page).read_text(encoding="utf-8")


def rows(page: str, number: str) -> list[list[str]]:
    """The cells of every row of a table that begins with a number of this form."""
    lines = re.findall(rf"^\| ({number}) \|(.*)\|$", text(page), re.MULTILINE)
    return [[first, *(cell.strip() for cell in rest.split(" | "))] for first, rest in lines]


@cache
def names_in(path: str) -> frozenset[str]:
    """Names of the tests in a file: functions, methods, and classes such as a state machine's."""
    file = ROOT / path
    if not file.is_file():
        return frozenset()
    names = set()
    for node in nodes(parsed(file)):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.name.startswith(
            "test_"
        ):
            names.add(node.name)
        elif isinstance(node, ast.Assign):
            names |= {target.id for target in node.targets if isinstance(target, ast.Name)}
    return frozenset(name for name in names if name.startswith(("test_", "Test")))


@pytest.mark.parametrize("page", PAGES)
def test_every_test_that_a_page_names_exists(page: str) -> None:
    named = TEST.findall(text(page))
    assert named
    assert [f"{path}::{name}" for path, name in named if name not in names_in(path)] == []


@pytest.mark.parametrize("page", PAGES)
def test_nothing_that_looks_like_a_test_escapes_the_check(page: str) -> None:
    spoken = re.findall(r"[\w./]+\.py::[\w\[\]-]+", text(page))
    assert spoken == [f"{path}::{name}" for path, name in TEST.findall(text(page))]


@pytest.mark.parametrize("page", PAGES)
def test_every_word_of_make_that_a_page_names_exists(page: str) -> None:
    words = re.findall(
        r"^([a-z-]+):", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE
    )
    assert [word for word in WORD.findall(text(page)) if word not in words] == []


@pytest.mark.parametrize("page", PAGES)
def test_every_file_that_a_page_names_exists(page: str) -> None:
    files = FILE.findall(text(page))
    assert [file for file in files if not (ROOT / file).exists()] == []


@pytest.mark.parametrize("page", PAGES)
def test_every_command_that_a_page_names_exists(page: str) -> None:
    cli = ROOT / "src" / "nnburst" / "cli"
    named = COMMAND.findall(text(page))
    assert [
        words
        for words in named
        if not (cli / f"{words[0]}.py").is_file()
        and not (cli / f"{words[0]}_{words[1]}.py").is_file()
    ] == []


def test_every_promise_is_there_once_in_order() -> None:
    assert [row[0] for row in rows("promises.md", r"P\d+")] == PROMISES


def test_every_promise_is_held_by_a_test_and_has_a_figure() -> None:
    for number, promise, held, _, figure in rows("promises.md", r"P\d+"):
        assert promise, number
        assert TEST.search(held), number
        assert figure, number


def is_campaign(path: str, name: str) -> bool:
    """Whether a test runs in `make campaign` only: it is marked so, or its file is."""
    mark = "pytest.mark.campaign"
    for node in parsed(ROOT / path).body:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            marks = map(ast.unparse, node.decorator_list if node.name == name else [])
        elif isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "pytestmark":
            marks = iter(re.findall(r"[\w.]+", ast.unparse(node.value)))
        else:
            continue
        if mark in marks:
            return True
    return False


def test_every_promise_names_the_targets_that_run_its_tests() -> None:
    for number, _, held, words, _ in rows("promises.md", r"P\d+"):
        needed = {"campaign" if is_campaign(*test) else "test" for test in TEST.findall(held)}
        assert needed == {"test", "campaign"} & set(WORD.findall(words)), number
        assert WORD.findall(held) == [], number


def test_pages_refer_only_to_promises_and_threats_that_are_there() -> None:
    threats = [row[0] for row in rows("assurance_case.md", r"T\d+")]
    assert threats == [f"T{number}" for number in range(1, len(threats) + 1)]
    for page in PAGES[:2]:
        assert set(re.findall(r"\bP\d+\b", text(page))) <= set(PROMISES)
        assert set(re.findall(r"\bT\d+\b", text(page))) <= set(threats)


def test_every_threat_is_answered() -> None:
    page = text("assurance_case.md")
    answers = page[page.index("## Weaknesses") :]
    unanswered = [row[0] for row in rows("assurance_case.md", r"T\d+") if row[0] not in answers]
    assert unanswered == []


def test_every_feature_is_there_once_and_has_a_test() -> None:
    table = rows("features.md", r"(?:RTT:)?[A-Z]\d+")
    own = [f"L{number}" for number in range(1, BEYOND + 1)]
    assert [row[0] for row in table] == [*IDS["features"], *IDS["runtime tests"], *own]
    for number, what, held in table:
        assert what, number
        assert bool(TEST.search(held)) == (number not in ABSENT), number
    assert len({row[0] for row in table}) == len(table)


@pytest.mark.shared
def test_the_list_of_features_is_that_of_the_reference_pages(shared_dir: Path) -> None:
    spec = shared_dir / "spec"
    features = (spec / "features.md").read_text(encoding="utf-8")
    behaviours = (spec / "runtime-tests.md").read_text(encoding="utf-8")
    assert {
        "features": re.findall(r"^\| ([A-J]\d+) \|", features, re.MULTILINE),
        "runtime tests": re.findall(r"^- \*\*(RTT:[A-Z]\d+)\*\*", behaviours, re.MULTILINE),
    } == IDS


def test_pages_are_in_each_others_reach() -> None:
    for page in PAGES[:2]:
        assert page in (ROOT / "SECURITY.md").read_text(encoding="utf-8")
    assert "features.md" in text("promises.md")
