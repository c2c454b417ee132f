"""The workers that wait for the clients that come next."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import nnburst
from nnburst import DeviceUnavailable
from nnburst.control.address import socket_path
from nnburst.driver.service import rehearsal
from nnburst.driver.service import worker as worker_module
from nnburst.driver.service.supervisor import _end_with_parent
from nnburst.driver.service.worker import Worker
from nnburst.hal.utils import driver_environment
from nnburst.testing.faults.footprint import children, is_running, spares
from waiting import wait_for

PATIENCE = 30.0
Serve = Callable[..., "subprocess.Popen[str]"]


@pytest.fixture
def serve(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Serve]:
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    started: list[subprocess.Popen[str]] = []

    def start(executor: str = "null") -> subprocess.Popen[str]:
        command = [sys.executable, "-m", "nnburst.driver", "--executor", executor, "--serve", "cam"]
        environment = driver_environment()
        environment["PYTHONPATH"] = f"{tmp_path}:{environment.get('PYTHONPATH', '')}"
        started.append(
            subprocess.Popen(
                command,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                text=True,
                env=environment,
            )
        )
        assert started[-1].stdout is not None
        assert started[-1].stdout.readline()
        return started[-1]

    yield start
    for process in started:
        process.kill()
        process.communicate(timeout=PATIENCE)


def spares_of(supervisor: int) -> list[int]:
    """Both, the one first that was forked first."""
    wait_for(lambda: len(spares(supervisor)) == 2)
    return spares(supervisor)


def test_client_that_comes_gets_a_spare_and_another_one_takes_its_place(serve: Serve) -> None:
    supervisor = serve().pid
    for _ in range(3):
        first, second = spares_of(supervisor)
        assert first not in children(supervisor)
        with nnburst.connect("cam") as device:
            assert device.pid == first
            assert first in children(supervisor)
            others = spares_of(supervisor)
        assert others[0] == second
        assert first not in others


def test_threads_that_a_client_needs_wait_for_it(serve: Serve) -> None:
    supervisor = serve().pid
    first, _ = spares_of(supervisor)
    waiting = status(first, "Threads")
    with nnburst.connect("cam") as device:
        assert device.pid == first
        assert status(first, "Threads") == waiting


@pytest.mark.parametrize(("has_come", "rehearsals"), [(True, 1), (False, 9)])
def test_worker_rehearses_until_its_client_comes(
    monkeypatch: pytest.MonkeyPatch, has_come: bool, rehearsals: int
) -> None:
    monkeypatch.setattr(worker_module, "_REHEARSING", PATIENCE)
    worker, made = Worker("null", "cam"), 0
    sound = rehearsal.rehearse

    def rehearse(*words: Any) -> bool:
        nonlocal made
        made += 1
        return sound(*words)

    monkeypatch.setattr(rehearsal, "rehearse", rehearse)
    worker.rehearse(lambda: has_come)
    assert made == rehearsals
    assert not worker.knows_its_client()


def test_client_that_comes_right_after_another_gets_a_spare_too(serve: Serve) -> None:
    supervisor = serve().pid
    for _ in range(3):
        waiting = spares_of(supervisor)
        with nnburst.connect("cam") as one, nnburst.connect("cam") as other:
            assert [one.pid, other.pid] == waiting


def test_second_spare_is_forked_once_the_first_has_its_executor(
    serve: Serve, tmp_path: Path
) -> None:
    (tmp_path / "slow.py").write_text(
        "import os, time\n"
        "from nnburst.executor.null import NullExecutor\n"
        "def Slow():\n"
        "    os.write(2, b'begins %d\\n' % os.getpid())\n"
        "    time.sleep(0.3)\n"
        "    os.write(2, b'ends %d\\n' % os.getpid())\n"
        "    return NullExecutor()\n"
    )
    supervisor = serve("slow:Slow")
    waiting = spares_of(supervisor.pid)
    assert supervisor.stderr is not None
    written = (line for line in supervisor.stderr if "no death word" not in line)
    lines = [next(written) for _ in range(4)]
    assert lines == [f"{what} {pid}\n" for pid in waiting for what in ("begins", "ends")]


def test_clients_that_come_together_are_all_served(serve: Serve) -> None:
    serve()
    found: list[int] = []

    def visit() -> None:
        with nnburst.connect("cam") as device:
            found.append(device.pid)
            everybody.wait(PATIENCE)

    everybody = threading.Barrier(6)
    visitors = [threading.Thread(target=visit) for _ in range(6)]
    for visitor in visitors:
        visitor.start()
    for visitor in visitors:
        visitor.join(PATIENCE)
    assert len(set(found)) == 6


@contextlib.contextmanager
def clients_at_once(supervisor: int) -> Iterator[None]:
    """Three that come before the supervisor looks, one more than spares wait."""
    spares_of(supervisor)
    address = str(socket_path("cam"))
    with contextlib.ExitStack() as clients:
        os.kill(supervisor, signal.SIGSTOP)
        for _ in range(3):
            client = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
            clients.enter_context(client).connect(address)
        os.kill(supervisor, signal.SIGCONT)
        wait_for(lambda: len(children(supervisor)) == 3)
        yield


def test_third_client_at_once_gets_a_worker_of_its_own_and_two_spares_wait_again(
    serve: Serve,
) -> None:
    supervisor = serve().pid
    before = spares_of(supervisor)
    with clients_at_once(supervisor):
        assert set(before) < set(children(supervisor))
        assert not set(before) & set(spares_of(supervisor))


def test_spare_that_was_killed_costs_no_client(serve: Serve) -> None:
    supervisor = serve().pid
    for _ in range(5):
        spare, _ = spares_of(supervisor)
        os.kill(spare, signal.SIGKILL)
        wait_for(lambda pid=spare: not Path(f"/proc/{pid}").exists())  # type: ignore[misc]
        with nnburst.connect("cam") as device:
            assert device.is_alive
            assert device.pid != spare


def status(pid: int, name: str) -> str:
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return next(line.split()[1] for line in lines if line.startswith(f"{name}:"))


def test_spare_is_within_limits_and_sandbox_before_it_has_a_client(serve: Serve) -> None:
    supervisor = serve().pid
    with nnburst.connect("cam") as device:
        steps = {name: status(device.pid, name) for name in ("NoNewPrivs", "Seccomp")}
    assert steps["NoNewPrivs"] == "1"
    waiting = spares_of(supervisor)
    for spare in waiting:
        wait_for(lambda pid=spare: {n: status(pid, n) for n in steps} == steps)  # type: ignore[misc]
        limits = Path(f"/proc/{spare}/limits").read_text().splitlines()
        (data,) = (line for line in limits if line.startswith("Max data size"))
        assert "unlimited" not in data
    assert spares(supervisor) == waiting


@pytest.mark.every_day("9")
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
def test_spare_ends_with_its_supervisor(serve: Serve, number: signal.Signals) -> None:
    supervisor = serve()
    waiting = spares_of(supervisor.pid)
    supervisor.send_signal(number)
    _, errors = supervisor.communicate(timeout=PATIENCE)
    wait_for(lambda: not any(map(is_running, waiting)))
    assert [line for line in errors.splitlines() if "no death word" not in line] == []


def test_no_worker_holds_the_way_to_another_that_waits(serve: Serve) -> None:
    supervisor = serve().pid

    def sockets(pid: int) -> int:
        links = (os.readlink(f"/proc/{pid}/fd/{fd}") for fd in os.listdir(f"/proc/{pid}/fd"))
        return sum(link.startswith("socket:") for link in links)

    def both_hold_the_same() -> bool:
        waiting = spares(supervisor)
        try:
            return len(waiting) == 2 and len({sockets(pid) for pid in waiting}) == 1
        except FileNotFoundError:  # a descriptor that was closed meanwhile
            return False

    wait_for(both_hold_the_same)
    with clients_at_once(supervisor):
        wait_for(both_hold_the_same)


def test_worker_whose_supervisor_has_ended_already_ends_without_a_word(
    capfd: pytest.CaptureFixture[str],
) -> None:
    pid = os.fork()
    if pid == 0:
        _end_with_parent(1 << 30)
        os._exit(1)
    assert os.waitpid(pid, 0) == (pid, 0)
    assert capfd.readouterr() == ("", "")


#: An executor on a device that is there as long as a file is, and ends its process if that has words.
DEVICE = """
import os
from pathlib import Path
from nnburst.executor.null import NullExecutor

def Device():
    words = Path(__file__).with_name("plugged").read_text()
    if words:
        os.write(2, f"{words}\\n".encode())
        os._exit(3)
    os.write(2, b"made\\n")
    return NullExecutor()
"""


@pytest.fixture
def plugged(tmp_path: Path) -> Path:
    """The file of `device:Device`."""
    (tmp_path / "device.py").write_text(DEVICE)
    file = tmp_path / "plugged"
    file.touch()
    return file


def serve_with_both_made(serve: Serve) -> subprocess.Popen[str]:
    """A service of `device:Device` whose two spare workers have made it."""
    supervisor = serve("device:Device")
    for _ in range(2):
        next_line_with(supervisor, "made")
    return supervisor


def next_line_with(supervisor: subprocess.Popen[str], words: str) -> str:
    assert supervisor.stderr is not None
    return next(line for line in supervisor.stderr if words in line)


def test_executor_that_ends_its_process_is_tried_ahead_once_for_each_connection(
    serve: Serve, plugged: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("nnburst.client.connect._TRIES", 1)
    supervisor = serve_with_both_made(serve)
    plugged.write_text("tried")
    # One worker for each of these, and two for the next: few enough lines of the kind to be all written.
    with nnburst.connect("cam"):
        next_line_with(supervisor, "ended with 3")
        with nnburst.connect("cam"):
            next_line_with(supervisor, "ended with 3")
    with pytest.raises(DeviceUnavailable):
        nnburst.connect("cam")
    for _ in range(2):
        next_line_with(supervisor, "ended with 3")
    supervisor.terminate()
    _, errors = supervisor.communicate(timeout=PATIENCE)
    assert "tried" not in errors


def test_executor_that_cannot_be_made_ahead_is_made_for_the_client(
    serve: Serve, plugged: Path
) -> None:
    supervisor = serve_with_both_made(serve)
    plugged.unlink()
    with nnburst.connect("cam"), nnburst.connect("cam"):
        assert "No such file" in next_line_with(supervisor, "cannot make its executor")
        spare = spares_of(supervisor.pid)[0]
    plugged.touch()
    with nnburst.connect("cam") as device:
        assert device.pid == spare


def test_executor_that_can_no_longer_be_made_leaves_a_spare_that_gives_the_reason(
    serve: Serve, plugged: Path
) -> None:
    supervisor = serve_with_both_made(serve)
    plugged.unlink()
    with nnburst.connect("cam"), nnburst.connect("cam"):
        spare = spares_of(supervisor.pid)[0]
        with pytest.raises(DeviceUnavailable, match=r"'device:Device' cannot be made: .*No such"):
            nnburst.connect("cam")
        wait_for(lambda: not is_running(spare))  # the client that it refused has left
