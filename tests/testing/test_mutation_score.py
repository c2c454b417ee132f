"""Small faults in a tiny project: weak tests let them live, strong ones do not."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from mutation_score.__main__ import main
from mutation_score.campaign import score
from mutation_score.mutants import mutants

MODULE = '''"""A tiny module."""

LIMIT = 8


def allowed(size: int) -> bool:
    """Whether it fits."""
    if size > LIMIT:
        raise ValueError(f"{size} is more than 8")
    return 0 < size
'''
WEAK = """
from tiny.area.sizes import allowed

def test_a_small_size_is_allowed():
    assert allowed(4)
"""
STRONG = """
import pytest
from tiny.area.sizes import LIMIT, allowed

def test_a_small_size_is_allowed():
    assert allowed(1) and allowed(8) and LIMIT == 8

def test_nothing_is_not_a_size():
    assert allowed(0) is False

def test_a_large_size_is_refused():
    with pytest.raises(ValueError):
        allowed(9)
"""


def tiny_project(folder: Path, tests: str, module: str = MODULE) -> Path:
    package = folder / "src" / "tiny" / "area"
    package.mkdir(parents=True)
    (package.parent / "__init__.py").touch()
    (package / "__init__.py").touch()
    (package / "sizes.py").write_text(module)
    (folder / "tests" / "area").mkdir(parents=True)
    (folder / "tests" / "area" / "test_sizes.py").write_text(tests)
    return folder


def changes(source: str) -> list[tuple[str, str]]:
    return [(mutant.before, mutant.after) for mutant in mutants("m.py", source)]


@pytest.mark.campaign
def test_a_weak_test_lets_mutants_live_and_the_original_is_not_touched(tmp_path: Path) -> None:
    root = tiny_project(tmp_path, WEAK)
    found = score(root, "area", package="tiny")
    lived = {(mutant.before, mutant.after) for mutant in found.survivors}
    assert ("size > LIMIT", "size >= LIMIT") in lived
    assert ("0 < size", "0 <= size") in lived
    assert any(before.startswith("raise") for before, _ in lived)
    assert ("0 < size", "0 >= size") not in lived
    assert found.tried == found.mutants
    assert found.percent < 90
    assert (root / "src" / "tiny" / "area" / "sizes.py").read_text() == MODULE


@pytest.mark.campaign
def test_a_strong_test_kills_all_mutants(tmp_path: Path) -> None:
    found = score(tiny_project(tmp_path, STRONG), "area/sizes", jobs=2, package="tiny")
    assert found.survivors == []
    assert found.percent == 100
    assert found.mutants > 8
    assert "tests/area/test_sizes.py::test_nothing_is_not_a_size" in {
        test for _, test in found.killed
    }


@pytest.mark.campaign
def test_a_mutant_that_hangs_is_killed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("mutation_score.worker._START", 0.5)
    module = "def count(n):\n    while n > 0:\n        n -= 1\n    return n\n"
    tests = "from tiny.area.sizes import count\n\ndef test_it_ends():\n    assert count(3) == 0\n"
    found = score(tiny_project(tmp_path, tests, module), "area", package="tiny")
    assert "(hung)" in {verdict for _, verdict in found.killed}


@pytest.mark.campaign
def test_tests_that_fail_by_themselves_score_nothing(tmp_path: Path) -> None:
    failing = "def test_it():\n    assert False\n"
    with pytest.raises(RuntimeError, match="::test_it fails without any mutant"):
        score(tiny_project(tmp_path, failing), "area", package="tiny")


def test_a_part_that_is_not_there_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="neither a folder nor a module"):
        score(tiny_project(tmp_path, WEAK), "elsewhere", package="tiny")


@pytest.mark.campaign
def test_the_command_prints_survivors_and_fails_below_the_limit(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    root, file = tiny_project(tmp_path / "project", WEAK), tmp_path / "scores.json"
    words = ["area", "--root", str(root), "--package", "tiny", "--seed", "3", "--json", str(file)]
    assert main([*words, "--sample", "12"]) == 1
    assert "  survived: area/sizes.py:" in capsys.readouterr().out
    (plain,) = json.loads(file.read_text())
    assert (plain["seed"], plain["tried"]) == (3, 12)
    assert plain["percent"] < 90


@pytest.mark.parametrize(
    ("source", "change"),
    [
        ("def f(a): return a < 1", ("a < 1", "a <= 1")),
        ("def f(a): return a == 1", ("a == 1", "a != 1")),
        ("def f(a, b): return a and b", ("a and b", "a or b")),
        ("def f(a, b): return a and b", ("a and b", "b")),
        ("def f(a): return not a", ("not a", "a")),
        ("def f(a): return a + 2", ("a + 2", "a - 2")),
        ("def f(a): return a + 2", ("2", "3")),
        ("def f(a): return min(a, 3)", ("min(a, 3)", "max(a, 3)")),
        ("def f(a): return min(a, 3)", ("min(a, 3)", "a")),
        ("def f(a):\n    if a: g()", ("a", "True")),
        ("def f(a):\n    if a: raise ValueError", ("raise ValueError", "")),
        ("def f(a): return a", ("return a", "return None")),
        ("def f(a):\n    a.b = 1", ("a.b = 1", "")),
        ("def f(a):\n    a.close()", ("a.close()", "")),
        ("def f(a):\n    a += 1", ("a += 1", "a -= 1")),
        ("f = [a for a in b if a]", ("for a in b if a", "for a in b")),
        ("def f():\n    x = 1\n    x = 2\n    return x", ("x = 2", "")),
    ],
)
def test_a_mistake_of_each_kind_is_made(source: str, change: tuple[str, str]) -> None:
    assert change in [(before.strip(), after.strip()) for before, after in changes(source)]


@pytest.mark.parametrize(
    "source",
    [
        '"""Text."""',
        "def f() -> 'int | None':\n    '''Text.'''",
        "def __repr__(self): return 1 + 2",
        "def f(): assert 1 < 2",
        "def f(): log.warning('%d', 1)",
        "def f(a): a = 1",
        "x: tuple[int | None, 3]",
        "X = int | None",
        "__slots__ = (1,)",
        "@dataclass(frozen=True)\nclass C: pass",
    ],
)
def test_what_no_behaviour_depends_on_is_left_alone(source: str) -> None:
    allowed = {("1", "2"), ("1", "0")} if source.endswith("a = 1") else set()
    assert set(changes(source)) <= allowed


def test_every_mutant_is_a_program_of_its_own() -> None:
    sources = [mutant.source for mutant in mutants("m.py", MODULE)]
    assert len(set(sources)) == len(sources)
    for source in sources:
        compile(source, "m.py", "exec")
