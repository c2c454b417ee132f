"""Clients of a service that prepare the same network on LiteRT: right results, weights in memory once."""

from __future__ import annotations

import contextlib
import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("ai_edge_litert", reason="ai-edge-litert is not installed (extra 'litert')")

import nnburst
from nnburst.executor.litert import native
from nnburst.hal.enums import OperandType, OperationType
from nnburst.hal.model import Model
from nnburst.hal.model_builder import ModelBuilder
from nnburst.hal.utils import driver_environment
from nnburst.testing.faults.footprint import children
from waiting import wait_for

SIDE = 1024
PATIENCE = 60.0


@pytest.fixture(scope="module", autouse=True)
def engine() -> None:
    if not native.available():
        pytest.skip("libLiteRt.so is not used here, and only that takes packed weights")


def network() -> Model:
    """x · w with 4 MiB of weights."""
    builder = ModelBuilder()
    x = builder.input(OperandType.TENSOR_FLOAT32, (1, SIDE))
    weights = np.random.default_rng(1).standard_normal((SIDE, SIDE)).astype(np.float32)
    w = builder.constant(OperandType.TENSOR_FLOAT32, weights)
    b = builder.constant(OperandType.TENSOR_FLOAT32, np.zeros(SIDE))
    a = builder.scalar(0)
    y = builder.output(OperandType.TENSOR_FLOAT32, (1, SIDE))
    builder.operation(OperationType.FULLY_CONNECTED, [x, w, b, a], [y])
    return builder.build()


@contextmanager
def service(path: Path, *words: str) -> Iterator[Path]:
    with service_process(path, *words):
        yield path


@contextmanager
def service_process(path: Path, *words: str) -> Iterator[int]:
    """The pid of a service's supervisor."""
    command = [sys.executable, "-m", "nnburst.driver", "--executor", "litert", "--serve", str(path)]
    process = subprocess.Popen(
        [*command, *words], stdout=subprocess.PIPE, text=True, env=driver_environment()
    )
    try:
        assert process.stdout is not None
        assert process.stdout.readline()
        yield process.pid
    finally:
        process.terminate()
        process.communicate(timeout=PATIENCE)


def memory_files(pid: int) -> set[tuple[str, str]]:
    """Inodes and names of the files of lowered networks and packed weights that a process has mapped."""
    text = Path(f"/proc/{pid}/maps").read_text()
    return set(re.findall(r" (\d+) +/memfd:(network|weights)", text))


def clients(path: Path, stack: ExitStack) -> tuple[list[bytes], list[set[tuple[str, str]]]]:
    """Results of three clients one after the other, and what their workers have mapped then."""
    model, x = network(), np.linspace(-1, 1, SIDE, dtype=np.float32).reshape(1, SIDE)
    results, files = [], []
    for _ in range(3):
        device = stack.enter_context(nnburst.connect(path))
        prepared = stack.enter_context(device.prepare(model))
        results.append(np.asarray(prepared.execute([x]).outputs[0]).tobytes())
        files.append(memory_files(device.pid))
    return results, files


def test_clients_share_weights_and_get_what_others_compute(tmp_path: Path) -> None:
    with ExitStack() as stack:
        shared = stack.enter_context(service(tmp_path / "shared"))
        alone = stack.enter_context(service(tmp_path / "alone", "--share-weights", "off"))
        results, files = clients(shared, stack)
        results_alone, files_alone = clients(alone, stack)
    assert files[0] == files[1] == files[2]
    assert {name for _, name in files[0]} == {"network", "weights"}
    assert not any(files_alone)
    assert set(results) == set(results_alone)
    assert len(set(results)) == 1


def test_workers_that_wait_share_the_weights_of_networks_that_are_served(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYTHONPATH", str(Path(__file__).resolve().parents[2]))
    word = "large=driver.weights.test_sharing:network"
    x = np.linspace(-1, 1, SIDE, dtype=np.float32).reshape(1, SIDE)
    with ExitStack() as stack:
        path = stack.enter_context(service(tmp_path / "shared", "--model", word))
        results, files = [], []
        for _ in range(3):
            device = stack.enter_context(nnburst.connect(path))
            model = stack.enter_context(device.model("large"))
            results.append(np.asarray(model.execute([x]).outputs[0]).tobytes())
            files.append(memory_files(device.pid))
    assert files[0] == files[1] == files[2]
    assert {name for _, name in files[0]} == {"network", "weights"}
    assert len(set(results)) == 1


def keepers(supervisor: int) -> list[int]:
    """Processes that keep weights."""
    found = []
    for pid in children(supervisor):
        with contextlib.suppress(OSError):
            if Path(f"/proc/{pid}/comm").read_text().strip() == "nnburst weights":
                found.append(pid)
    return found


def kill_twice(supervisor: int) -> None:
    """Kill the process that keeps weights, and the next one, and wait for a third."""
    (keeper,) = keepers(supervisor)
    for _ in range(2):
        os.kill(keeper, signal.SIGKILL)
        wait_for(lambda killed=keeper: keepers(supervisor) not in ([], [killed]))  # type: ignore[misc]
        (keeper,) = keepers(supervisor)


@pytest.mark.campaign
def test_keeper_that_was_killed_comes_back_and_later_clients_share_again(tmp_path: Path) -> None:
    with service_process(tmp_path / "shared") as supervisor, ExitStack() as stack:
        before, _ = clients(tmp_path / "shared", stack)
        kill_twice(supervisor)
        results, files = clients(tmp_path / "shared", stack)
    assert set(results) == set(before)
    assert files[0] == files[1] == files[2]
    assert {name for _, name in files[0]} == {"network", "weights"}


@pytest.mark.campaign
def test_workers_that_waited_while_the_keeper_was_killed_share_by_the_next_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYTHONPATH", str(Path(__file__).resolve().parents[2]))
    served = "large=driver.weights.test_sharing:network"
    path = tmp_path / "shared"
    with service_process(path, "--model", served) as supervisor, ExitStack() as stack:
        before, _ = clients(path, stack)
        kill_twice(supervisor)
        results, files = clients(path, stack)
    assert set(results) == set(before)
    # Each has what it prepared for the service with the keeper that was, too.
    assert {name for _, name in files[0] & files[1] & files[2]} == {"network", "weights"}
