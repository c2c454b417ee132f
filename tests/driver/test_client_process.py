"""A worker ends with the process that it serves, even if others hold its sockets; and not before."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import nnburst
from driver.conftest import add_model
from nnburst.client.burst import transport as burst_channels
from nnburst.client.burst.transport import WakeupSocket
from nnburst.client.prepared_model import PreparedModel
from nnburst.control.channel import Channel
from nnburst.control.messages import PROTOCOL_VERSION, Hello, Message, Ping, decode_reply, encode
from nnburst.driver.service import worker
from nnburst.driver.service.worker import watch_client
from nnburst.hal.enums import ErrorStatus
from nnburst.hal.errors import InvalidArgument
from nnburst.hal.utils import driver_environment
from nnburst.testing.faults.footprint import children
from nnburst.testing.raw_peer import RawBurst
from waiting import wait_for

PRELUDE = """
import array, os, socket, sys
import nnburst
from nnburst.control.channel import Channel
from nnburst.control.messages import Hello, Ping
from nnburst.control.messages import PROTOCOL_VERSION, decode_reply, encode

def connect():
    connected = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    connected.connect(sys.argv[1])
    return connected

def say(connected, message, *fds):
    channel = Channel(connected)
    channel.send(1, encode(message), list(fds))
    incoming = channel.receive(60)
    assert not decode_reply(incoming.body).status, decode_reply(incoming.body)
    incoming.fds.close()

def introduce(connected):
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    say(connected, Hello(PROTOCOL_VERSION, 8), theirs.fileno())
    return ours

def put_into_the_queue_of(end, connected):
    end.sendmsg([b"x"], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", [connected.fileno()]))])
"""

#: What a client does that wants its worker to hold its client's end of the control socket.
HOSTILE = {
    "the end itself for upcalls": """
one = connect()
Channel(one).send(0, encode(Hello(PROTOCOL_VERSION, 8)), [one.fileno()])
print("done", flush=True)
""",
    "each other's ends for upcalls": """
one, two = connect(), connect()
for mine, other in ((one, two), (two, one)):
    Channel(mine).send(0, encode(Hello(PROTOCOL_VERSION, 8)), [other.fileno()])
print("done", flush=True)
""",
    "the end in the queue of the upcall socket": """
one = connect()
put_into_the_queue_of(introduce(one), one)
print("done", flush=True)
""",
    "the end in the queue of another's upcall socket": """
one, two = connect(), connect()
upcalls = introduce(one), introduce(two)
put_into_the_queue_of(upcalls[0], two)
put_into_the_queue_of(upcalls[1], one)
print("done", flush=True)
""",
    "a child that was forked and lives on": """
one = connect()
introduce(one)
if os.fork() == 0:
    os.close(1)
    sys.stdin.read()
    os._exit(0)
print("done", flush=True)
""",
}


@pytest.fixture
def served(tmp_path: Path) -> Iterator[tuple[str, Callable[[], list[int]]]]:
    """A driver's address, and a function for the pids of its workers."""
    address = str(tmp_path / "here")
    supervisor = subprocess.Popen(
        [sys.executable, "-m", "nnburst.driver", "--executor", "null", "--serve", address],
        stdout=subprocess.PIPE,
        env=driver_environment(),
    )
    assert supervisor.stdout is not None
    supervisor.stdout.readline()
    yield address, lambda: children(supervisor.pid)
    supervisor.kill()
    supervisor.communicate(timeout=30)


@pytest.fixture
def run() -> Iterator[Callable[..., Any]]:
    """Starts clients, which print a line when they are done."""
    started: list[Any] = []

    def start(code: str, *arguments: str) -> Any:
        client: Any = subprocess.Popen(
            [sys.executable, "-c", PRELUDE + code, *arguments],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env=driver_environment(),
        )
        started.append(client)
        assert client.stdout.readline() == "done\n"
        return client

    yield start
    for client in started:
        client.kill()
        client.communicate(timeout=60)  # and a child that lives on


@pytest.mark.every_day("a child that was forked and lives on")
@pytest.mark.parametrize("way", HOSTILE)
def test_worker_that_holds_its_own_clients_end_ends_with_the_client(
    served: tuple[str, Callable[[], list[int]]], run: Callable[..., Any], way: str
) -> None:
    address, workers = served
    assert run(HOSTILE[way], address).wait(timeout=60) == 0
    wait_for(lambda: not workers())


#: How a client's process can change and still be the client.
HONEST = {
    "another program in the same process": """
one = connect()
introduce(one)
os.set_inheritable(one.fileno(), True)
os.execv(sys.executable, [sys.executable, "-c", open(sys.argv[2]).read(), *sys.argv[1:], str(one.fileno())])
""",
    "the thread that introduced it has ended": """
import threading
one = connect()
thread = threading.Thread(target=introduce, args=[one])
thread.start()
thread.join()
serve(one)
""",
    "the main thread has ended": """
import ctypes, platform, threading
one = connect()
introduce(one)
def go_on():
    main = f"/proc/self/task/{os.getpid()}/stat"
    while open(main).read().rsplit(")", 1)[1].split()[0] != "Z":
        pass
    serve(one)
    os._exit(0)
threading.Thread(target=go_on).start()
ctypes.CDLL(None).syscall({"x86_64": 60}.get(platform.machine(), 93), 0)  # exit of this thread alone
""",
    "a forked child has ended": """
one = connect()
introduce(one)
child = os.fork()
if child == 0:
    os._exit(0)
os.waitpid(child, 0)
serve(one)
""",
    "a child was forked that holds nothing, and connected itself": """
one = connect()
introduce(one)
if os.fork() != 0:
    os._exit(0)
one.close()
one = connect()
introduce(one)
serve(one)
""",
}
SERVE = """
def serve(one):
    print("done", flush=True)
    for line in sys.stdin:
        say(one, Ping())
        print("answered", flush=True)
"""


@pytest.mark.every_day("another program in the same process")
@pytest.mark.parametrize("way", HONEST)
def test_worker_goes_on_as_long_as_its_client_lives(
    served: tuple[str, Callable[[], list[int]]], run: Callable[..., Any], way: str, tmp_path: Path
) -> None:
    address, workers = served
    after = tmp_path / "after.py"
    after.write_text(
        PRELUDE + SERVE + "serve(socket.socket(fileno=int(sys.argv[3])))\n", encoding="utf-8"
    )
    client = run(SERVE + HONEST[way], address, str(after))
    for _ in range(20):
        client.stdin.write("\n")
        client.stdin.flush()
        assert client.stdout.readline() == "answered\n"
    wait_for(lambda: len(workers()) == 1)
    client.communicate(timeout=60)
    wait_for(lambda: not workers())


def test_the_process_that_sends_hello_is_the_client_though_another_connected(
    served: tuple[str, Callable[[], list[int]]],
) -> None:
    address, workers = served
    here, there = socket.socketpair()
    code = "one = connect(); socket.send_fds(socket.socket(fileno=int(sys.argv[2])), [b'x'], [one.fileno()])"
    with here, there:
        command = [sys.executable, "-c", PRELUDE + code, address, str(there.fileno())]
        subprocess.run(
            command, pass_fds=[there.fileno()], env=driver_environment(), timeout=60, check=True
        )
        _, [fd], _, _ = socket.recv_fds(here, 1, 1)
    channel = Channel(socket.socket(fileno=fd))
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with ours, theirs:
        _say(channel, Hello(PROTOCOL_VERSION, 8), theirs.fileno())
        for _ in range(20):
            _say(channel, Ping())
        assert len(workers()) == 1
        channel.close()
        wait_for(lambda: not workers())


def _say(channel: Channel, message: Message, *fds: int) -> None:
    channel.send(1, encode(message), list(fds))
    incoming = channel.receive(30)
    incoming.fds.close()
    assert decode_reply(incoming.body).status == ErrorStatus.NONE


def _pair_of_a_dead_process() -> socket.socket:
    code = (
        "import socket, sys; a, b = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET);"
        "socket.send_fds(socket.socket(fileno=int(sys.argv[1])), [b'x'], [a.fileno()])"
    )
    here, there = socket.socketpair()
    with here, there:
        subprocess.run(
            [sys.executable, "-c", code, str(there.fileno())],
            pass_fds=[there.fileno()],
            timeout=60,
            check=True,
        )
        _, [fd], _, _ = socket.recv_fds(here, 1, 1)
    return socket.socket(fileno=fd)


@pytest.mark.parametrize("kernel_has_peer_pidfds", [True, False])
def test_socket_of_a_process_that_has_ended_is_not_a_client(
    monkeypatch: pytest.MonkeyPatch, kernel_has_peer_pidfds: bool
) -> None:
    if not kernel_has_peer_pidfds:
        monkeypatch.setattr(worker, "_SO_PEERPIDFD", 0x7FFF)
    with _pair_of_a_dead_process() as orphan, pytest.raises(InvalidArgument, match="has ended"):
        watch_client(orphan)


def test_older_kernels_know_the_client_by_its_number(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(worker, "_SO_PEERPIDFD", 0x7FFF)
    one, two = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with one, two:
        pidfd = watch_client(one)
        assert pidfd is not None
        facts = Path(f"/proc/self/fdinfo/{pidfd}").read_text()
        assert f"Pid:\t{os.getpid()}\n" in facts
        os.close(pidfd)


def test_client_without_a_number_here_is_watched_by_its_socket_alone(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(worker, "_SO_PEERPIDFD", 0x7FFF)
    monkeypatch.setattr(worker, "_pid_of_peer", lambda _: 0)  # of another PID namespace
    one, two = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with one, two:
        assert watch_client(one) is None


@pytest.fixture
def prepared() -> Iterator[PreparedModel]:
    with nnburst.launch("null") as device, device.prepare(add_model()) as model:
        yield model


class _WakeupSocket(WakeupSocket):
    """A client's socket that sends its descriptors into the queue of the driver's end."""

    def __init__(self) -> None:
        super().__init__()
        socket.send_fds(self._socket, [b"x"], [self._socket.fileno()])


def test_wakeups_with_something_in_their_queue_are_refused(
    prepared: PreparedModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    RawBurst(prepared).close()
    open_fds = Path(f"/proc/{prepared._prepared.session.pid}/fd")
    before = len(list(open_fds.iterdir()))
    with monkeypatch.context() as patch:
        patch.setattr(burst_channels, "WakeupSocket", _WakeupSocket)
        with pytest.raises(InvalidArgument, match="wakeup_socket: expected an empty socket"):
            RawBurst(prepared)
    assert len(list(open_fds.iterdir())) == before
    RawBurst(prepared).close()


def test_nothing_can_be_put_into_the_queue_of_wakeups_later(prepared: PreparedModel) -> None:
    with RawBurst(prepared) as burst:
        end = socket.socket(fileno=os.dup(burst.channels.wakeup_socket.fileno()))
        with end, pytest.raises(BrokenPipeError):
            socket.send_fds(end, [b"x"], [end.fileno()])
