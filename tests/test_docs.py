"""Documentation that cannot rot: links lead somewhere, examples run, words and commands exist."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

import nnburst
from nnburst.cli import GROUPS

ROOT = Path(__file__).resolve().parent.parent
PAGES = sorted(
    path
    for path in [*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")]
    if "_build" not in path.relative_to(ROOT).parts
)

API = ROOT / "docs" / "api.md"

LINK = re.compile(r"\[[^\]]*\]\(([^)#\s]+)(?:#[^)]*)?\)")
EXAMPLE = re.compile(r"^```python\n(.*?)^```", re.DOTALL | re.MULTILINE)
MAKE_WORD = re.compile(r"\bmake ([a-z]+)\b")
PATH = re.compile(r"`((?:src|csrc|tests|docs|tools|bench|examples)/[\w./-]+)`")


def name(path: Path) -> str:
    return str(path.relative_to(ROOT))


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_relative_links_lead_to_files(page: Path) -> None:
    targets = [link for link in LINK.findall(page.read_text()) if "://" not in link]
    assert [target for target in targets if not (page.parent / target).exists()] == []


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_paths_that_are_named_exist(page: Path) -> None:
    paths = [path for path in PATH.findall(page.read_text()) if "NAME" not in path]
    assert [path for path in paths if not (ROOT / path).exists()] == []


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_make_words_that_are_named_exist(page: Path) -> None:
    makefile = (ROOT / "Makefile").read_text()
    named = re.findall(r"`[^`]*`|```.*?```", page.read_text(), re.DOTALL)
    words = {word for code in named for word in MAKE_WORD.findall(code)}
    assert [word for word in words if not re.search(rf"^{word}:", makefile, re.MULTILINE)] == []


def commands() -> set[str]:
    """The commands as they are typed: `demo`, `bench burst`."""
    names = set()
    for path in (ROOT / "src" / "nnburst" / "cli").glob("*.py"):
        if re.search(r"^def prepare_parser", path.read_text(), re.MULTILINE):
            group, _, rest = path.stem.partition("_")
            name = f"{group} {rest}" if group in GROUPS else path.stem
            names.add(name.replace("_", "-"))
    return names


def test_readme_lists_exactly_the_commands() -> None:
    text = (ROOT / "README.md").read_text()
    assert set(re.findall(r"^\| `nnburst ([a-z -]+)`", text, re.MULTILINE)) == commands()


def test_every_public_name_is_in_the_documentation() -> None:
    documented = set(re.findall(r"auto\w+:: nnburst\.(\w+)$", API.read_text(), re.MULTILINE))
    assert documented == set(nnburst.__all__)


def test_every_decision_record_is_in_the_list() -> None:
    records = {path.name for path in (ROOT / "docs" / "adr").glob("[0-9]*.md")}
    listed = set(LINK.findall((ROOT / "docs" / "adr" / "README.md").read_text()))
    assert records <= listed


def test_readme_example_runs(tmp_path: Path) -> None:
    (example,) = EXAMPLE.findall((ROOT / "README.md").read_text())
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", example],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert done.returncode == 0, done.stderr
    first, *last = done.stdout.splitlines()
    assert first == "[[1. 2. 3. 4.]]"
    assert last[0].startswith("[[ 999. 1000. 1001. 1002.]] Timing(")
