"""A program in C without Python loads the provider, runs networks and unloads it, under the sanitizers."""

from __future__ import annotations

import importlib.util
import os
import runpy
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from client.service import Service

networks = pytest.importorskip("onnxruntime_ep.networks", reason="needs onnx")
ROOT = Path(__file__).resolve().parents[2]

pytestmark = pytest.mark.skipif(
    not (ROOT / "csrc").is_dir() or shutil.which("gcc") is None,
    reason="needs gcc and the C sources beside the tests",
)

FLAGS = ["-std=c11", "-O1", "-g", "-D_GNU_SOURCE", "-fsanitize=address,undefined"]
FLAGS += ["-fno-sanitize-recover=all", "-DNNBURST_NO_TRACE_POINTS", "-Icsrc"]
FLAGS += ["-Isrc/nnburst/capi/include", "-Isrc/nnburst/executor/include"]


def compiled(words: list[str]) -> None:
    done = subprocess.run(
        ["gcc", *FLAGS, *words], capture_output=True, text=True, cwd=ROOT, timeout=600
    )
    assert done.returncode == 0, done.stderr


@pytest.fixture(scope="module")
def plugin(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The library with the sanitizers."""
    path = tmp_path_factory.mktemp("plugin") / "libonnxruntime_ep_nnburst.so"
    build = runpy.run_path(str(ROOT / "csrc" / "build.py"))
    (row,) = [each for each in build["LIBRARIES"] if each.path.endswith(path.name)]
    sources = [f"csrc/{name}" for name in row.sources]
    script = next(word for word in row.link if "version-script" in word)
    compiled(["-fPIC", "-shared", *sources, script, "-lpthread", "-ldl", "-o", str(path)])
    return path


@pytest.fixture(scope="module")
def host(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The program."""
    path = tmp_path_factory.mktemp("host") / "onnxruntime_host"
    compiled(["csrc/tests/onnxruntime_host.c", "-ldl", "-o", str(path)])
    return path


def engine_library() -> Path:
    found = importlib.util.find_spec("onnxruntime")
    if found is None or not found.submodule_search_locations:
        pytest.skip("no onnxruntime")
    return next(Path(found.submodule_search_locations[0], "capi").glob("libonnxruntime.so.*"))


def left_over(host: Path, plugin: Path, network: bytes, folder: Path, *option: str) -> str:
    """What the program prints after ten cycles more than the first two."""
    path = folder / "network.onnx"
    path.write_bytes(network)
    words = [str(host), str(engine_library()), str(plugin), *option, str(path), "10"]
    environment = os.environ | {"NNBURST_PYTHON": sys.executable}
    done = subprocess.run(
        words, capture_output=True, text=True, env=environment, timeout=600, check=False
    )
    assert done.returncode == 0, done.stderr[-4000:]
    return done.stdout


@pytest.mark.parametrize(
    "make",
    [
        pytest.param(
            make, id=make.__name__, marks=() if make is networks.branches else pytest.mark.campaign
        )
        for make in networks.ALL
    ],
)
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
