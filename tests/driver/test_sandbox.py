"""The sandbox of a worker refuses calls, tried by an executor inside a driver process."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import nnburst
from driver.conftest import add_model
from nnburst.client.device import Device
from nnburst.hal.utils import driver_environment

ATTEMPTS = """
import ctypes, errno, json, os, signal, socket, subprocess, threading
from pathlib import Path
from nnburst.executor.null import NullExecutor
from nnburst.hal.errors import GeneralFailure

OUTSIDE = Path(os.environ["OUTSIDE"])
ATTEMPTS = {
    "write a file": lambda: OUTSIDE.write_text("changed"),
    "make a file": lambda: (OUTSIDE.parent / "new").write_text(""),
    "remove a file": OUTSIDE.unlink,
    "make a directory": lambda: (OUTSIDE.parent / "folder").mkdir(),
    "run a program": lambda: subprocess.run(["/bin/true"]),
    "become a program": lambda: os.execv("/bin/true", ["true"]),
    "open a network socket": lambda: socket.socket(socket.AF_INET, socket.SOCK_STREAM),
    "read another process": lambda: Path(f"/proc/{os.getppid()}/mem").open("rb").read(1),
    "trace its parent": lambda: trace(),
    "signal its parent": lambda: os.kill(os.getppid(), 0),
    "signal a process that it started": lambda: signal_child(),
    "signal any thread": lambda: system_call("tkill", os.getppid(), 0),
    "make a local socket": lambda: socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM).close(),
    "make a user namespace": lambda: namespace(),
    "open a file system": lambda: os.close(system_call("fsopen", b"tmpfs", 0)),
    "take a tree of mounts": lambda: os.close(system_call("open_tree", -100, b"/", 0)),
    "connect a socket": lambda: connect(),
    "read a file": lambda: OUTSIDE.read_text(),
    "signal itself": lambda: os.kill(os.getpid(), 0),
    "make a pair of sockets": lambda: [one.close() for one in socket.socketpair()],
    "start a process": lambda: os.waitpid(os.fork() or os._exit(0), 0),
    "remember something": lambda: (Path(os.environ["XDG_STATE_HOME"]) / "nnburst/x").write_text(""),
    "write to /dev/null": lambda: open("/dev/null", "w").close(),
    "make shared memory": lambda: os.memfd_create("x"),
    "start a thread": lambda: in_a_thread(lambda: None),
    "write a file on a thread": lambda: in_a_thread(lambda: OUTSIDE.write_text("changed")),
}

NUMBERS = dict(zip(
    ("clone", "tkill", "connect", "open_tree", "fsopen"),
    (56, 200, 42, 428, 430) if os.uname().machine == "x86_64" else (220, 130, 203, 428, 430),
))
libc = ctypes.CDLL(None, use_errno=True)

def system_call(name, *arguments):
    outcome = libc.syscall(NUMBERS[name], *arguments)
    if outcome < 0 and (error := ctypes.get_errno()) == errno.EPERM:
        raise OSError(error, name)
    return max(outcome, 0) or os.open("/dev/null", os.O_RDONLY)

def namespace():
    child = libc.syscall(NUMBERS["clone"], 0x10000000 | signal.SIGCHLD, 0, 0, 0, 0)
    if child == 0:
        os._exit(0)
    if child < 0:
        raise OSError(ctypes.get_errno(), "clone")
    os.waitpid(child, 0)

def connect():
    one, other = socket.socketpair()
    with one, other:
        address = b"\\1\\0/nonexistent\\0"
        if libc.syscall(NUMBERS["connect"], one.fileno(), address, len(address)):
            if ctypes.get_errno() == errno.EPERM:
                raise OSError(errno.EPERM, "connect")

def signal_child():
    ours, theirs = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(theirs)
        os.read(ours, 1)
        os._exit(0)
    try:
        os.kill(child, 0)
    finally:
        os.close(theirs)
        os.waitpid(child, 0)
        os.close(ours)

def trace():
    if libc.ptrace(16, os.getppid(), 0, 0):
        raise OSError(ctypes.get_errno(), "ptrace")

def in_a_thread(work):
    failures = []
    def run():
        try:
            work()
        except OSError as error:
            failures.append(error)
    thread = threading.Thread(target=run)
    thread.start()
    thread.join()
    for failure in failures:
        raise failure

class Tries(NullExecutor):
    def prepare(self, *args, **options):
        refused = []
        for name, attempt in ATTEMPTS.items():
            try:
                attempt()
            except OSError:
                refused.append(name)
        raise GeneralFailure(json.dumps(refused))
"""

ALLOWED = [
    "read a file",
    "signal itself",
    "make a pair of sockets",
    "start a process",
    "remember something",
    "write to /dev/null",
    "make shared memory",
    "start a thread",
]


@pytest.fixture
def folder(tmp_path: Path, make_module: Callable[[str, str], None]) -> Path:
    make_module("tries", ATTEMPTS)
    (tmp_path / "outside").write_text("as it was")
    return tmp_path


def launch(folder: Path, **more: str) -> Device:
    environment = {
        "OUTSIDE": str(folder / "outside"),
        "XDG_STATE_HOME": str(folder / "state"),
        **more,
    }
    return nnburst.launch("tries:Tries", env=environment)


@pytest.fixture
def worker(folder: Path) -> Iterator[Device]:
    with launch(folder) as device:
        yield device


def has_landlock() -> bool:
    code = (
        "from nnburst.driver.confinement import Sandbox, enter_sandbox\n"
        "print(Sandbox.LANDLOCK in enter_sandbox())"
    )
    command = [sys.executable, "-c", code]
    done = subprocess.run(
        command, env=driver_environment(), capture_output=True, text=True, check=True
    )
    return done.stdout == "True\n"


def status(pid: int, name: str) -> int:
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith(f"{name}:"))


def test_a_worker_can_neither_gain_privileges_nor_call_all_of_the_kernel(worker: Device) -> None:
    assert status(worker.pid, "NoNewPrivs") == 1
    assert status(worker.pid, "Seccomp") == 2


def test_what_an_executor_does_not_need_is_refused(folder: Path, worker: Device) -> None:
    if not has_landlock():
        pytest.skip("this kernel has no Landlock")
    with pytest.raises(nnburst.GeneralFailure) as caught:
        worker.prepare(add_model())
    refused = set(json.loads(str(caught.value)))
    tried = {line.split('"')[1] for line in ATTEMPTS.splitlines() if line.startswith('    "')}
    assert tried - refused == set(ALLOWED)
    assert (folder / "outside").read_text() == "as it was"
    assert sorted(p.name for p in folder.iterdir() if p.name != "__pycache__") == [
        "outside",
        "state",
        "tries.py",
    ]


def test_once_the_key_of_the_caches_is_made_nothing_can_be_remembered(folder: Path) -> None:
    if not has_landlock():
        pytest.skip("this kernel has no Landlock")
    (folder / "state" / "nnburst").mkdir(parents=True)
    (folder / "state" / "nnburst" / "compilation_cache.key").write_bytes(bytes(32))
    with launch(folder) as device, pytest.raises(nnburst.GeneralFailure) as caught:
        device.prepare(add_model())
    assert "remember something" in json.loads(str(caught.value))


def test_a_computation_runs_inside_the_sandbox() -> None:
    with nnburst.launch("reference") as device:
        assert status(device.pid, "NoNewPrivs") == 1
        assert device.supported_operations(add_model()) == [True]


def test_the_sandbox_can_be_left_out(folder: Path) -> None:
    with launch(folder, NNBURST_SANDBOX="0") as device:
        assert status(device.pid, "NoNewPrivs") == 0
