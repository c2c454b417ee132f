from __future__ import annotations

import array
import contextlib
import errno
import os
import resource
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NoReturn

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from descriptors import descriptors
from nnburst.control.channel import (
    MAX_FDS,
    MAX_INLINE_BYTES,
    MAX_PACKET_BYTES,
    Channel,
    Disconnected,
    Fds,
    ProtocolError,
)
from nnburst.fmq.shared_memory import SharedMemory
from nnburst.hal import environment
from nnburst.hal.errors import GeneralFailure, InvalidArgument, ResourceExhausted

Channels = tuple[Channel, Channel]
Sockets = tuple[socket.socket, socket.socket]


def packet(id: object, fds: object, body: object, size: object) -> bytes:  # noqa: A002
    return msgspec.msgpack.encode([id, fds, body, size])


def send_raw(sender: socket.socket, data: bytes, fds: list[int]) -> None:
    rights = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", fds))]
    sender.sendmsg([data], rights if fds else [])


@given(body=st.binary(max_size=300), count=st.integers(0, 5), call=st.integers(0, 2**63 - 1))
def test_what_is_sent_arrives_with_its_descriptors(body: bytes, count: int, call: int) -> None:
    left, right = map(Channel, socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET))
    with contextlib.closing(left), contextlib.closing(right), Path("/dev/null").open() as file:
        left.send(call, body, [file.fileno()] * count)
        incoming = right.receive(timeout=5)
        with incoming.fds as fds:
            assert (incoming.id, incoming.body, len(fds)) == (call, body, count)
            assert all(os.fstat(fd).st_rdev == os.fstat(file.fileno()).st_rdev for fd in fds)


@pytest.mark.parametrize("size", [MAX_INLINE_BYTES, MAX_INLINE_BYTES + 1, 5_000_000])
def test_body_of_any_size_arrives_whole(channels: Channels, size: int) -> None:
    before = descriptors()
    body = os.urandom(size)
    channels[0].send(1, body)
    incoming = channels[1].receive(timeout=5)
    assert incoming.body == body
    assert len(incoming.fds) == 0
    assert descriptors() <= before


def test_received_descriptors_are_not_inherited(channels: Channels) -> None:
    read, write = os.pipe()
    os.set_inheritable(read, True)
    channels[0].send(1, b"", [read, write])
    with channels[1].receive(timeout=5).fds as fds:
        assert [os.get_inheritable(fd) for fd in fds] == [False, False]
    os.close(read)
    os.close(write)


def test_descriptors_that_are_not_taken_are_closed(channels: Channels) -> None:
    before = descriptors()
    channels[0].send(1, b"", [0] * MAX_FDS)
    with channels[1].receive(timeout=5).fds as fds:
        taken = fds.take(3)
        assert len(descriptors() - before) == MAX_FDS
    assert len(descriptors() - before) == 1
    os.close(taken)


def test_descriptor_cannot_be_taken_twice() -> None:
    with Fds([os.dup(0)]) as fds:
        os.close(fds.take(0))
        with pytest.raises(InvalidArgument, match="descriptor 0"):
            fds.take(0)


def test_more_descriptors_than_a_message_may_carry_are_not_sent(channels: Channels) -> None:
    with pytest.raises(InvalidArgument, match=f"at most {MAX_FDS}"):
        channels[0].send(1, b"", [0] * (MAX_FDS + 1))
    with pytest.raises(TimeoutError):
        channels[1].receive(timeout=0.01)


@pytest.mark.parametrize(("declared", "carried"), [(0, 1), (1, 0), (2, 1), (3, 64), (0, 65)])
def test_wrong_number_of_descriptors_is_refused_and_all_are_closed(
    sockets: Sockets, declared: int, carried: int
) -> None:
    before = descriptors()
    receiver = Channel(sockets[1])
    send_raw(sockets[0], packet(1, declared, b"", 0), [0] * carried)
    with pytest.raises(ProtocolError, match=f"{carried} file descriptors"):
        receiver.receive(timeout=5)
    assert descriptors() <= before


def test_surplus_descriptors_beyond_the_buffer_are_refused_10000_times_without_a_leak(
    sockets: Sockets,
) -> None:
    before = descriptors()
    receiver = Channel(sockets[1])
    for _ in range(10_000):
        send_raw(sockets[0], packet(1, 0, b"", 0), [0] * 66)
        with pytest.raises(ProtocolError, match="more than 65"):
            receiver.receive(timeout=5)
    assert descriptors() <= before


def test_253_descriptors_are_refused_without_a_leak(sockets: Sockets) -> None:
    before = descriptors()
    send_raw(sockets[0], packet(1, 64, b"", 0), [0] * 253)
    with pytest.raises(ProtocolError):
        Channel(sockets[1]).receive(timeout=5)
    assert descriptors() <= before


def test_oversized_packet_is_refused(sockets: Sockets) -> None:
    sockets[0].send(packet(1, 0, b"x" * (MAX_PACKET_BYTES + 1), 0))
    with pytest.raises(ProtocolError, match="more than"):
        Channel(sockets[1]).receive(timeout=5)


@given(data=st.binary(min_size=1, max_size=200), count=st.integers(0, 3))
@settings(max_examples=3 * environment.EXAMPLES.read())
def test_no_bytes_crash_the_receiver_or_leak(data: bytes, count: int) -> None:
    left, right = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    receiver = Channel(right)
    before = descriptors()
    send_raw(left, data, [0] * count)
    try:
        receiver.receive(timeout=5).fds.close()
    except ProtocolError:
        pass
    assert descriptors() <= before
    left.close()
    receiver.close()


_scalars = st.one_of(st.none(), st.integers(-(2**63), 2**64 - 1), st.binary(max_size=9), st.text())


@given(fields=st.lists(_scalars, max_size=6))
@settings(max_examples=3 * environment.EXAMPLES.read())
def test_wrong_types_in_the_envelope_are_refused(fields: list[object]) -> None:
    left, right = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    left.send(msgspec.msgpack.encode(fields))
    receiver = Channel(right)
    match fields:
        case [int(call), 0, bytes(body), 0, *_] if 0 <= call < 2**63:
            assert receiver.receive(timeout=5).body == body
        case _:
            with pytest.raises(ProtocolError):
                receiver.receive(timeout=5)
    left.close()
    receiver.close()


def _pipe() -> int:
    read, write = os.pipe()
    os.close(write)
    return read


def _unsealed() -> int:
    fd = os.memfd_create("x", os.MFD_ALLOW_SEALING)
    os.ftruncate(fd, 100_000)
    return fd


@pytest.mark.parametrize(
    "open_fd",
    [
        _pipe,
        _unsealed,
        lambda: os.open("/dev/zero", os.O_RDONLY),
        lambda: os.open("/", os.O_RDONLY),
        lambda: os.open(__file__, os.O_RDONLY),
    ],
    ids=["pipe", "unsealed", "device", "directory", "file"],
)
def test_large_body_must_lie_in_a_sealed_memfd(
    sockets: Sockets, open_fd: Callable[[], int]
) -> None:
    fd = open_fd()
    before = descriptors()
    send_raw(sockets[0], packet(1, 0, b"", 70_000), [fd])
    with pytest.raises(ProtocolError, match="sealed memfd"):
        Channel(sockets[1]).receive(timeout=5)
    assert descriptors() <= before
    os.close(fd)


@pytest.mark.parametrize("size", [2**30 + 1, 2**62])
def test_large_body_is_capped_before_memory_is_allocated(sockets: Sockets, size: int) -> None:
    fd = _unsealed()
    send_raw(sockets[0], packet(1, 0, b"", size), [fd])
    os.close(fd)
    with pytest.raises(ProtocolError, match="malformed envelope"):
        Channel(sockets[1]).receive(timeout=5)


def test_waiting_receiver_ends_when_the_peer_closes(sockets: Sockets) -> None:
    sockets[0].close()
    with pytest.raises(Disconnected):
        Channel(sockets[1]).receive(timeout=5)


def test_sending_to_a_closed_peer_fails_as_disconnected(sockets: Sockets) -> None:
    sockets[1].close()
    with pytest.raises(Disconnected):
        Channel(sockets[0]).send(1, b"")


def test_sending_to_a_peer_that_does_not_read_ends_at_the_deadline(channels: Channels) -> None:
    def fill() -> None:
        for _ in range(10_000):
            channels[0].send(1, b"x" * 10_000, timeout=0.05)

    with pytest.raises(TimeoutError):
        fill()


def test_closed_channel_refuses_calls(channels: Channels) -> None:
    channels[0].close()
    channels[0].close()
    with pytest.raises(Disconnected):
        channels[0].send(1, b"")
    with pytest.raises(Disconnected):
        channels[0].receive()


def test_peer_credentials_are_those_of_the_other_process(tmp_path: Path) -> None:
    path = str(tmp_path / "peer")
    code = (
        "import socket, sys\n"
        "peer = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)\n"
        "peer.connect(sys.argv[1])\n"
        "peer.recv(1)\n"
    )
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as listening:
        listening.bind(path)
        listening.listen()
        command = [sys.executable, "-c", code, path]
        with subprocess.Popen(command) as other, Channel(listening.accept()[0]) as channel:
            assert channel.peer == (other.pid, os.getuid(), os.getgid())


class FailingSocket(socket.socket):
    """A socket whose sends fail for reasons that a test gives, as long as there are some."""

    errors: Iterator[int] = iter(())

    def send(self, *_: object) -> int:
        raise BlockingIOError  # there is no room at first

    def sendmsg(self, *arguments: object) -> int:
        number = next(self.errors, None)
        if number is not None:
            raise OSError(number, os.strerror(number))
        return super().sendmsg(*arguments)  # type: ignore[arg-type]  # whatever it was given


@pytest.fixture
def failing(sockets: Sockets) -> FailingSocket:
    return FailingSocket(fileno=sockets[0].detach())


@pytest.mark.parametrize("number", [errno.ETOOMANYREFS, errno.ENOBUFS, errno.ENOMEM])
def test_what_the_kernel_lacks_for_a_moment_delays_a_send(
    failing: FailingSocket, sockets: Sockets, number: int
) -> None:
    failing.errors = iter([number] * 3)
    with failing:
        Channel(failing).send(1, b"late")
        assert Channel(sockets[1]).receive(timeout=5).body == b"late"


@pytest.mark.parametrize("number", [errno.ETOOMANYREFS, errno.ENOBUFS, errno.ENOMEM])
def test_what_the_kernel_lacks_for_good_ends_a_send_at_its_deadline(
    failing: FailingSocket, number: int
) -> None:
    failing.errors = iter(lambda: number, None)
    with failing, pytest.raises(TimeoutError, match=os.strerror(number)):
        Channel(failing).send(1, b"", timeout=0.02)


@pytest.mark.parametrize("number", [errno.EPIPE, errno.ECONNRESET, errno.ENOTCONN])
def test_sending_without_a_peer_fails_as_disconnected(failing: FailingSocket, number: int) -> None:
    failing.errors = iter([number])
    with failing, pytest.raises(Disconnected):
        Channel(failing).send(1, b"")


def test_a_send_that_fails_for_another_reason_ends_no_connection(
    failing: FailingSocket, sockets: Sockets
) -> None:
    failing.errors = iter([errno.EPERM])
    with failing:
        channel = Channel(failing)
        with pytest.raises(GeneralFailure, match=os.strerror(errno.EPERM)):
            channel.send(1, b"")
        channel.send(2, b"")
        assert Channel(sockets[1]).receive(timeout=5).id == 2


@pytest.mark.parametrize("fd", [-1, 1_000_000, 2**31, -(2**40)])
def test_an_invalid_descriptor_is_refused_and_ends_no_connection(
    channels: Channels, fd: int
) -> None:
    with pytest.raises(InvalidArgument, match="file descriptor"):
        channels[0].send(1, b"", [0, fd])
    channels[0].send(2, b"")
    assert channels[1].receive(timeout=5).id == 2


@contextlib.contextmanager
def room_for_descriptors(count: int) -> Iterator[None]:
    """A limit of this process that lets it have so many descriptors more."""
    free = [os.dup(0) for _ in range(count + 1)]
    for fd in free:
        os.close(fd)
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (free[count], before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, before)


@pytest.mark.parametrize("room", [0, 1, 2])
@pytest.mark.parametrize("size", [3, MAX_INLINE_BYTES + 1])
def test_a_message_for_whose_descriptors_there_is_no_room_fails_alone(
    channels: Channels, room: int, size: int
) -> None:
    before = descriptors()
    channels[0].send(7, b"x" * size, [0, 0, 0])
    channels[0].send(8, b"next")
    with room_for_descriptors(room):
        incoming = channels[1].receive(timeout=5)
    assert incoming.id == 7
    assert isinstance(incoming.failure, ResourceExhausted)
    assert len(incoming.fds) == 0
    assert descriptors() <= before
    assert channels[1].receive(timeout=5).body == b"next"


@pytest.mark.parametrize("timeout", [1e8, 1e300])
def test_a_wait_may_be_of_any_length(channels: Channels, timeout: float) -> None:
    sender = threading.Timer(0.02, lambda: channels[0].send(1, b"there"))
    sender.start()
    assert channels[1].receive(timeout).body == b"there"
    sender.join(10)


def test_a_body_that_cannot_be_mapped_fails_its_message_alone(
    channels: Channels, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_arguments: object, **_options: object) -> NoReturn:
        raise ResourceExhausted("cannot map")

    before = descriptors()
    channels[0].send(1, b"x" * (MAX_INLINE_BYTES + 1))
    channels[0].send(2, b"next")
    with monkeypatch.context() as patch:
        patch.setattr(SharedMemory, "map_memory", refuse)
        incoming = channels[1].receive(timeout=5)
    assert (incoming.id, incoming.body) == (1, b"")
    assert isinstance(incoming.failure, ResourceExhausted)
    assert channels[1].receive(timeout=5).body == b"next"
    assert descriptors() <= before
