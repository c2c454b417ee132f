"""A program in C without Python loads the provider, runs networks and unloads it, under the sanitizers."""

from __future__ import annotations

import importlib.util
import shutil
from pathlib import Path
from typing import Any

import pytest

from client.service import Service
from plugins import ROOT, compiled_host, compiled_plugin, output_of

networks = pytest.importorskip("onnxruntime_ep.networks", reason="needs onnx")

pytestmark = pytest.mark.skipif(
    not (ROOT / "csrc").is_dir() or shutil.which("gcc") is None,
    reason="needs gcc and the C sources beside the tests",
)


@pytest.fixture(scope="module")
def plugin(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The library with the sanitizers."""
    return compiled_plugin("libonnxruntime_ep_nnburst.so", tmp_path_factory.mktemp("plugin"))


@pytest.fixture(scope="module")
def host(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The program."""
    return compiled_host("onnxruntime_host", tmp_path_factory.mktemp("host"))


def engine_library() -> Path:
    found = importlib.util.find_spec("onnxruntime")
    if found is None or not found.submodule_search_locations:
        pytest.skip("no onnxruntime")
    return next(Path(found.submodule_search_locations[0], "capi").glob("libonnxruntime.so.*"))


def left_over(host: Path, plugin: Path, network: bytes, folder: Path, *option: str) -> str:
    """The counts that the program prints after ten cycles more than the first two."""
    path = folder / "network.onnx"
    path.write_bytes(network)
    return output_of(host, str(engine_library()), str(plugin), *option, str(path), "10")


@pytest.mark.campaign
@pytest.mark.parametrize("make", networks.ALL, ids=lambda make: make.__name__)
def test_ten_cycles_give_the_same_bits_and_leave_nothing(
    host: Path, plugin: Path, make: Any, tmp_path: Path
) -> None:
    with Service(executor="onnxruntime") as service:
        found = left_over(host, plugin, make()[0], tmp_path, "device", service.address)
    assert found == "0 0 0 0\n", "threads, descriptors, processes, mappings"


@pytest.mark.campaign
def test_drivers_that_it_has_started_are_gone(host: Path, plugin: Path, tmp_path: Path) -> None:
    network, _ = networks.layers()
    assert left_over(host, plugin, network, tmp_path, "executor", "onnxruntime") == "0 0 0 0\n"
