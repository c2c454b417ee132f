from __future__ import annotations

import importlib
import inspect
import os
import shutil
import subprocess
import sys
import traceback
from collections.abc import Iterator
from pathlib import Path

import pytest

from nnburst.driver.code_bundle import CodeBundle

PACKAGE = "bundled_for_a_test"


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A package of two modules, of which one is in a folder of its own."""
    root = tmp_path / PACKAGE
    (root / "inner").mkdir(parents=True)
    (root / "__init__.py").write_text("")
    (root / "inner" / "__init__.py").write_text("")
    (root / "first.py").write_text("VALUE = 1\n\ndef fail():\n    raise ValueError('here')\n")
    (root / "inner" / "second.py").write_text(f"from {PACKAGE}.first import VALUE\n")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(sys, "dont_write_bytecode", False)
    monkeypatch.setattr(sys, "meta_path", list(sys.meta_path))
    yield root
    forget()


def forget() -> None:
    """Have the package imported again."""
    for name in [name for name in sys.modules if name.partition(".")[0] == PACKAGE]:
        del sys.modules[name]
    importlib.invalidate_caches()


def imported(path: Path) -> dict[str, bool]:
    """Import the package by the bundle at `path`; for each module whether its code came from there."""
    forget()
    bundle = CodeBundle(PACKAGE, str(path))
    sys.meta_path.insert(0, bundle)
    importlib.import_module(f"{PACKAGE}.inner.second")
    bundle.close()
    assert bundle not in sys.meta_path
    return {
        name.removeprefix(PACKAGE): type(module.__loader__).__module__ == CodeBundle.__module__
        for name, module in sys.modules.items()
        if name.partition(".")[0] == PACKAGE
    }


def every(found: dict[str, bool]) -> set[bool]:
    assert set(found) == {"", ".first", ".inner", ".inner.second"}
    return set(found.values())


def test_second_import_takes_every_module_from_the_bundle(package: Path, tmp_path: Path) -> None:
    path = tmp_path / "codes"
    assert every(imported(path)) == {False}
    as_ever = {name: vars(module).copy() for name, module in sys.modules.items() if PACKAGE in name}
    assert every(imported(path)) == {True}
    for name, found in as_ever.items():
        module = sys.modules[name]
        assert module.__file__ == found["__file__"]
        assert module.__cached__ == found["__cached__"]
        assert module.__package__ == found["__package__"]
        assert getattr(module, "__path__", None) == found.get("__path__")
    assert set(os.listdir(tmp_path)) == {PACKAGE, "codes"}


def test_lines_of_a_module_from_the_bundle_are_those_of_its_source(
    package: Path, tmp_path: Path
) -> None:
    imported(tmp_path / "codes")
    imported(tmp_path / "codes")
    first = sys.modules[f"{PACKAGE}.first"]
    assert inspect.getsource(first) == (package / "first.py").read_text()
    with pytest.raises(ValueError, match="here") as caught:
        first.fail()
    last = traceback.extract_tb(caught.value.__traceback__)[-1]
    assert (last.filename, last.line) == (str(package / "first.py"), "raise ValueError('here')")
    importlib.reload(first)


def test_changed_module_is_imported_as_it_is_and_is_in_the_next_bundle(
    package: Path, tmp_path: Path
) -> None:
    path = tmp_path / "codes"
    imported(path)
    times = (package / "first.py").stat()
    (package / "first.py").write_text((package / "first.py").read_text().replace("1", "2"))
    os.utime(
        package / "first.py", ns=(times.st_atime_ns, times.st_mtime_ns)
    )  # as some installers do
    for cached in package.glob("__pycache__/first.*"):  # which Python itself would believe
        cached.unlink()
    found = imported(path)
    assert found == {"": True, ".first": False, ".inner": True, ".inner.second": True}
    assert sys.modules[f"{PACKAGE}.first"].VALUE == 2
    assert every(imported(path)) == {True}
    assert sys.modules[f"{PACKAGE}.first"].VALUE == 2


@pytest.mark.parametrize("harm", ["cut", "short", "empty", "other Python", "other place", "noise"])
def test_damaged_or_foreign_bundle_is_replaced(package: Path, tmp_path: Path, harm: str) -> None:
    path = tmp_path / "codes"
    imported(path)
    whole = path.read_bytes()
    if harm == "other place":
        path = tmp_path / "elsewhere"
    harmed = {
        "cut": whole[:30],
        "short": whole[:-1],
        "empty": b"",
        "other Python": b"xxxx" + whole[4:],
        "noise": os.urandom(999),
    }
    path.write_bytes(harmed.get(harm, whole))
    assert every(imported(path)) == {False}
    assert every(imported(path)) == {True}


def test_codes_that_cannot_be_read_are_taken_from_their_folders_and_written_again(
    package: Path, tmp_path: Path
) -> None:
    path = tmp_path / "codes"
    imported(path)
    whole = path.read_bytes()
    path.write_bytes(whole[:-40] + bytes(40))  # as after a loss of power
    imported(path)
    assert sys.modules[f"{PACKAGE}.inner.second"].VALUE == 1
    imported(path)
    assert every(imported(path)) == {True}


def test_nothing_is_written_where_python_may_not(
    package: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    imported(tmp_path / "no folder" / "codes")
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    imported(tmp_path / "codes")
    assert os.listdir(tmp_path) == [PACKAGE]


def test_module_that_a_bundle_has_is_found_in_its_folder_once_it_is_closed(
    package: Path, tmp_path: Path
) -> None:
    path = tmp_path / "codes"
    imported(path)
    bundle = CodeBundle(PACKAGE, str(path))
    assert bundle.find_spec(f"{PACKAGE}.first", [str(package)]) is not None
    assert bundle.find_spec("nnburst.hal") is None
    bundle.close()
    assert bundle.find_spec(f"{PACKAGE}.first", [str(package)]) is None
    bundle.close()


def test_second_driver_takes_its_modules_from_the_bundle_of_the_first(tmp_path: Path) -> None:
    """And what of numpy and of Python a driver imports; what a process needs later is found in its folder."""
    code = (
        "import gc, sys\n"
        "from nnburst.driver.code_bundle import import_from_bundle\n"
        "bundle = import_from_bundle()\n"
        "import nnburst.driver.service.worker as worker\n"
        "import inspect, numpy.linalg\n"
        "bundle.close()\n"
        "import nnburst.executor.reference.executor as later\n"
        "assert numpy.add(numpy.arange(3), 1).sum() == 6 and numpy.linalg.inv.__doc__\n"
        "modules = (worker, numpy.linalg, inspect, later)\n"
        "print(*(type(m.__loader__).__module__ for m in modules))\n"
    )
    environment = {**os.environ, "PYTHONPYCACHEPREFIX": str(tmp_path)}
    environment.pop("PYTHONDONTWRITEBYTECODE", None)
    outcomes = [
        subprocess.run(
            [sys.executable, "-c", code],
            env=environment,
            capture_output=True,
            text=True,
            check=True,
        ).stdout.split()
        for _ in range(2)
    ]
    folders = "_frozen_importlib_external"
    assert outcomes == [[folders] * 4, ["nnburst.driver.code_bundle"] * 3 + [folders]]
    [path] = tmp_path.rglob("*.codes")
    assert path.stat().st_size > 100_000


def test_module_that_another_would_hide_is_not_taken_from_the_bundle(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    site, first = tmp_path / "site", tmp_path / "first"
    (site / PACKAGE).mkdir(parents=True)
    (site / PACKAGE / "__init__.py").write_text("VALUE = 1\n")
    first.mkdir()
    monkeypatch.setattr(sys, "dont_write_bytecode", False)
    monkeypatch.setattr(sys, "meta_path", list(sys.meta_path))
    monkeypatch.syspath_prepend(site)
    monkeypatch.syspath_prepend(first)

    def found() -> tuple[int, bool]:
        forget()
        bundle = CodeBundle(PACKAGE, str(tmp_path / "codes"))
        sys.meta_path.insert(0, bundle)
        module = importlib.import_module(PACKAGE)
        bundle.close()
        return module.VALUE, type(module.__loader__).__module__ == CodeBundle.__module__

    try:
        assert [found(), found()] == [(1, False), (1, True)]
        (first / PACKAGE).mkdir()
        (first / PACKAGE / "__init__.py").write_text("VALUE = 2\n")
        assert [found(), found()] == [(2, False), (2, True)]
        shutil.rmtree(first / PACKAGE)
        assert found() == (1, False)
    finally:
        forget()
