"""A driver under a service manager, which is a socket here."""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import nnburst
from nnburst.driver.service.supervisor import ServiceManager
from nnburst.hal.utils import driver_environment

UNITS = Path(__file__).resolve().parents[2] / "contrib" / "systemd"


@pytest.fixture
def manager(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[socket.socket]:
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    monkeypatch.setenv("NOTIFY_SOCKET", str(tmp_path / "manager"))
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as listening:
        listening.bind(str(tmp_path / "manager"))
        listening.settimeout(30)
        yield listening


def serve() -> subprocess.Popen[bytes]:
    command = [sys.executable, "-m", "nnburst.driver", "--executor", "null", "--serve", "cam"]
    return subprocess.Popen(command, stdout=subprocess.DEVNULL, env=driver_environment())


def test_the_service_manager_is_notified_when_clients_may_come_and_when_not(
    manager: socket.socket,
) -> None:
    with serve() as driver:
        assert manager.recv(4096) == b"READY=1\nSTATUS=null serves 0 clients"
        nnburst.connect("cam").close()
        driver.send_signal(signal.SIGTERM)
        assert manager.recv(4096) == b"STOPPING=1"
    assert driver.returncode == 0


def test_the_watchdog_is_notified_of_clients_and_failed_workers(
    manager: socket.socket, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("WATCHDOG_USEC", "20000")
    with serve() as driver:
        assert manager.recv(4096).startswith(b"READY=1\n")
        with nnburst.connect("cam") as device:
            while manager.recv(4096) != b"WATCHDOG=1\nSTATUS=null serves 1 clients":
                pass
            os.kill(device.pid, signal.SIGKILL)
            while not manager.recv(4096).endswith(b"serves 0 clients, 1 workers have failed"):
                pass
        driver.terminate()


def test_a_service_manager_that_is_gone_changes_nothing(
    manager: socket.socket, caplog: pytest.LogCaptureFixture
) -> None:
    manager.close()
    ServiceManager().ready("there")
    assert "cannot notify the service manager" in caplog.text


def test_without_a_service_manager_nothing_happens(caplog: pytest.LogCaptureFixture) -> None:
    alone = ServiceManager()
    assert alone.patience is None
    alone.ready("there")
    assert not caplog.text


@pytest.mark.parametrize(
    ("period", "pid", "patience"),
    [("1500000", "", 1.5), ("1500000", "1", None), ("x", "", None), ("", "", None)],
)
def test_a_watchdog_that_means_another_process_is_not_ours(
    manager: socket.socket,
    monkeypatch: pytest.MonkeyPatch,
    period: str,
    pid: str,
    patience: float | None,
) -> None:
    monkeypatch.setenv("WATCHDOG_USEC", period)
    monkeypatch.setenv("WATCHDOG_PID", pid or str(os.getpid()))
    assert ServiceManager().patience == patience
    assert "NOTIFY_SOCKET" not in os.environ


def test_the_units_are_what_systemd_understands(tmp_path: Path) -> None:
    if not UNITS.is_dir():
        pytest.skip("the units are not part of what is installed")
    if shutil.which("systemd-analyze") is None:
        pytest.skip("systemd-analyze is not installed")
    unit = tmp_path / "nnburst@cam.service"
    unit.write_text((UNITS / "nnburst@.service").read_text())
    environment = {**os.environ, "XDG_RUNTIME_DIR": str(tmp_path)}
    done = subprocess.run(
        ["systemd-analyze", "verify", "--user", "--man=no", str(unit)],
        capture_output=True,
        text=True,
        timeout=60,
        env=environment,
    )
    complaints = [line for line in done.stderr.splitlines() if "nnburst@cam" in line]
    assert not complaints
