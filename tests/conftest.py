"""Fixtures for every test: the reference data beside the repository, if there is any.

Tests that read it are marked `shared` and skip without it; everything else runs from a clone alone.
"""

from __future__ import annotations

import gc
import os
import re
import signal
import sys
from collections.abc import Callable, Iterator
from functools import cache, partial
from pathlib import Path
from typing import Any

import pytest
from hypothesis import settings

from nnburst.hal import environment

ROOT = Path(__file__).resolve().parent.parent
FAULTS = ROOT / "tests" / "faults"
#: The group of tests that kill processes or compare times.
TIMING = "timing"
#: The group of the house rules, which look at the same syntax trees.
HOUSE = "house"
#: Folders whose files take longest. They come first, so that no core waits for one of them at the end.
LONGEST = ("csrc", "executor", "cli", "testing", "serving", "examples", "client", "capi")
MARKED = re.compile(r"^(@|pytestmark = )pytest\.mark\.timing$", re.MULTILINE)
SHARED = (ROOT / environment.SHARED.read()).resolve()

# Tests start more than a thousand processes. If the environment forbids Python to keep what it compiled, each
# of them compiles every module anew, which doubles the time of a driver's start.
if os.environ.pop("PYTHONDONTWRITEBYTECODE", ""):
    sys.dont_write_bytecode = False

# A shell has programs in its background ignore Ctrl-C, and what they start too: tests interrupt commands.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

# OpenBLAS's threads wait spinning for work, from the import of numpy on: in each of those processes they
# take as much of a core as the import does, and no test has work for them.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

# Which engine computes faster differs from run to run: only the tests of trials have several.
os.environ.setdefault("NNBURST_DEVICES", "litert")

# Speed is never asserted in a test: an example may take as long as a busy machine makes it take. What
# CI finds in a change must not depend on luck; everywhere else each run tries new examples.
settings.register_profile(
    "nnburst", deadline=None, print_blob=True, max_examples=environment.EXAMPLES.read()
)
settings.register_profile("ci", parent=settings.get_profile("nnburst"), derandomize=True)
settings.load_profile("ci" if os.environ.get("CI") else "nnburst")


def pytest_configure(config: pytest.Config) -> None:
    """Make known what `rule_coverage` looks for, and which cases run every day."""
    config.addinivalue_line(
        "markers", "rule(id, *sides): shows that a rule accepts, rejects, or both"
    )
    config.addinivalue_line(
        "markers", "every_day(*ids): cases that run every day; the others run in the campaign"
    )


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Iterator[None]:
    """Keep the garbage collector from what is collected here, which lives as long as the process.

    It would look through thousands of tests again and again: while they are read, and in each test that
    collects garbage.
    """
    gc.disable()
    try:
        return (yield)
    finally:
        gc.enable()
        gc.freeze()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item, nextitem: pytest.Item | None) -> Iterator[None]:
    """Keep the garbage collector from what a file of tests leaves for good: modules, engines, caches.

    A process that has run a hundred files holds some 700 MB of objects, and looking through them takes half a
    second: in each test that collects garbage, and whenever Python does it by itself.
    """
    try:
        return (yield)
    finally:
        if nextitem is None or nextitem.path != item.path:
            gc.collect()
            gc.freeze()


def pytest_sessionstart(session: pytest.Session) -> None:
    """Have a worker send only events that change what the main process prints.

    xdist sends six for each of 12,000 tests, and each wakes the main process on a core that tests need.
    """
    config = session.config
    if config.option.verbose > 0 or config.getoption("xmlpath", None):
        return  # names of tests as they begin, and all that a phase has
    for plugin in config.pluginmanager.get_plugins():
        if hasattr(plugin, "sendevent"):  # xdist's, of a worker; its class cannot be imported
            plugin.sendevent = partial(send_if_it_counts, plugin.sendevent)


def send_if_it_counts(send: Callable[..., None], name: str, **values: Any) -> None:
    """Send an event, unless all that it says is that a test begins, ends, or was quickly set up."""
    if name in ("logstart", "logfinish"):
        return
    report = values.get("data", {}) if name == "testreport" else {}
    if report.get("outcome") == "passed":
        is_short = report["duration"] < 0.005  # what --durations leaves out, too
        if report["when"] != "call" and is_short and not report["sections"]:
            return
        report["keywords"] = {}  # names of the test, its marks and folders
    send(name, **values)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_auto_num_workers(config: pytest.Config) -> int | None:
    """One process for the tests of one file; as many as there are processors for more."""
    paths = {Path(str(word).partition("::")[0]) for word in config.args}
    return 0 if len(paths) == 1 and paths.pop().is_file() else None


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> object | None:
    """Groups run in one process each, one test after the other; see `group_of`.

    xdist has groups of its own, made by a mark; with pytest 9.2 they have no effect and nothing says so.
    """
    if config.getvalue("dist") != "loadgroup":
        return None
    from xdist.scheduler import LoadScopeScheduling

    class Groups(LoadScopeScheduling):
        def _split_scope(self, nodeid: str) -> str:
            return group_of(ROOT / nodeid.partition("::")[0])

    return Groups(config, log)


@pytest.hookimpl(tryfirst=True)  # before -m looks at the marks
def pytest_collection_modifyitems(items: list[pytest.Function]) -> None:
    """Skip tests marked `shared` if the reference data is absent, mark what counts, and sort groups."""
    skip = pytest.mark.skip(reason=f"no reference data at {SHARED} (set NNBURST_SHARED)")
    is_absent = not SHARED.is_dir()
    for item in items:
        if is_absent and item.get_closest_marker("shared"):
            item.add_marker(skip)
        if is_fault(item.path) or getattr(item.obj, "is_hypothesis_test", False):
            item.add_marker(pytest.mark.counted)
        every_day = item.get_closest_marker("every_day")
        if every_day and item.callspec.id not in every_day.args:
            item.add_marker(pytest.mark.campaign)
    items.sort(key=lambda item: turn_of(group_of(item.path)))


@cache
def is_fault(path: Path) -> bool:
    """Whether a file is one of tests/faults; asked for each test, of which there are thousands."""
    return FAULTS in path.parents


@cache
def group_of(path: Path) -> str:
    """The group of a file's tests: the file, since they share its drivers, unless it is in a larger one.

    Larger ones are what must run alone (the tests of tests/faults, and files with a test that is marked
    `timing`), and the house rules.
    """
    if is_fault(path) or MARKED.search(path.read_text(encoding="utf-8")):
        return TIMING
    if path.parent == FAULTS.parent:
        return HOUSE
    return str(path.relative_to(ROOT).with_suffix(""))


def turn_of(group: str) -> int:
    """When a group's turn is: those that take longest come first."""
    folder = group.split("/")[1] if "/" in group else group
    first = (TIMING, HOUSE, *LONGEST)
    return first.index(folder) if folder in first else len(first)


@pytest.fixture
def make_module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str, str], None]:
    """Writes a module, name and source, that every process which the test starts can import."""
    others = filter(None, [os.environ.get("PYTHONPATH")])
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(tmp_path), *others]))

    def make(name: str, source: str) -> None:
        (tmp_path / f"{name}.py").write_text(source)

    return make


@pytest.fixture(scope="session")
def shared_dir() -> Path:
    """Folder of the reference data (`spec/`, `vectors/`, `golden/`, `models/`)."""
    if not SHARED.is_dir():
        pytest.skip(f"no reference data at {SHARED} (set NNBURST_SHARED)")
    return SHARED
