"""Variables of the environment: one registry, refused by name, warned of, and a page that cannot rot."""

from __future__ import annotations

import logging
import re
import subprocess
import sys
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path

import pytest

import nnburst
from nnburst import DeviceUnavailable, InvalidArgument
from nnburst.hal import environment
from nnburst.hal.environment import Variable, unknown_names, variables, warn_of_unknown_names

ROOT = Path(__file__).resolve().parents[2]
#: A name; those that end in _H keep a header from being read twice.
NAME = re.compile(r"\bNNBURST_(?![A-Z_]*_H\b)[A-Z_]+\b")
#: What a build of the C sources gets by -D, and how guards begin in headers that a tool writes: no variables.
DEFINED = {"NNBURST_NO_TRACE_POINTS", "NNBURST_ANDROID_NEURALNETWORKS"}
#: What the headers of clients and of executors in C define, as macros and as enumerators.
IN_C = {
    name
    for header in ("capi/include/nnburst.h", "executor/include/nnburst/executor.h")
    for name in re.findall(
        r"^(?:#define|   ) (NNBURST_[A-Z0-9_]+)",
        (ROOT / "src" / "nnburst" / header).read_text(),
        re.MULTILINE,
    )
}
#: Names that tests make up.
MADE_UP = {f"NNBURST_{name}" for name in ("TEST", "POLING_WINDOW", "SANDBOXX", "SOMETHING_ELSE")}


def sources() -> list[Path]:
    """Files that may read or name variables."""
    folders = ("src", "csrc", "tests", "tools", "docs", "bench", "examples", "contrib", ".ci")
    suffixes = {".py", ".c", ".h", ".sh", ".md", ""}
    files = [path for folder in folders for path in (ROOT / folder).rglob("*") if path.is_file()]
    built = ROOT / "docs" / "_build"
    named = (path for path in files if path.suffix in suffixes and built not in path.parents)
    return [ROOT / "Makefile", *named]


def test_every_name_in_the_sources_is_in_the_registry() -> None:
    known = {variable.name for variable in variables()} | MADE_UP | DEFINED | IN_C
    named = {
        name: str(path.relative_to(ROOT))
        for path in sources()
        for name in NAME.findall(path.read_text(encoding="utf-8", errors="ignore"))
    }
    assert {name: path for name, path in named.items() if name not in known} == {}


def test_no_module_reads_a_variable_of_ours_by_itself() -> None:
    reading = re.compile(r"(?:environ(?:\.get|\.pop)?[(\[]|getenv\()\s*\"NNBURST_")
    modules = [*(ROOT / "src").rglob("*.py"), *(ROOT / "tests").rglob("*.py")]
    assert [str(path) for path in modules if reading.search(path.read_text())] == []


@pytest.mark.parametrize("variable", variables(), ids=lambda variable: variable.name)
def test_default_keeps_the_rule_and_the_page_is_there(variable: Variable[object]) -> None:
    if variable.default is not None:
        variable.read({})
    else:
        with pytest.raises(InvalidArgument, match=f"^{variable.name} is not set, expected "):
            variable.read({})
    assert variable.reader
    assert variable.what
    assert (ROOT / "docs" / variable.page).exists()


@pytest.mark.parametrize(
    ("name", "wrong"),
    [
        ("LOG", "ODD"),
        ("BURST_SERVER_POLLING_WINDOW", "x"),
        ("BURST_SERVER_POLLING_WINDOW", "-1"),
        ("BURST_SERVER_POLLING_WINDOW", "1e3"),
        ("SANDBOX", "no"),
        ("SYNCEXEC_HAL", ""),
        ("LITERT_THREADS", "0"),
        ("LITERT_ROUTE", "interpeter"),
        ("KILLS", "0"),
        ("STOPPED", "nan"),
        ("STOPPED", "inf"),
        ("SHARED", ""),
    ],
)
def test_value_that_breaks_the_rule_is_refused_by_the_variables_name(name: str, wrong: str) -> None:
    (variable,) = (v for v in variables() if v.name == f"NNBURST_{name}")
    rule = re.escape(f"{variable.name} is {wrong!r}, expected {variable.expected}")
    with pytest.raises(InvalidArgument, match=f"^{rule}$"):
        variable.read({variable.name: wrong})


@pytest.mark.parametrize("name", ["NNBURST_BURST_SERVER_POLLING_WINDOW", "NNBURST_SANDBOX"])
def test_driver_refuses_to_start_with_a_reason_and_no_traceback(name: str) -> None:
    with pytest.raises(DeviceUnavailable, match=rf"{name} is 'x', expected") as refusal:
        nnburst.launch("null", env={name: "x"})
    assert "Traceback" not in str(refusal.value)


def test_unknown_names_are_warned_of_with_what_was_meant() -> None:
    there = {
        "NNBURST_POLING_WINDOW": "1",
        "NNBURST_SOMETHING_ELSE": "",
        "NNBURST_LOG": "INFO",
        "HOME": "/",
    }
    meant, unlike = unknown_names(there)
    assert meant == (
        "NNBURST_POLING_WINDOW is set and means nothing:"
        " did you mean NNBURST_BURST_SERVER_POLLING_WINDOW?"
    )
    assert unlike.startswith("NNBURST_SOMETHING_ELSE is set and means nothing: ")


def test_launch_warns_once_in_a_process(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv("NNBURST_SOMETHING_ELSE", "1")
    warn_of_unknown_names.cache_clear()
    with caplog.at_level(logging.WARNING, environment.__name__):
        for _ in range(2):
            nnburst.launch("null").close()
    assert [record.getMessage().split()[0] for record in caplog.records] == [
        "NNBURST_SOMETHING_ELSE"
    ]


def test_page_follows_the_registry() -> None:
    place = ROOT / "tools" / "environment_page.py"
    spec = spec_from_file_location("environment_page", place)
    assert spec is not None
    assert spec.loader is not None
    tool = module_from_spec(spec)
    spec.loader.exec_module(tool)
    assert tool.PAGE.read_text(encoding="utf-8") == tool.page(), f"run {sys.executable} {place}"


def test_page_has_each_variable_for_folders_that_the_package_reads() -> None:
    read = {
        word
        for path in (ROOT / "src").rglob("*.py")
        for word in re.findall(r"\bXDG_[A-Z_]+", path.read_text(encoding="utf-8"))
    }
    page = (ROOT / "docs" / "environment.md").read_text(encoding="utf-8")
    assert set(re.findall(r"^\| `(XDG_[A-Z_]+)` \|", page, re.MULTILINE)) == read


def test_registry_costs_a_driver_that_takes_its_name_little() -> None:
    """Neither numpy nor msgspec, which a driver imports when it has its name."""
    code = "import sys, nnburst.hal.environment; print({'numpy', 'msgspec'} & set(sys.modules))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "set()"
