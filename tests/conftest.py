"""What every test may use: the reference data beside the repository, where there is any.

Tests that read it are marked `shared` and skip without it; everything else runs from a clone alone.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import settings

from nnburst.hal import environment

ROOT = Path(__file__).resolve().parent.parent
FAULTS = ROOT / "tests" / "faults"
#: The group of tests that kill processes or compare times.
TIMING = "timing"
SHARED = (ROOT / environment.SHARED.read()).resolve()

# Speed is never asserted in a test: an example may take as long as a busy machine makes it take. What
# CI says about a change must not depend on luck; everywhere else each run tries new examples.
settings.register_profile(
    "nnburst", deadline=None, print_blob=True, max_examples=environment.EXAMPLES.read()
)
settings.register_profile("ci", parent=settings.get_profile("nnburst"), derandomize=True)
settings.load_profile("ci" if os.environ.get("CI") else "nnburst")


def pytest_configure(config: pytest.Config) -> None:
    """Make known what `rule_coverage` looks for."""
    config.addinivalue_line(
        "markers", "rule(id, *sides): shows that a rule accepts, rejects, or both"
    )


def pytest_xdist_auto_num_workers(config: pytest.Config) -> int | None:
    """One process for the tests of one file; as many as there are processors for more."""
    paths = {Path(str(word).partition("::")[0]) for word in config.args}
    return 0 if len(paths) == 1 and paths.pop().is_file() else None


@pytest.hookimpl(tryfirst=True)  # before xdist looks for the groups
def pytest_collection_modifyitems(items: list[pytest.Function]) -> None:
    """Skip tests marked `shared` where the reference data is absent, mark what counts, and make groups.

    A group runs in one process, one test after the other: a file, whose tests share its drivers, and all
    that kill processes or compare times. Those come first, since nothing else takes as long.
    """
    skip = pytest.mark.skip(reason=f"no reference data at {SHARED} (set NNBURST_SHARED)")
    for item in items:
        if not SHARED.is_dir() and item.get_closest_marker("shared"):
            item.add_marker(skip)
        if FAULTS in item.path.parents or getattr(item.obj, "is_hypothesis_test", False):
            item.add_marker(pytest.mark.counted)
        if item.get_closest_marker("xdist_group") is None:
            item.add_marker(pytest.mark.xdist_group(group_of(item)))
    items.sort(key=lambda item: group_of(item) != TIMING)


def group_of(item: pytest.Item) -> str:
    """The group of a test: its file's, or that of all tests that must not run side by side."""
    if item.get_closest_marker("timing") or FAULTS in item.path.parents:
        return TIMING
    return str(item.path.relative_to(ROOT).with_suffix(""))


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
