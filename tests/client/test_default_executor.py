"""The executor if none is named: the best one that is installed; without any engine a network warns once."""

from __future__ import annotations

import logging
import sys
from collections.abc import Callable
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest

import nnburst
from nnburst.cli import main
from nnburst.hal.errors import InvalidArgument
from nnburst.hal.utils import _warn_of_reference, chosen_executor
from nnburst.runtime.devices.engine_device import is_installed
from nnburst.runtime.devices.manager import Manager, Settings
from nnburst.testing.models.tflite_builder import TfliteBuilder

EXTRA = "about a hundred times as slowly as LiteRT: pip install 'nnburst[litert]'"
MODULES = {"litert": "ai_edge_litert", "onnxruntime": "onnxruntime"}
Install = Callable[..., None]


@pytest.fixture
def install(monkeypatch: pytest.MonkeyPatch) -> Install:
    """Make these engines seem installed in this process, and no others; nothing was warned of yet."""

    def only(*engines: str) -> None:
        for engine, name in MODULES.items():
            module = ModuleType(name)
            module.__spec__ = ModuleSpec(name, None, origin="somewhere")
            there = module if engine in engines else None
            monkeypatch.setitem(sys.modules, name, there)  # type: ignore[arg-type] # None hides it

    _warn_of_reference.cache_clear()
    return only


@pytest.fixture
def network(tmp_path: Path) -> Path:
    """x + x."""
    b = TfliteBuilder()
    x = b.input("FLOAT32", (3,))
    b.operator("ADD", [x, x], [b.output("FLOAT32", (3,))], "AddOptions")
    path = tmp_path / "double.tflite"
    path.write_bytes(b.finish())
    return path


def warnings(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [r.getMessage() for r in caplog.records if r.levelno == logging.WARNING]


@pytest.mark.parametrize(
    ("engines", "best"),
    [
        (("litert", "onnxruntime"), "litert"),
        (("onnxruntime",), "onnxruntime"),
        (("litert",), "litert"),
        ((), "reference"),
    ],
)
def test_the_best_executor_is_the_first_engine_that_is_installed(
    install: Install, engines: tuple[str, ...], best: str
) -> None:
    install(*engines)
    assert chosen_executor() == chosen_executor("auto") == best
    assert chosen_executor("null") == "null"
    assert [engine for engine in MODULES if is_installed(engine)] == [
        engine for engine in MODULES if engine in engines
    ]


def test_a_folder_of_an_engines_name_is_not_the_engine(
    install: Install, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    install()
    for name in MODULES.values():
        (tmp_path / name).mkdir()
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setattr(sys, "path", [str(tmp_path)])
    assert chosen_executor() == "reference"


def test_launch_without_a_name_starts_the_best_executor(install: Install) -> None:
    install()
    with nnburst.launch() as device:
        assert device.name == "reference"
        assert device.version_string.endswith(" reference")


def test_a_network_that_lands_on_the_reference_executor_warns_once_with_the_extra(
    install: Install, network: Path, caplog: pytest.LogCaptureFixture
) -> None:
    install()
    loaded = nnburst.load(network)
    with nnburst.launch() as device:
        device.prepare(loaded.model).close()
        assert warnings(caplog) == []  # a model that was built here is no network from a file
        device.prepare(loaded).close()
        device.prepare(loaded).close()
    [said] = warnings(caplog)
    assert said.endswith(EXTRA)


def test_a_reference_executor_that_was_asked_for_beside_an_engine_warns_of_nothing(
    install: Install, network: Path, caplog: pytest.LogCaptureFixture
) -> None:
    install("litert")
    with nnburst.launch("reference") as device:
        device.prepare(nnburst.load(network)).close()
    assert warnings(caplog) == []


def test_a_compiled_network_without_an_engine_warns_once(
    install: Install, network: Path, caplog: pytest.LogCaptureFixture
) -> None:
    install()
    settings = Settings(engines=(("litert", "litert"),))
    with Manager(settings=settings) as manager:
        for _ in range(2):
            with nnburst.compile(network, manager=manager) as compiled:
                assert compiled.plan.devices == ("nnapi-reference",)
                assert compiled.execute([np.float32([1, 2, 3])]).outputs[0].tolist() == [2, 4, 6]
    assert len(warnings(caplog)) == 1


def test_the_run_command_uses_the_best_executor_and_warns(
    install: Install, network: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    install()
    given, report = tmp_path / "in.npy", tmp_path / "report.json"
    np.save(given, np.float32([1, 2, 3]))
    assert main(["run", str(network), "--input", str(given), "--json", str(report)]) == 0
    assert '"name": "reference"' in report.read_text()
    assert len(warnings(caplog)) == 1


@pytest.mark.parametrize(("engines", "warns"), [((), True), (("litert",), False)])
def test_the_serve_command_becomes_a_driver_of_the_best_executor(
    install: Install,
    network: Path,
    engines: tuple[str, ...],
    warns: bool,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    install(*engines)
    became: list[str] = []

    def become(_path: str, words: list[str], _environment: dict[str, str]) -> None:
        became.extend(words)
        raise InvalidArgument("it would be another program now")

    monkeypatch.setattr("os.execve", become)
    main(["serve", "lab"])
    assert became[became.index("--executor") + 1] == (engines or ("reference",))[0]
    became.clear()
    main(["serve", "lab", "--model", f"double={network}"])  # the driver reads it, and decides
    assert became[became.index("--executor") + 1] == "auto"
    assert ("pip install 'nnburst[litert]'" in capsys.readouterr().err) is warns
