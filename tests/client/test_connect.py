"""Drivers that are found by name: one owner of a name, one worker per client."""

from __future__ import annotations

import contextlib
import math
import os
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import nnburst
from early_ends import ending_early
from nnburst import DeadObject, DeviceUnavailable, InvalidArgument, Model
from nnburst.driver.service.supervisor import MAX_WORKERS_OF_ONE
from nnburst.hal import environment
from nnburst.hal.utils import driver_environment
from nnburst.testing.faults.footprint import children
from waiting import wait_for

A = np.zeros((2, 3), np.float32)
Serve = Callable[..., subprocess.Popen[str]]


@pytest.fixture(autouse=True)
def runtime(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A directory of drivers that only this test sees."""
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    return tmp_path


@pytest.fixture
def serve() -> Iterator[Serve]:
    """Starts a driver and waits until clients may come (or until it has ended)."""
    started: list[subprocess.Popen[str]] = []

    def start(name: str = "cam", *options: str, wait: bool = True) -> subprocess.Popen[str]:
        command = [sys.executable, "-m", "nnburst.driver", "--executor", "null", "--serve", name]
        process = subprocess.Popen(
            [*command, *options],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env=driver_environment(),
        )
        started.append(process)
        if wait:
            assert process.stdout is not None
            process.stdout.readline()
        return process

    yield start
    for process in started:
        process.kill()
        process.communicate(timeout=10)


def test_clients_find_a_driver_by_name_and_each_gets_a_worker(
    serve: Serve, make_model: Callable[..., Model]
) -> None:
    supervisor = serve()
    with nnburst.connect("cam") as first, nnburst.connect("cam") as second:
        assert first.name == second.name == "cam"
        assert len({first.pid, second.pid, supervisor.pid}) == 3
        for device in (first, second):
            assert device.prepare(make_model()).execute([A, A]).outputs[0].shape == (2, 3)


def test_path_is_an_address_too(serve: Serve, tmp_path: Path) -> None:
    path = tmp_path / "here.socket"
    serve(str(path))
    with nnburst.connect(path) as device:
        assert device.is_alive
    assert path.stat().st_mode & 0o777 == 0o600


def test_devices_lists_those_that_answer(serve: Serve) -> None:
    serve("one")
    two = serve("two")
    assert [device.name for device in nnburst.devices()] == ["one", "two"]
    two.kill()
    two.wait(timeout=10)
    assert [device.name for device in nnburst.devices()] == ["one"]


def test_no_directory_means_no_devices() -> None:
    assert nnburst.devices() == []


@pytest.mark.parametrize("timeout", [0, -1.0, math.inf, "soon"])
def test_looking_for_devices_refuses_a_timeout_that_makes_no_sense(timeout: Any) -> None:
    with pytest.raises(InvalidArgument, match="timeout: "):
        nnburst.devices(timeout=timeout)


def test_address_without_a_driver_is_named(serve: Serve, tmp_path: Path) -> None:
    with pytest.raises(DeviceUnavailable, match=r"no driver serves .*/nnburst/cam\.sock"):
        nnburst.connect("cam")
    process = serve()
    process.kill()
    process.wait(timeout=10)
    with pytest.raises(DeviceUnavailable, match=r"no driver serves .*refused"):
        nnburst.connect("cam")
    with pytest.raises(InvalidArgument, match="name: "):
        nnburst.connect("no such name")
    with pytest.raises(InvalidArgument, match="timeout: "):
        nnburst.connect("cam", timeout=0)


@pytest.mark.campaign
def test_of_8_racers_for_one_name_exactly_one_wins(serve: Serve) -> None:
    racers = [serve("cam", wait=False) for _ in range(8)]
    wait_for(lambda: sum(racer.poll() is None for racer in racers) == 1, 30)
    for racer in racers:
        if racer.poll() is not None:
            assert racer.returncode == 1
            _, errors = racer.communicate(timeout=10)
            assert "is served by another process" in errors
    (winner,) = (racer for racer in racers if racer.poll() is None)
    assert winner.stdout is not None
    winner.stdout.readline()
    with nnburst.connect("cam") as device:
        assert device.pid in children(winner.pid)


@pytest.mark.counted
def test_crashed_driver_is_restarted_at_once(serve: Serve) -> None:
    for _ in range(max(1, environment.KILLS.read() // 2)):
        process = serve()
        device = nnburst.connect("cam")
        process.kill()
        process.wait(timeout=10)
        restarted = serve()
        with nnburst.connect("cam") as again:
            assert again.is_alive
        restarted.kill()
        restarted.wait(timeout=10)
        device.close()


def test_client_that_comes_while_a_driver_is_starting_is_not_refused(
    serve: Serve, make_module: Callable[[str, str], None], runtime: Path
) -> None:
    gate = runtime / "gate"
    os.mkfifo(gate)
    source = f"open({str(gate)!r}).read()\nfrom nnburst.executor.null import NullExecutor as Slow\n"
    make_module("slow_to_import", source)
    serve("cam", "--executor", "slow_to_import:Slow", wait=False)
    address = runtime / "nnburst" / "cam.sock"
    wait_for(address.exists, 60.0)
    came: list[bool] = []

    def come() -> None:
        with nnburst.connect("cam") as device:
            came.append(device.is_alive)

    client = threading.Thread(target=come)
    client.start()
    gate.write_text("now")  # returns when the executor is being imported
    client.join(60.0)
    assert came == [True]


def test_client_whose_supervisor_is_killed_gets_dead_object(
    serve: Serve, make_model: Callable[..., Model]
) -> None:
    supervisor = serve()
    with nnburst.connect("cam") as device:
        prepared = device.prepare(make_model())
        supervisor.kill()
        wait_for(lambda: not device.is_alive)
        with pytest.raises(DeadObject, match=r"cam\.sock (was killed by|has died)"):
            prepared.execute([A, A])


def test_death_of_one_client_frees_its_worker_and_disturbs_no_other(
    serve: Serve, make_model: Callable[..., Model]
) -> None:
    supervisor = serve()
    code = (
        "import nnburst, sys\n"
        "device = nnburst.connect('cam')\n"
        "memory = device.allocate(1 << 20)\n"
        "print(device.pid, flush=True)\n"
        "sys.stdin.read()\n"
    )
    with nnburst.connect("cam") as bystander:
        prepared = bystander.prepare(make_model())
        for _ in range(2):
            victim = subprocess.Popen(
                [sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE
            )
            assert victim.stdout is not None
            assert victim.stdin is not None
            worker = int(victim.stdout.readline())
            assert worker in children(supervisor.pid)
            victim.kill()
            victim.wait(timeout=10)
            wait_for(lambda gone=worker: gone not in children(supervisor.pid), 1.0)  # type: ignore[misc]
            prepared.execute([A, A])
            victim.stdout.close()
            victim.stdin.close()


def test_worker_killed_disturbs_no_other_client(
    serve: Serve, make_model: Callable[..., Model]
) -> None:
    serve()
    with nnburst.connect("cam") as victim, nnburst.connect("cam") as bystander:
        prepared = bystander.prepare(make_model())
        os.kill(victim.pid, signal.SIGKILL)
        wait_for(lambda: not victim.is_alive)
        prepared.execute([A, A])


@pytest.mark.parametrize(("number", "status"), [(signal.SIGTERM, 0), (signal.SIGINT, 130)])
def test_driver_ends_in_good_order_and_takes_its_name_along(
    serve: Serve, number: signal.Signals, status: int, runtime: Path
) -> None:
    supervisor = serve()
    device = nnburst.connect("cam")
    began = time.monotonic()
    supervisor.send_signal(number)
    assert supervisor.wait(timeout=60) == status
    assert time.monotonic() - began < 2 or not environment.STRICT_TIMING.read()
    wait_for(lambda: not device.is_alive)
    device.close()
    assert not list((runtime / "nnburst").glob("*.sock"))


def test_worker_holds_no_socket_of_the_supervisor_or_of_another(serve: Serve) -> None:
    supervisor = serve()

    def sockets(pid: int) -> set[str]:
        links = set()
        for link in Path(f"/proc/{pid}/fd").iterdir():
            with contextlib.suppress(FileNotFoundError):  # closed meanwhile
                links.add(str(link.readlink()))
        return {link for link in links if link.startswith("socket:")}

    with nnburst.connect("cam") as first, nnburst.connect("cam") as second:
        assert not sockets(supervisor.pid) & sockets(first.pid)
        assert not sockets(supervisor.pid) & sockets(second.pid)
        assert not sockets(first.pid) & sockets(second.pid)


def test_idle_driver_does_not_wake_up(serve: Serve) -> None:
    supervisor = serve()

    def field(name: str) -> dict[Path, str]:
        tasks = [t for pid in pids for t in Path(f"/proc/{pid}/task").iterdir()]
        return {
            task: (task / "status").read_text().partition(f"\n{name}:")[2].split()[0]
            for task in tasks
        }

    def slept_through() -> bool:
        before = field("voluntary_ctxt_switches")
        threading.Event().wait(0.3)
        return field("voluntary_ctxt_switches") == before

    with nnburst.connect("cam") as device:
        pids = supervisor.pid, device.pid
        wait_for(slept_through)  # the first look may see the worker's start


def test_client_comes_again_when_its_driver_ends_before_the_first_answer(
    serve: Serve, runtime: Path
) -> None:
    serve()
    relay = runtime / "relay.sock"
    with ending_early(relay, 2, runtime / "nnburst" / "cam.sock") as thread:
        with nnburst.connect(relay) as device:
            assert device.is_alive
        thread.join(10.0)


def test_driver_that_always_ends_before_its_first_answer_is_not_called_for_ever(
    runtime: Path,
) -> None:
    relay, came = runtime / "relay.sock", []
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as listener:
        listener.bind(str(relay))
        listener.listen()

        def end_early() -> None:
            with contextlib.suppress(OSError):
                while True:
                    connected, _ = listener.accept()
                    came.append(connected.recv(1))
                    connected.close()

        thread = threading.Thread(target=end_early)
        thread.start()
        with pytest.raises(DeviceUnavailable, match="before its first answer"):
            nnburst.connect(relay)
        listener.shutdown(socket.SHUT_RDWR)
        thread.join(10.0)
    assert len(came) == 3


@pytest.mark.skipif(os.getuid() != 0, reason="only root can become somebody else")
def test_client_of_another_user_is_refused_by_default(serve: Serve) -> None:
    code = (
        "import os, sys, nnburst\n"
        "connect, failure = nnburst.connect, nnburst.NnburstError\n"
        "os.setuid(65534)\n"
        "try:\n"
        "    device = connect(sys.argv[1], any_user=True)\n"
        "    print('served')\n"
        "except failure as error:\n"
        "    print(type(error).__name__, error)\n"
    )
    with tempfile.TemporaryDirectory() as folder:  # pytest's own directories are private
        Path(folder).chmod(0o755)
        for options, expected in (((), "DeviceUnavailable"), (("--any-user",), "served")):
            path = Path(folder, f"open{len(options)}")
            serve(str(path), *options)
            if not options:
                path.chmod(0o666)  # then it is the driver who refuses, not the file's mode
            shown = subprocess.run(
                [sys.executable, "-c", code, path], capture_output=True, text=True, timeout=60
            )
            assert shown.stdout.split()[:1] == [expected], shown.stdout + shown.stderr


@pytest.mark.campaign
def test_one_process_cannot_take_the_places_of_all(serve: Serve) -> None:
    serve()
    with contextlib.ExitStack() as held:
        devices = [held.enter_context(nnburst.connect("cam")) for _ in range(MAX_WORKERS_OF_ONE)]
        with pytest.raises(DeviceUnavailable):
            nnburst.connect("cam")
        code = "import nnburst; nnburst.connect('cam').close()"
        subprocess.run([sys.executable, "-c", code], check=True, timeout=60)
        devices[0].close()
        wait_for(lambda: _can_connect("cam"))


def _can_connect(name: str) -> bool:
    try:
        nnburst.connect(name).close()
    except DeviceUnavailable:
        return False
    return True
