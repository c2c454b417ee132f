"""A service whose executor cannot be made ends with the reason, before it says that it listens."""

from __future__ import annotations

import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

import nnburst
from nnburst.hal.utils import driver_environment

PATIENCE = 60.0
Start = Callable[..., "subprocess.Popen[str]"]

EXECUTORS = """
import os, time
from pathlib import Path
from nnburst.executor.null import NullExecutor

def Raising():
    raise OSError("no chip")

def Ending():
    os._exit(3)

def Slow():
    os.write(2, b"begins\\n")
    while not Path(__file__).with_name("plugged").exists():
        time.sleep(0.01)
    return NullExecutor()
"""


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    """Starts `nnburst serve` with words behind its name, which is a path in `tmp_path`."""
    (tmp_path / "engines.py").write_text(EXECUTORS)
    started: list[subprocess.Popen[str]] = []

    def run(*words: str, **environment: str) -> subprocess.Popen[str]:
        found = driver_environment() | environment
        found["PYTHONPATH"] = f"{tmp_path}:{found.get('PYTHONPATH', '')}"
        command = [sys.executable, "-m", "nnburst", "serve", f"{tmp_path}/driver", *words]
        started.append(
            subprocess.Popen(
                command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=found
            )
        )
        return started[-1]

    yield run
    for process in started:
        process.kill()
        process.communicate(timeout=PATIENCE)


def wait_for_begin(process: subprocess.Popen[str]) -> None:
    """Wait until `engines:Slow` is being made."""
    assert process.stderr is not None
    assert any(line == "begins\n" for line in process.stderr)


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        ("unknown", "'unknown' is not known; known are "),
        ("engines:Absent", "'engines:Absent' cannot be imported: "),
        ("engines:Raising", "'engines:Raising' cannot be made: OSError: no chip"),
        ("engines:Ending", "'engines:Ending' cannot be made: its process ended with 3"),
        ("engines:Raising --exclusive", "'engines:Raising' cannot be made: OSError: no chip"),
        ("litert --delegate /nowhere.so", "'/nowhere.so' cannot be "),
        ("engines:Raising --metrics 127.0.0.1:0", "cannot be made: OSError: no chip"),
    ],
)
def test_service_whose_executor_cannot_be_made_ends_with_the_reason(
    start: Start, words: str, reason: str
) -> None:
    if words.startswith("litert"):
        pytest.importorskip("ai_edge_litert", reason="extra litert is not installed")
    if "--metrics" in words:
        pytest.importorskip("prometheus_client", reason="extra metrics is not installed")
    process = start("--executor", *words.split())
    printed, errors = process.communicate(timeout=PATIENCE)
    assert process.returncode == 1
    assert printed == ""
    assert reason in errors.splitlines()[-1]


def test_service_manager_gets_no_readiness_if_the_executor_cannot_be_made(
    start: Start, tmp_path: Path
) -> None:
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as manager:
        manager.bind(str(tmp_path / "notify"))
        manager.settimeout(PATIENCE)
        process = start("--executor", "engines:Raising", NOTIFY_SOCKET=str(tmp_path / "notify"))
        assert manager.recv(4096) == b"STOPPING=1"
    process.communicate(timeout=PATIENCE)
    assert process.returncode == 1


def test_client_that_comes_before_the_executor_is_made_waits_and_is_served(
    start: Start, tmp_path: Path
) -> None:
    process = start("--executor", "engines:Slow")
    wait_for_begin(process)
    with ThreadPoolExecutor() as threads:
        client = threads.submit(nnburst.connect, str(tmp_path / "driver"))
        (tmp_path / "plugged").touch()
        with client.result(PATIENCE) as device:
            assert device.is_alive
    assert process.stdout is not None
    assert "listens at" in process.stdout.readline()


def test_service_ends_while_its_first_executor_is_being_made(start: Start) -> None:
    process = start("--executor", "engines:Slow")
    wait_for_begin(process)
    process.terminate()
    printed, _ = process.communicate(timeout=PATIENCE)
    assert (process.returncode, printed) == (0, "")
