"""As many surplus descriptors with every message as the kernel allows: the driver keeps none."""

from __future__ import annotations

import array
import os
import socket
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import msgspec
import pytest

import nnburst
from faults.processes import HANG, KILLS, Row, Supervisor
from nnburst.control.channel import MAX_FDS, Channel
from nnburst.control.messages import PROTOCOL_VERSION, Hello, Ping, PrepareModel, encode
from nnburst.hal.enums import ErrorStatus, FeatureLevel
from nnburst.testing.faults.footprint import footprint, settle
from nnburst.testing.fuzzing.control_fuzzer import honest_calls
from nnburst.testing.fuzzing.packet_fuzzer import small_model
from nnburst.testing.raw_peer import RawConnection

#: Descriptors that the kernel lets one packet carry (SCM_MAX_FD).
MOST = 253


@pytest.fixture
def file() -> Iterator[int]:
    fd = os.open("/dev/null", os.O_RDWR)
    yield fd
    os.close(fd)


def prepared(driver: RawConnection) -> int:
    """The handle of a model."""
    driver.call(PrepareModel(small_model(), 1))
    deadline = time.monotonic() + HANG
    while not driver.prepared:
        assert time.monotonic() < deadline
        driver.call(Ping())
    return driver.prepared.popleft()


def test_surplus_descriptors_beside_any_message_are_refused_and_closed(file: int, row: Row) -> None:
    rounds = KILLS
    with RawConnection("null") as driver:
        calls = honest_calls(prepared(driver))
        before = driver.count_fds()
        for _ in range(rounds):
            for call in calls:
                for count in ((call.fd_count or 0) + 1, MAX_FDS):
                    reply = driver.call(call, [file] * count)
                    assert reply is not None, call
                    assert reply.status != ErrorStatus.NONE, call
                    if call.fd_count is not None:
                        assert "file descriptors" in reply.message, reply
        driver.call(Ping())  # what was refused last has been closed
        assert driver.count_fds() <= before
    row("surplus descriptors", rounds * len(calls) * 2, left="0 descriptors")


def introduced(path: Path) -> tuple[socket.socket, socket.socket]:
    """A connection that has sent Hello, and its socket for upcalls."""
    connection = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    connection.settimeout(HANG)
    connection.connect(str(path))
    upcalls, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with theirs:
        channel = Channel(connection.dup())
        hello = encode(Hello(PROTOCOL_VERSION, FeatureLevel.AIDL_V4))
        channel.send(1, hello, [theirs.fileno()])
        channel.receive(timeout=HANG).fds.close()
        channel.close()
    return connection, upcalls


@pytest.mark.campaign
def test_as_many_descriptors_as_a_packet_can_carry_end_that_connection_alone(
    serve: Callable[..., Supervisor], file: int
) -> None:
    supervisor = serve("cam", "null")
    with nnburst.connect("cam") as bystander:
        path = Path(nnburst.devices()[0].address)
        baseline = footprint(supervisor.pid)
        others = footprint(bystander.pid)
        for call in honest_calls(handle=1):
            connection, upcalls = introduced(path)
            body = encode(call)
            packet = msgspec.msgpack.encode([2, MOST, body, len(body)])
            rights = array.array("i", [file] * MOST)
            connection.sendmsg([packet], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, rights)])
            while connection.recv(1 << 16):
                pass  # an error may be sent before the end
            upcalls.close()
            connection.close()
        settle(supervisor.pid, baseline)
        settle(bystander.pid, others)
        assert bystander.is_alive
