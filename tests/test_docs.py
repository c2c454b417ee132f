"""Documentation that cannot rot: links lead somewhere, examples run, targets and commands exist."""

from __future__ import annotations

import pkgutil
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

import cli_page
import map_page
import messages_page
import nnburst
import pictures
import roads_page
from nnburst.cli import GROUPS

ROOT = Path(__file__).resolve().parent.parent
#: Pages that the site's build writes.
GENERATED = ("commands.md", "map.md", "messages.md")
PAGES = sorted(
    path
    for path in [*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")]
    if "_build" not in path.relative_to(ROOT).parts and path.name not in GENERATED
)

API = ROOT / "docs" / "api.md"

LINK = re.compile(r"\[[^\]]*\]\(([^)#\s]+)(?:#[^)]*)?\)")
ANCHOR = re.compile(r"\[[^\]]*\]\(([^)#\s]*)#([^)\s]+)\)")
HEADING = re.compile(r"^#{1,6} (.+)$", re.MULTILINE)
EXAMPLE = re.compile(r"^```python\n(.*?)^```", re.DOTALL | re.MULTILINE)
MAKE_WORD = re.compile(r"\bmake ([a-z]+(?:-[a-z]+)*)\b")
DOTTED = re.compile(r"(?<![\w./-])nnburst(?:\.[A-Za-z_]\w*)+(?![\w/-])")
PATH = re.compile(r"`((?:src|csrc|tests|docs|tools|bench|examples)/[\w./-]+)`")

#: As pip takes them: of the package, and of a checkout.
NAMED_EXTRAS = re.compile(r"(?:nnburst|install (?:-q )?(?:-e )?['\"]?\.)\[([a-z, ]+)\]")

#: Headers, and what pkg-config reads.
FILES = ("nnburst.h", "nnburst.hpp", "nnburst.pc")
#: Groups of entry points, and a layer whose distribution need not be installed.
NO_MODULES = ("nnburst.executors", "nnburst.extensions", "nnburst.ray")


def name(path: Path) -> str:
    return str(path.relative_to(ROOT))


def text(page: Path) -> str:
    return page.read_text(encoding="utf-8")


def test_relative_links_lead_to_files() -> None:
    links = [(page, link) for page in PAGES for link in LINK.findall(text(page))]
    inside = [(page, link) for page, link in links if "://" not in link]
    assert inside
    made = {ROOT / "docs" / page for page in GENERATED}
    missing = [(p, link) for p, link in inside if not (p.parent / link).exists()]
    assert [(name(p), link) for p, link in missing if p.parent / link not in made] == []


def anchors(page: Path) -> set[str]:
    """The anchors of a page's headings, as forges and our site make them."""
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
    rows = re.findall(r"^\| \[`nnburst ([a-z -]+)`\]", page, re.MULTILINE)
    assert sorted(rows) == sorted(commands())
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
    assert "\n- `messages.py`: The messages of the control channel" in page
    assert "\n- `burst/`: " in page
    assert "\n  - `core.py`: Keeps the state of one burst" in page


@pytest.mark.parametrize(
    "address",
    [
        "nnburst.executor.base.Prepared",
        "nnburst.executor.null.NullExecutor",
        "nnburst.executor.graph.operation.OperationDefinition",
        "nnburst.executor.graph.extension.VendorExtension",
        "nnburst.executor.graph.tensor.Tensor",
        "nnburst.testing.plugin.pytest_addoption",
        "nnburst.driver.__main__",
        "nnburst.serving.__main__",
    ],
)
def test_address_that_others_type_stays(address: str) -> None:
    assert is_there(address)


def test_dotted_names_that_pages_print_exist() -> None:
    pages = [*ROOT.glob("*.md"), *(ROOT / "docs").glob("*.md"), ROOT / "Makefile"]
    named = {
        (name(page), dotted)
        for page in pages
        if page.name not in ("CHANGELOG.md", *GENERATED)
        for dotted in DOTTED.findall(text(page))
        if not dotted.startswith(NO_MODULES) and dotted not in FILES
    }
    assert named
    assert sorted((page, dotted) for page, dotted in named if not is_there(dotted)) == []


def is_there(dotted: str) -> bool:
    """Whether a dotted name is a module or a name in one."""
    try:
        pkgutil.resolve_name(dotted)
    except (ImportError, AttributeError):
        return False
    return True


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


def test_extras_that_texts_name_exist() -> None:
    extras = set(tomllib.loads(text(ROOT / "pyproject.toml"))["project"]["optional-dependencies"])
    files = [*PAGES, *(ROOT / "src").rglob("*.py"), *(ROOT / "tools").rglob("*.py")]
    files += [*(ROOT / "contrib").rglob("*"), *(ROOT / "examples").rglob("*.py"), ROOT / "Makefile"]
    named = [
        (name(file), extra)
        for file in files
        if file.is_file()
        for words in NAMED_EXTRAS.findall(text(file))
        for extra in re.split(r"[, ]+", words)
    ]
    assert named
    assert [(file, extra) for file, extra in named if extra not in extras] == []


def test_messages_quote_extras_for_shells_that_take_brackets_as_patterns() -> None:
    lines = [
        (name(path), line.strip())
        for path in (ROOT / "src").rglob("*.py")
        for line in text(path).splitlines()
        if "pip install" in line
    ]
    assert lines
    assert [(path, line) for path, line in lines if "install nnburst[" in line] == []


def test_commands_that_messages_name_exist() -> None:
    """In the source, between backticks: hints, descriptions, log lines."""
    known = commands()
    named = {
        (name(path), words)
        for path in (ROOT / "src").rglob("*.py")
        for words in re.findall(r"`nnburst ((?:[a-z][a-z-]*)(?: [a-z]+)?)", text(path))
    }
    assert named
    missing = [
        (path, words)
        for path, words in sorted(named)
        if words not in known and words.split()[0] not in {each.split()[0] for each in known}
    ]
    assert missing == []


def commands() -> set[str]:
    """The commands as they are typed: `demo`, `bench burst`."""
    names = set()
    for path in (ROOT / "src" / "nnburst" / "cli").glob("*.py"):
        nested = re.findall(r'^    "([a-z]+)": \(_prepare_', path.read_text(), re.MULTILINE)
        names |= {f"{path.stem} {name}" for name in nested}
        if not nested and re.search(r"^def prepare_parser", path.read_text(), re.MULTILINE):
            group, _, rest = path.stem.partition("_")
            name = f"{group} {rest}" if group in GROUPS else path.stem
            names.add(name.replace("_", "-"))
    return names


def test_every_public_name_is_in_the_documentation() -> None:
    documented = set(re.findall(r"auto\w+:: nnburst\.(\w+)$", API.read_text(), re.MULTILINE))
    assert documented == set(nnburst.__all__)


def test_every_decision_record_is_in_the_list() -> None:
    records = {path.name for path in (ROOT / "docs" / "adr").glob("[0-9]*.md")}
    listed = set(LINK.findall((ROOT / "docs" / "adr" / "README.md").read_text()))
    assert records <= listed


def printed_by(code: str, folder: Path, seconds: float) -> list[str]:
    """Lines that code prints in a folder, without a warning and within so many seconds."""
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", code],
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
        timeout=seconds,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


def readme_example_output(folder: Path) -> list[str]:
    """Lines that the README's example prints."""
    (example,) = EXAMPLE.findall((ROOT / "README.md").read_text())
    return printed_by(example, folder, 60)


TUTORIALS = {
    "first_burst": ["[[10. 20. 30.]]", "[[1009. 1019. 1029.]]"],
    "camera": [f"{2.0 * number}" for number in range(10)],
    "own_executor": ["[2. 4. 6. 8.]", "[1. 2. 3. 4.]"],
    "queue": [
        *(f"{number} 640 {number / 50}" for number in range(5)),
        "the camera has closed the queue",
    ],
}


def typed_in(page: str, folder: Path) -> list[str]:
    """Lines that the code of a page prints, typed in as it stands, in an empty folder."""
    code = "\n".join(EXAMPLE.findall((ROOT / "docs" / f"{page}.md").read_text()))
    return printed_by(code, folder, 120)


@pytest.mark.every_day("first_burst")
@pytest.mark.parametrize("page", TUTORIALS)
def test_tutorial_typed_in_as_it_stands_prints_what_it_promises(page: str, tmp_path: Path) -> None:
    assert typed_in(f"tutorial/{page}", tmp_path) == TUTORIALS[page]


def test_tutorial_of_a_network_file_runs(tmp_path: Path) -> None:
    pytest.importorskip("ai_edge_litert")
    from nnburst.testing.models.tflite_networks import NETWORKS

    (tmp_path / "network.tflite").write_bytes(NETWORKS["RELU-FLOAT32"]())
    assert typed_in("tutorial/tflite_network", tmp_path)[-1] == "float32"


HOW_TO = {
    "roads": ["[2. 4.]"] * 4,
    "deadlines": ["[2. 4.]", "[2. 4.]", "1"],
    "state": ["[15.] [15.]", "[105.]", "[5.]", *2 * ["104 84 83 132 237 252 252 252"]],
    "two_networks": ["[ 4. 16. 36. 64.]"],
    "loops": ["(2,)"],
}


@pytest.mark.every_day("state")
@pytest.mark.parametrize("page", HOW_TO)
def test_code_of_a_how_to_page_prints_what_it_promises(page: str, tmp_path: Path) -> None:
    if page == "state":
        pytest.importorskip("onnxruntime")
    assert typed_in(f"how_to/{page}", tmp_path) == HOW_TO[page]


def test_each_how_to_page_with_code_is_run() -> None:
    pages = (ROOT / "docs" / "how_to").glob("*.md")
    assert {page.stem for page in pages if EXAMPLE.search(text(page))} == set(HOW_TO)


def table_of_roads() -> list[list[str]]:
    """Its rows below the heading."""
    page = text(roads_page.PAGE).partition(roads_page.BEGIN)[2].partition(roads_page.END)[0]
    rows = [line for line in page.splitlines() if line.startswith("|")][2:]
    return [[cell.strip() for cell in row.strip("|").split("|")] for row in rows]


def test_table_of_roads_has_each_pair_and_each_refusal_is_noted() -> None:
    rows = table_of_roads()
    assert len(rows) == 2 * len(roads_page.WAYS)
    assert {len(row) for row in rows} == {1 + len(roads_page.ABILITIES)}
    cells = [cell for row in rows for cell in row[1:]]
    assert [cell for cell in cells if not re.fullmatch(r"yes|no \(\d+\)", cell)] == []
    notes = re.findall(r"^(\d+)\. `", text(roads_page.PAGE), re.MULTILINE)
    assert set(notes) == {cell[4:-1] for cell in cells if cell != "yes"}


@pytest.mark.campaign
def test_table_of_roads_is_what_trying_each_pair_finds() -> None:
    shown = text(roads_page.PAGE)
    assert roads_page.page(shown) == shown, "python tools/roads_page.py"


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
    lines = readme_example_output(tmp_path)
    assert lines[0].split()[:2] == ["step", "device"]
