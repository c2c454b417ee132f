"""The rule book: each rule that is cited has a row in docs/rules, and each row is cited."""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path
from typing import Final

ROOT = Path(__file__).resolve().parent.parent
RULES = ROOT / "docs" / "rules"
#: Page and prefix of each chapter.
PREFIXES: Final = {
    "validation": "validation",
    "device": "device",
    "burst": "burst",
    "runtime": "RT",
}
SOURCES: Final = ("src", "csrc", "tests", "docs", "tools", "contrib", "examples")
SUFFIXES: Final = {".py", ".c", ".h", ".md", ".in"}

_ID = r"(?:§[0-9]+(?:\.[0-9]+)?|[A-Z]{1,2}[0-9]+)"
_CITATION = re.compile(rf"\b(validation|device|burst|RT):({_ID}(?:(?:, | to | and ){_ID})*)")
_PAIR = re.compile(rf"({_ID}) to ({_ID})")
#: Chapters of mutations, which tools/rule_coverage.py counts, and rules that hold by being absent.
_MUTATIONS: Final = re.compile(r"V[MRB][0-9]+")


def expanded(text: str) -> set[str]:
    """The rules of "E2 to E4, E7": E2, E3, E4, E7."""
    found = set(re.findall(_ID, text))
    for first, last in _PAIR.findall(text):
        letters = first.rstrip("0123456789")
        numbers = range(
            int(first[len(letters) :]), int(last.lstrip("§ABCDEFGHIJKLMNOPQRSTUVWXYZ")) + 1
        )
        found |= {f"{letters}{number}" for number in numbers}
    return found


@cache
def cited() -> frozenset[tuple[str, str]]:
    found = set()
    for folder in SOURCES:
        for path in (ROOT / folder).rglob("*"):
            if path.suffix in SUFFIXES and RULES not in path.parents and "_build" not in path.parts:
                for prefix, rules in _CITATION.findall(path.read_text(encoding="utf-8")):
                    found |= {(prefix, rule) for rule in expanded(rules)}
    for folder in ("src/nnburst/hal", "src/nnburst/compat", "tests"):
        for path in (ROOT / folder).rglob("*.py"):
            found |= by_letters(path)
    return frozenset(found)


def by_letters(path: Path) -> set[tuple[str, str]]:
    """Rules that validation itself raises by their letters, and tests of them that are marked so."""
    raised = re.findall(
        r'(?:Broken|check_\w+|rule|by)\([^)]*?"([MOPRDS][0-9]+)"', path.read_text("utf-8")
    )
    return {("validation", rule) for rule in raised}


@cache
def rows() -> frozenset[tuple[str, str]]:
    found = set()
    for page, prefix in PREFIXES.items():
        for line in (RULES / f"{page}.md").read_text(encoding="utf-8").splitlines():
            cell = line.split("|")[1] if line.startswith("|") else ""
            if re.fullmatch(rf"\s*{_ID}(?:(?:, | to ){_ID})*\s*", cell):
                found |= {(prefix, rule) for rule in expanded(cell)}
    return frozenset(found)


def test_each_cited_rule_has_a_row() -> None:
    missing = {rule for rule in cited() - rows() if not _MUTATIONS.fullmatch(rule[1])}
    assert sorted(missing) == []


def test_each_row_is_cited() -> None:
    assert sorted(rows() - cited()) == []


def test_messages_cite_rules_with_their_prefix() -> None:
    bare = re.compile(r"\"(?:(?![:\"])[A-Z]{1,2})[0-9]+: ")
    found = []
    for path in (ROOT / "src").rglob("*.py"):
        if "testing" not in path.parts:
            found += [f"{path.name}: {text}" for text in bare.findall(path.read_text("utf-8"))]
    assert found == []


def test_docstrings_cite_rules_with_their_prefix() -> None:
    bare = re.compile(r"^ +[A-Z]\w+: [A-Z]{1,2}[0-9]+\b.*", re.MULTILINE)
    validation = ROOT / "src/nnburst/hal/validation"  # whose own rules these are
    assert [
        f"{path.name}: {line.strip()}"
        for path in (ROOT / "src").rglob("*.py")
        if validation not in path.parents
        for line in bare.findall(path.read_text("utf-8"))
    ] == []


def test_only_chapters_with_a_page_are_cited() -> None:
    known = {*PREFIXES.values(), "RTT"}  # RTT: rows of docs/features.md
    cited_chapters = re.compile(r"\b([A-Z]{2,4}):[A-Z]{0,2}[0-9]+\b")
    assert [
        f"{path.name}: {chapter}"
        for folder in ("src", "csrc", "tools")
        for path in (ROOT / folder).rglob("*")
        if path.suffix in SUFFIXES
        for chapter in cited_chapters.findall(path.read_text("utf-8"))
        if chapter not in known
    ] == []
