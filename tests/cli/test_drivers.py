"""serve, devices and selftest as a user types them."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import nnburst
from nnburst.hal.utils import driver_environment

NNBURST = [sys.executable, "-m", "nnburst"]


@pytest.fixture(autouse=True)
def _runtime(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))


def run(*words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*NNBURST, *words], capture_output=True, text=True, timeout=120, env=driver_environment()
    )


@pytest.fixture
def served(tmp_path: Path) -> Iterator[subprocess.Popen[str]]:
    """A driver called `cam`, ready for clients; it has written `served.json`."""
    # Under `nohup make test` this process ignores the signal, and so would the driver.
    before = signal.signal(signal.SIGHUP, signal.SIG_DFL)
    try:
        process = subprocess.Popen(
            [
                *NNBURST,
                "serve",
                "cam",
                "--executor",
                "null",
                "--json",
                str(tmp_path / "served.json"),
            ],
            stdout=subprocess.PIPE,
            text=True,
            env=driver_environment(),
        )
    finally:
        signal.signal(signal.SIGHUP, before)
    assert process.stdout is not None
    assert process.stdout.readline().startswith("null listens at ")
    yield process
    process.kill()
    process.communicate(timeout=10)


def test_served_driver_is_listed_and_ends_on_sigterm(
    served: subprocess.Popen[str], tmp_path: Path
) -> None:
    facts = json.loads((tmp_path / "served.json").read_text())
    assert facts == {
        "address": str(tmp_path / "nnburst" / "cam.sock"),
        "executor": "null",
        "pid": served.pid,
    }
    with nnburst.connect("cam") as device:
        shown = run("devices", "--json", "-")
        assert json.loads(shown.stdout)["devices"] == [
            {
                "name": "cam",
                "version_string": device.version_string,
                "type": "CPU",
                "feature_level": 8,
                "address": facts["address"],
                "exec_time": {"float32": 1.0, "quant8": 1.0},
                "cache_files": [1, 0],
                "thread_budget": device.thread_budget,
            }
        ]
    assert "cam" in run("devices").stdout
    served.send_signal(signal.SIGTERM)
    assert served.wait(timeout=10) == 0
    assert json.loads(run("devices", "--json", "-").stdout) == {"devices": []}


def test_end_of_the_terminal_ends_a_driver_as_sigterm_does(
    served: subprocess.Popen[str], tmp_path: Path
) -> None:
    served.send_signal(signal.SIGHUP)
    assert served.wait(timeout=10) == 0
    assert not (tmp_path / "nnburst" / "cam.sock").exists()


@pytest.mark.campaign
def test_driver_that_nohup_starts_outlives_the_terminal() -> None:
    words = ["nohup", *NNBURST, "serve", "cam", "--executor", "null"]
    with subprocess.Popen(
        words, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, env=driver_environment()
    ) as process:
        assert process.stdout is not None
        process.stdout.readline()
        process.send_signal(signal.SIGHUP)
        with nnburst.connect("cam") as device:
            assert device.pid
        process.terminate()
        assert process.wait(timeout=10) == 0


def test_second_server_of_a_name_fails_with_one_line(served: subprocess.Popen[str]) -> None:
    again = run("serve", "cam", "--executor", "null")
    assert again.returncode == 1
    assert "is served by another process" in again.stderr
    assert len(again.stderr.splitlines()) == 1
    assert served.poll() is None


def test_bad_name_fails_with_one_line() -> None:
    shown = run("serve", "no such name")
    assert shown.returncode == 1
    assert "name: " in shown.stderr


@pytest.mark.campaign
def test_selftest_passes_and_lists_what_it_checked(tmp_path: Path) -> None:
    shown = run("selftest", "--json", str(tmp_path / "checks.json"))
    assert shown.returncode == 0, shown.stdout
    checks = json.loads((tmp_path / "checks.json").read_text())["checks"]
    assert [check["name"] for check in checks] == [
        "cores",
        "shared memory",
        "numpy",
        "execute",
        "burst",
        "driver death",
    ]
    assert {check["outcome"] for check in checks} == {"passed"}


def test_health_is_that_of_a_worker_which_executes(served: subprocess.Popen[str]) -> None:
    shown = run("devices", "--check", "--json", "-")
    assert shown.returncode == 0
    (cam,) = json.loads(shown.stdout)["devices"]
    assert (cam["name"], cam["healthy"]) == ("cam", True)
    assert cam["detail"] == "prepared a model and executed it by a burst"


def test_a_driver_whose_workers_fail_is_not_healthy(tmp_path: Path) -> None:
    (tmp_path / "failing.py").write_text(
        "from nnburst.executor.null import NullExecutor\n"
        "class Preparing(NullExecutor):\n"
        "    def prepare(self, *arguments, **more):\n"
        "        raise OSError('unplugged')\n"
    )
    environment = driver_environment()
    environment["PYTHONPATH"] = f"{tmp_path}:{environment.get('PYTHONPATH', '')}"
    with subprocess.Popen(
        [*NNBURST, "serve", "cam", "--executor", "failing:Preparing"],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        env=environment,
    ) as driver:
        assert driver.stdout is not None
        assert "listens at" in driver.stdout.readline()
        shown = run("devices", "--check")
        driver.terminate()
    assert shown.returncode == 1
    assert "failed" in shown.stdout
    assert "not running" not in shown.stdout


def test_a_socket_that_a_crash_left_behind_is_not_running_and_no_failure(
    served: subprocess.Popen[str], tmp_path: Path
) -> None:
    served.kill()
    served.wait(30)
    shown = run("devices", "--check", "--json", "-")
    assert shown.returncode == 0
    (cam,) = json.loads(shown.stdout)["devices"]
    assert (cam["healthy"], cam["running"]) == (False, False)
    assert "no driver serves" in cam["detail"]
    words = run("devices", "--check").stdout.split()  # the table's cells are narrow
    assert {"not", "running"} <= set(words)
