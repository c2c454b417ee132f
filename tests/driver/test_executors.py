from __future__ import annotations

import importlib.metadata
import subprocess
import sys
from importlib.metadata import EntryPoint
from pathlib import Path
from typing import Any

import pytest

from nnburst.client.launch import launch
from nnburst.driver import executors
from nnburst.driver.executors import find_executor, import_executor, make_executor
from nnburst.executor.base import Executor
from nnburst.executor.null import NullExecutor
from nnburst.hal.enums import DeviceType
from nnburst.hal.errors import DeviceUnavailable, NnburstError


@pytest.mark.parametrize("name", ["null", "reference"])
def test_built_in_executor_is_found_by_name(name: str) -> None:
    executor: Executor = find_executor(name)()
    assert executor.name == name


def test_executor_is_found_by_entry_point(monkeypatch: pytest.MonkeyPatch) -> None:
    point = EntryPoint("mine", "nnburst.executor.null:NullExecutor", executors.GROUP)
    monkeypatch.setattr(importlib.metadata, "entry_points", lambda **_: [point])
    assert find_executor("mine")().name == "null"


def test_executor_is_found_by_module_and_attribute() -> None:
    assert find_executor("nnburst.executor.null:NullExecutor")().name == "null"


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("nonesuch", "'nonesuch' is not known; known are .*null, .*reference"),
        ("no.such.module:X", "cannot be imported: No module named 'no'"),
        ("nnburst.executor.null:X", "cannot be imported: .*no attribute 'X'"),
    ],
)
def test_executor_that_is_not_there_is_named(name: str, message: str) -> None:
    with pytest.raises(DeviceUnavailable, match=message):
        find_executor(name)


def loaded_after(statements: str) -> list[str]:
    """The executors' modules that a new process has then imported."""
    listing = f"import sys\n{statements}\nprint(*(n for n in sys.modules if '.executor.' in n))"
    ran = subprocess.run(
        [sys.executable, "-c", listing], capture_output=True, text=True, check=True
    )
    return ran.stdout.split()


@pytest.mark.every_day("reference")
@pytest.mark.parametrize("name", ["null", "reference"])
def test_supervisor_imports_an_executor_before_it_forks(name: str) -> None:
    importing = f"from nnburst.driver.executors import import_executor; import_executor({name!r})"
    making = f"{importing}\nfrom nnburst.driver.executors import find_executor\n"
    before = loaded_after(importing)
    assert f"nnburst.executor.{name}" in " ".join(before)
    assert loaded_after(f"{making}find_executor({name!r})()") == before


def test_executor_that_cannot_be_imported_is_named_before_it_is_made(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(executors.MODULES, "null", ("nnburst.executor.nonesuch",))
    with pytest.raises(DeviceUnavailable, match="executor: 'null' cannot be imported: No module"):
        import_executor("null")


def test_engine_that_cannot_be_imported_gives_its_reason_when_it_is_made(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "broken_engine.py").write_text("raise RuntimeError('the engine is broken')")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setitem(executors.MODULES, "null", ("broken_engine",))
    executors.import_engine("null")
    assert "broken_engine" not in sys.modules


def test_driver_of_litert_starts_without_the_kernels_of_the_reference_executor() -> None:
    pytest.importorskip("ai_edge_litert")
    found = loaded_after(
        "from nnburst.driver.executors import find_executor; find_executor('litert')().supported"
    )
    assert "nnburst.executor.litert.executor" in found
    assert [name for name in found if name.startswith("nnburst.executor.reference")] == []


class Nameless(NullExecutor):
    name = ""


class TooFew(NullExecutor):
    def prepare(self, model: Any) -> Any:  # type: ignore[override]  # noqa: ARG002
        raise AssertionError


class ByKeyword(NullExecutor):
    def prepare(self, model: Any, *, pools: Any, options: Any) -> Any:  # type: ignore[override]  # noqa: ARG002
        raise AssertionError


class NoMethod:
    name = "bare"

    def prepare(self, model: Any, pools: Any, options: Any = None) -> None:  # noqa: ARG002
        raise AssertionError


@pytest.mark.parametrize(
    ("attribute", "message"),
    [
        ("Nameless", r"Nameless\.name is '', expected a text"),
        (
            "TooFew",
            r"TooFew\.prepare\(model.* cannot be called as prepare\(model, pools, options\)",
        ),
        (
            "ByKeyword",
            r"ByKeyword\.prepare\(model.*, \*, pools.* cannot be called .* by position",
        ),
        ("NoMethod", r"NoMethod\.supported is missing, expected supported\(model\)"),
    ],
)
def test_executor_that_lacks_what_a_driver_calls_is_refused_before_any_client(
    attribute: str, message: str
) -> None:
    with pytest.raises(DeviceUnavailable, match=message):
        make_executor(f"{__name__}:{attribute}")


class Broken(NullExecutor):
    def __init__(self) -> None:
        raise OSError("no chip")


@pytest.mark.parametrize(
    ("name", "message"),
    [
        (
            "os:path",
            "executor 'os:path' cannot be made: TypeError: 'module' object is not callable",
        ),
        ("json:loads", "executor 'json:loads' cannot be made: TypeError: .*missing 1 required"),
        (f"{Path(__file__).stem}:Broken", "Broken' cannot be made: OSError: no chip"),
    ],
)
def test_executor_that_cannot_be_made_is_an_unavailable_device(name: str, message: str) -> None:
    with pytest.raises(DeviceUnavailable, match=message):
        launch(name, env={"PYTHONPATH": str(Path(__file__).parent)})


def test_refused_executor_is_reported_with_what_it_lacks() -> None:
    with pytest.raises(NnburstError, match=r"TooFew\.prepare\(model.* cannot be called"):
        launch(f"{Path(__file__).stem}:TooFew", env={"PYTHONPATH": str(Path(__file__).parent)})


OWN = """
from nnburst.executor.null import NullExecutor
from nnburst.hal.enums import DeviceType

class Own(NullExecutor):
    name = "own"
    device_type = DeviceType.ACCELERATOR
    engine_version = "chip 7"
"""


def test_executor_of_others_reports_its_type_and_its_version(tmp_path: Path) -> None:
    (tmp_path / "own.py").write_text(OWN)
    with launch("own:Own", env={"PYTHONPATH": str(tmp_path)}) as device:
        assert device.type is DeviceType.ACCELERATOR
        assert device.version_string.endswith(" own chip 7")
