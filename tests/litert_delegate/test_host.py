"""A program in C makes LiteRT's calls of the delegate, right and wrong ones, under the sanitizers."""

from __future__ import annotations

import os
import re
import shutil
from pathlib import Path
from typing import Any

import pytest

from client.service import Service
from nnburst.hal.environment import RANDOM_CALLS
from plugins import ROOT, compiled_host, compiled_plugin, output_of

pytestmark = [
    pytest.mark.campaign,
    pytest.mark.skipif(
        not (ROOT / "csrc").is_dir() or shutil.which("gcc") is None,
        reason="needs gcc and the C sources beside the tests",
    ),
]


@pytest.fixture(scope="module")
def plugin(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The library with the sanitizers."""
    return compiled_plugin("libnnburst_delegate.so", tmp_path_factory.mktemp("plugin"))


@pytest.fixture(scope="module")
def host(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The program."""
    return compiled_host("litert_host", tmp_path_factory.mktemp("host"))


@pytest.mark.counted
@pytest.mark.usefixtures("engine")
def test_ten_cycles_leave_nothing_and_random_networks_do_no_harm(
    host: Path, plugin: Path, service: Service
) -> None:
    seed, networks = str(os.getpid()), RANDOM_CALLS.read() // 125
    words = [str(plugin), "device", service.address, "10", seed, str(networks)]
    left, ends = output_of(host, *words).splitlines()
    assert left == "0 0 0", "threads, descriptors, processes"
    found = re.fullmatch(r"(\d+) refused, (\d+) left, (\d+) failed, (\d+) run", ends)
    assert found is not None
    assert sum(map(int, found.groups())) == networks
    assert int(found[4]) > 0


def test_drivers_that_it_has_started_are_gone(engine: Any, host: Path, plugin: Path) -> None:
    output = output_of(host, str(plugin), "executor", "litert", "10", str(os.getpid()), "0")
    assert output.startswith("0 0 0\n")
