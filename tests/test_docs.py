"""Documentation that cannot rot: links lead somewhere, examples run, targets and commands exist."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

import cli_page
import map_page
import messages_page
import nnburst
import pictures
from nnburst.cli import GROUPS

ROOT = Path(__file__).resolve().parent.parent
PAGES = sorted(
    path
    for path in [*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")]
    if "_build" not in path.relative_to(ROOT).parts
    and path.name not in ("commands.md", "map.md", "messages.md")
)

API = ROOT / "docs" / "api.md"

LINK = re.compile(r"\[[^\]]*\]\(([^)#\s]+)(?:#[^)]*)?\)")
ANCHOR = re.compile(r"\[[^\]]*\]\(([^)#\s]*)#([^)\s]+)\)")
HEADING = re.compile(r"^#{1,6} (.+)$", re.MULTILINE)
EXAMPLE = re.compile(r"^```python\n(.*?)^```", re.DOTALL | re.MULTILINE)
MAKE_WORD = re.compile(r"\bmake ([a-z]+(?:-[a-z]+)*)\b")
PATH = re.compile(r"`((?:src|csrc|tests|docs|tools|bench|examples)/[\w./-]+)`")


def name(path: Path) -> str:
    return str(path.relative_to(ROOT))


def text(page: Path) -> str:
    return page.read_text(encoding="utf-8")


def test_relative_links_lead_to_files() -> None:
    links = [(page, link) for page in PAGES for link in LINK.findall(text(page))]
    inside = [(page, link) for page, link in links if "://" not in link]
    assert inside
    assert [(name(p), link) for p, link in inside if not (p.parent / link).exists()] == []


def anchors(page: Path) -> set[str]:
    """What a link to a heading of the page can end with, as forges and our site make it."""
    headings = HEADING.findall(
        re.sub(r"^```.*?^```", "", text(page), flags=re.DOTALL | re.MULTILINE)
    )
    plain = (re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading).lower() for heading in headings)
    return {re.sub(r"[^\w -]", "", heading).strip().replace(" ", "-") for heading in plain}


def test_anchors_of_links_are_headings() -> None:
    links = [(page, *link) for page in PAGES for link in ANCHOR.findall(text(page))]
    inside = [(page, link, anchor) for page, link, anchor in links if "://" not in link]
    targets = [
        (page, (page.parent / link) if link else page, anchor) for page, link, anchor in inside
    ]
    assert [
        (name(page), f"{target.name}#{anchor}")
        for page, target, anchor in targets
        if target.suffix == ".md" and anchor not in anchors(target)
    ] == []


def test_page_of_commands_has_every_command_with_its_options() -> None:
    page = cli_page.page()
    missing = [command for command in commands() if f"## nnburst {command}\n" not in page]
    assert missing == []
    assert "| `--json FILE` |" in page


@pytest.mark.parametrize("file", pictures.PICTURES)
def test_picture_is_what_its_tool_draws(file: str) -> None:
    drawn = (ROOT / "docs" / "images" / file).read_text()
    assert drawn == pictures.PICTURES[file](), "python tools/pictures.py"


def test_page_of_messages_has_errors_and_lines_of_the_log() -> None:
    page = messages_page.page()
    assert "| `bits is 0, expected at least one bit` | `fmq/event_flag.py` |" in page
    assert "| `worker {pid} ended with {code}` | `driver/service/supervisor.py` |" in page


def test_map_has_every_module_below_its_folder() -> None:
    page = map_page.page()
    source = ROOT / "src" / "nnburst"
    modules = [path for path in source.rglob("*.py") if not path.stem.startswith("__")]
    inside = [path for path in modules if path.parent != source]
    assert page.count(".py`: ") == len(inside)
    assert "\n- `messages/`: The messages of the control channel" in page
    assert "\n  - `message.py`: What every message is made of.\n" in page


def test_no_package_keeps_a_table_of_its_modules() -> None:
    row = re.compile(r"^\w+(?:/|\.py)? {2,}\S", re.MULTILINE)
    packages = list((ROOT / "src" / "nnburst").rglob("__init__.py"))
    assert packages
    assert [str(path) for path in packages if row.search(text(path))] == []


def test_paths_that_are_named_exist() -> None:
    paths = [(page, path) for page in PAGES for path in PATH.findall(text(page))]
    named = [(page, path) for page, path in paths if "NAME" not in path]
    assert named
    assert [(name(page), path) for page, path in named if not (ROOT / path).exists()] == []


def test_tables_begin_with_their_heading() -> None:
    rule = re.compile(r"\|[-:| ]+\|")
    cut = []
    for page in [*PAGES, ROOT / "bench" / "README.md"]:
        lines = re.sub(r"```.*?```", "", text(page), flags=re.DOTALL).splitlines()
        for above, row, below in zip(["", *lines], lines, [*lines[1:], ""], strict=False):
            if row.startswith("|") and not above.startswith("|") and not rule.fullmatch(below):
                cut.append((name(page), row[:60]))
    assert cut == []


def test_targets_of_make_that_are_named_exist() -> None:
    makefile = (ROOT / "Makefile").read_text()
    targets = set(re.findall(r"^([a-z-]+):", makefile, re.MULTILINE))
    assert [(name(p), word) for p in PAGES for word in make_targets(p) - targets] == []


def make_targets(page: Path) -> set[str]:
    """The words after `make` in what is set as code."""
    named = re.findall(r"`[^`]*`|```.*?```", text(page), re.DOTALL)
    return {word for code in named for word in MAKE_WORD.findall(code)}


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


def readme_example_output(number: int, folder: Path) -> list[str]:
    """What one of the README's examples prints."""
    example = EXAMPLE.findall((ROOT / "README.md").read_text())[number]
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", example],
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


TUTORIALS = {
    "first_burst": ["[[10. 20. 30.]]", "[[1009. 1019. 1029.]]"],
    "camera": [f"{2.0 * number}" for number in range(10)],
    "own_executor": ["[2. 4. 6. 8.]"],
}


def typed_in(page: str, folder: Path) -> list[str]:
    """What the code of a tutorial prints, typed in as it stands, in an empty folder."""
    code = "\n".join(EXAMPLE.findall((ROOT / "docs" / "tutorial" / f"{page}.md").read_text()))
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", code],
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


@pytest.mark.parametrize("page", TUTORIALS)
def test_tutorial_typed_in_as_it_stands_prints_what_it_promises(page: str, tmp_path: Path) -> None:
    assert typed_in(page, tmp_path) == TUTORIALS[page]


def test_tutorial_of_a_network_file_runs(tmp_path: Path) -> None:
    pytest.importorskip("ai_edge_litert")
    from nnburst.testing.models.tflite_networks import NETWORKS

    (tmp_path / "network.tflite").write_bytes(NETWORKS["RELU-FLOAT32"]())
    assert typed_in("tflite_network", tmp_path)[-1] == "float32"


def test_every_page_is_in_the_menu() -> None:
    menu = (ROOT / "docs" / "index.md").read_text()
    pages = {
        str(path.relative_to(ROOT / "docs").with_suffix(""))
        for path in (ROOT / "docs").rglob("*.md")
        if "_build" not in path.parts
    }
    listed = set(re.findall(r"^([\w/.-]+)$", menu, re.MULTILINE))
    apart = {"index", "adr/template", *(page for page in pages if page.startswith("adr/0"))}
    assert pages - apart == listed & pages


def test_readme_example_of_compiling_runs(tmp_path: Path) -> None:
    pytest.importorskip("ai_edge_litert")
    from nnburst.testing.models.tflite_networks import NETWORKS

    (tmp_path / "network.tflite").write_bytes(NETWORKS["RELU-FLOAT32"]())
    lines = readme_example_output(0, tmp_path)
    assert lines[0].split()[:2] == ["step", "device"]


def test_readme_example_of_a_driver_runs(tmp_path: Path) -> None:
    first, *last = readme_example_output(1, tmp_path)
    assert first == "[[1. 2. 3. 4.]]"
    assert last[0].startswith("[[ 999. 1000. 1001. 1002.]] Timing(")
