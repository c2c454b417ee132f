"""A `kill -9` leaves no named object, and no memory but that of running processes."""

from __future__ import annotations

import contextlib
import os
import random
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from itertools import cycle, islice
from pathlib import Path

import pytest

import nnburst
from faults.processes import HANG, KILLS, Client, Row, Supervisor, collect, wait_until_gone
from nnburst import DeadObject
from nnburst.hal.utils import driver_environment
from nnburst.testing.faults.activities import ACTIVITIES, sum_model, summands
from nnburst.testing.faults.footprint import children, footprint, settle

#: Longest time between the start of an activity and its end, in seconds: several rounds of each.
LATEST = 0.03
SHARED = Path("/dev/shm")


def named(*folders: Path) -> set[Path]:
    """The names in these folders."""
    return {path for folder in folders for path in folder.iterdir()}


def held(pid: int) -> set[str]:
    """Named shared memory that a process has open or mapped."""
    maps = Path(f"/proc/{pid}/maps").read_text().split()
    links = []
    for fd in Path(f"/proc/{pid}/fd").iterdir():
        with contextlib.suppress(FileNotFoundError):  # it was closed after it was listed
            links.append(str(fd.readlink()))
    return {path for path in [*maps, *links] if path.startswith(f"{SHARED}/")}


@pytest.mark.campaign
def test_killed_clients_and_drivers_leave_no_name_and_no_memory(
    serve: Callable[..., Supervisor],
    client: Callable[[str, str], Client],
    chance: random.Random,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    row: Row,
) -> None:
    temporary = tmp_path / "temporary"
    temporary.mkdir()
    monkeypatch.setenv("TMPDIR", str(temporary))
    supervisor = serve()
    bystander = client("cam", "stand_by")
    while not bystander.lap()["rounds"]:
        pass  # after a round it has all that it ever has
    files, shared = named(temporary, tmp_path / "nnburst"), named(SHARED)
    baseline = footprint(supervisor.pid)
    before = footprint(bystander.pid)
    for number, activity in enumerate(islice(cycle(ACTIVITIES), KILLS)):
        victim = client("cam", activity)
        threading.Event().wait(chance.uniform(0, LATEST))
        if number % 2:
            victim.kill()
        else:
            os.kill(victim.worker, signal.SIGKILL)
            victim.close()
    settle(supervisor.pid, baseline)
    assert named(temporary, tmp_path / "nnburst") == files
    # Others on this machine may use named memory; they do not keep it for so long.
    deadline = time.monotonic() + HANG
    while left := named(SHARED) - shared:
        assert time.monotonic() < deadline, left
        threading.Event().wait(0.01)
    settle(bystander.pid, before)
    processes = [bystander.pid, supervisor.pid, *children(supervisor.pid)]
    assert not any(map(held, processes))
    row("client or worker killed", KILLS, left="no name, no memfd")


def state(pid: int) -> str:
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]


@pytest.mark.campaign
def test_a_client_that_is_a_zombie_counts_as_gone(
    serve: Callable[..., Supervisor], client: Callable[[str, str], Client]
) -> None:
    supervisor = serve()
    baseline = footprint(supervisor.pid)
    victim = client("cam", "burst_runs")
    os.kill(victim.pid, signal.SIGKILL)  # without a wait for it
    os.waitid(os.P_PID, victim.pid, os.WEXITED | os.WNOWAIT)
    settle(supervisor.pid, baseline)
    assert state(victim.pid) == "Z"


def test_a_worker_that_is_a_zombie_is_a_dead_object(serve: Callable[..., Supervisor]) -> None:
    supervisor = serve()
    with nnburst.connect("cam") as device:
        prepared = device.prepare(sum_model())
        bound = prepared.open_burst().bind()
        bound.run()
        supervisor.process.send_signal(signal.SIGSTOP)  # so that it reaps no process
        os.kill(device.pid, signal.SIGKILL)
        for use in (bound.run, lambda: prepared.execute(summands(1))):
            with pytest.raises(DeadObject):
                use()
        assert not device.is_alive
        wait_until_gone(
            device.pid, time.monotonic(), HANG
        )  # it was learnt of before the kernel was done
        assert state(device.pid) == "Z"
        supervisor.process.send_signal(signal.SIGCONT)
    collect()


#: In a namespace of its own, so that numbers can be chosen and come soon again.
_NUMBER_USED_AGAIN = """
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import nnburst
from nnburst.testing.faults.activities import check_sum, sum_model, summands


def wait_until(holds):
    deadline = time.monotonic() + 60
    while not holds():
        assert time.monotonic() < deadline
        time.sleep(0.001)


def successor(pid):
    # This process's own threads take numbers, too, so it can take more than one try.
    for _ in range(1000):
        Path("/proc/sys/kernel/ns_last_pid").write_text(str(pid - 1))
        process = subprocess.Popen(["cat"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, bufsize=0)
        if process.pid == pid:
            return process
        process.kill()
        process.wait()
    raise AssertionError(f"no process gets number {pid}")


def check(device, uses):
    assert not device.is_alive
    for use in uses:
        try:
            use()
        except nnburst.DeadObject as error:
            print(re.search("(has|was) .*", str(error))[0])
        else:
            raise AssertionError("it goes on")


def gone(use):
    # Its end can be known before it can be reaped, and then the next who asks reaps it.
    try:
        use()
    except nnburst.DeadObject as error:
        str(error)
    return not Path(f"/proc/{pid}").exists()


def spares(pid):
    children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    return [Path(f"/proc/{child}/comm").read_text() for child in children].count("nnburst spare\\n")


served = None
if sys.argv[1] == "connect":
    command = [sys.executable, "-m", "nnburst.driver", "--executor", "reference", "--serve", "cam"]
    served = subprocess.Popen(command, stdout=subprocess.PIPE)
    assert served.stdout.readline()
    device = nnburst.connect("cam")
else:
    device = nnburst.launch("reference")
prepared = device.prepare(sum_model())
bound = prepared.open_burst().bind()
check_sum(prepared.execute(summands(1)).outputs[0], 1)
uses = [bound.run, lambda: prepared.execute(summands(1)), lambda: device.prepare(sum_model())]
pid = device.pid
if served:
    wait_until(lambda: spares(served.pid) == 2)  # or the next one could be given the number
    served.send_signal(signal.SIGSTOP)  # so that the number is there for a while
os.kill(pid, signal.SIGKILL)
wait_until(lambda: not device.is_alive)
check(device, uses)
if served:
    served.send_signal(signal.SIGCONT)
wait_until(lambda: gone(uses[0]))

newcomer = successor(pid)
check(device, uses)
newcomer.terminate()
os.waitid(os.P_PID, newcomer.pid, os.WEXITED | os.WNOWAIT)
check(device, uses)
newcomer.wait()

newcomer = successor(pid)
device.close()
newcomer.stdin.write(b".")
assert newcomer.stdout.read(1) == b".", "a process that only has the number was hurt"
newcomer.kill()
newcomer.wait()
"""
#: What makes the numbers of processes one's own.
_NAMESPACE = ["unshare", "--user", "--map-root-user", "--pid", "--fork", "--mount-proc"]


def may_choose_numbers() -> bool:
    """Whether this process may make a namespace and choose numbers in it."""
    command = [*_NAMESPACE, "sh", "-c", "echo 100 > /proc/sys/kernel/ns_last_pid"]
    try:
        return subprocess.run(command, capture_output=True, timeout=60, check=False).returncode == 0
    except FileNotFoundError:
        return False


@pytest.mark.every_day("connect")
@pytest.mark.parametrize("way", ["connect", "launch"])
def test_a_process_that_has_a_dead_drivers_number_is_another_one(way: str, tmp_path: Path) -> None:
    if not may_choose_numbers():
        pytest.skip("needs `unshare` and a kernel that lets users have namespaces of processes")
    for _ in range(5):
        done = subprocess.run(
            [*_NAMESPACE, "--kill-child", sys.executable, "-c", _NUMBER_USED_AGAIN, way],
            env=driver_environment(),
            capture_output=True,
            text=True,
            timeout=300,
            check=False,
        )
        # A thread of the client's may get it first.
        if "no process gets number" not in done.stderr:
            break
    assert done.returncode == 0, done.stderr
    said = done.stdout.splitlines()
    assert len(said) == 9, said
    assert set(said) <= {"was killed by SIGKILL", "has died"}, said  # never of the newcomer
