"""The user of a connection's other end is known for a connection that stands, and for no other."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
from collections.abc import Iterator
from contextlib import closing, contextmanager

import pytest

from nnburst.hal import peer
from nnburst.hal.peer import receive_fds, tcp_peer_user, unix_peer
from programs import as_user

FAMILIES = [(socket.AF_INET, "127.0.0.1"), (socket.AF_INET6, "::1")]
#: Connects to the port in its argument, says so, and stays until its input ends.
CLIENT = (
    "exec 3<>/dev/tcp/127.0.0.1/$1; echo connected; read line; exec 3>&-; echo closed; read line"
)


@pytest.fixture(params=["sock_diag", "/proc"], autouse=True)
def source(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each test asks the kernel, and then reads /proc, as where netlink is forbidden."""
    if request.param == "/proc":
        monkeypatch.setattr(peer, "_asked", peer._listed)


@contextmanager
def pair(family: int, host: str) -> Iterator[tuple[socket.socket, socket.socket]]:
    """A client's end and the server's."""
    with closing(socket.create_server((host, 0), family=family)) as listener:
        client = socket.create_connection(listener.getsockname()[:2], 10)
        server, _ = listener.accept()
    with client, server:
        yield client, server


def user_seen_by(server: socket.socket) -> int | None:
    return tcp_peer_user(server.getpeername()[:2], server.getsockname()[:2])


@pytest.mark.parametrize(("family", "host"), FAMILIES)
def test_peer_over_loopback_is_this_user(family: int, host: str) -> None:
    with pair(family, host) as (client, server):
        assert user_seen_by(server) == os.geteuid()
        assert user_seen_by(client) == os.geteuid()


def test_client_of_a_socket_for_both_families_is_known() -> None:
    listener = socket.create_server(("::", 0), family=socket.AF_INET6, dualstack_ipv6=True)
    with closing(listener):
        port = listener.getsockname()[1]
        with closing(socket.create_connection(("127.0.0.1", port), 10)) as client:
            server, _ = listener.accept()
            with server:
                assert user_seen_by(server) == os.geteuid()
                assert tcp_peer_user(client.getsockname(), ("::", port)) is None


def test_client_with_a_socket_of_ipv6_for_an_address_of_ipv4_is_known() -> None:
    """As gRPC's clients make them."""
    with (
        closing(socket.create_server(("127.0.0.1", 0))) as listener,
        closing(socket.socket(socket.AF_INET6)) as client,
    ):
        client.connect(("::ffff:127.0.0.1", listener.getsockname()[1]))
        server, _ = listener.accept()
        with server:
            assert user_seen_by(server) == os.geteuid()


def test_connection_that_its_client_has_closed_is_unknown() -> None:
    """The kernel shows root as the user of FIN_WAIT and TIME_WAIT."""
    with pair(*FAMILIES[0]) as (client, server):
        ends = server.getpeername(), server.getsockname()
        client.close()
        assert tcp_peer_user(*ends) is None
        server.close()
        assert tcp_peer_user(*ends) is None


def test_connection_to_another_address_of_the_same_ports_is_not_taken_for_it() -> None:
    with pair(*FAMILIES[0]) as (_, server):
        (host, port), (_, ours) = server.getpeername(), server.getsockname()
        assert tcp_peer_user((host, port), ("127.0.0.2", ours)) is None
        assert tcp_peer_user(("127.0.0.2", port), (host, ours)) is None
        assert tcp_peer_user(("::1", port), ("::1", ours)) is None


def test_connection_that_is_not_accepted_yet_is_unknown() -> None:
    with (
        closing(socket.create_server(("127.0.0.1", 0))) as listener,
        closing(socket.create_connection(listener.getsockname(), 10)) as client,
    ):
        # Its other end is in no process yet, and shows root as its user.
        assert user_seen_by(client) is None


@pytest.mark.parametrize("host", ["", "nowhere", "10.1.2.3", "0.0.0.0", "::", "127.0.0.1%lo"])
def test_address_that_is_not_one_of_loopback_is_unknown(host: str) -> None:
    assert tcp_peer_user((host, 5), ("127.0.0.1", 6)) is None


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can be another user")
def test_another_user_is_known_until_it_has_gone() -> None:
    if (bash := shutil.which("bash")) is None:
        pytest.skip("no bash, which is the client that every user may run")
    with closing(socket.create_server(("127.0.0.1", 0))) as listener:
        client = subprocess.Popen(
            as_user(
                65534, [bash, "-c", CLIENT, "client", str(listener.getsockname()[1])], os.environ
            ),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            cwd="/",
        )
        assert client.stdin is not None
        assert client.stdout is not None
        server, _ = listener.accept()
        with client, server:
            assert client.stdout.readline() == b"connected\n"
            assert user_seen_by(server) == 65534
            client.stdin.write(b"\n")
            client.stdin.flush()
            assert client.stdout.readline() == b"closed\n"
            assert user_seen_by(server) is None
            client.stdin.close()


def test_peer_of_a_unix_socket_is_this_process() -> None:
    ours, theirs = socket.socketpair(socket.AF_UNIX)
    with ours, theirs:
        assert unix_peer(ours) == (os.getpid(), os.geteuid(), os.getegid())


def test_programs_that_are_started_get_no_descriptor_that_was_received() -> None:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        socket.send_fds(ours, [b"two"], [ours.fileno(), theirs.fileno()])
        data, fds, _ = receive_fds(theirs, 16, 2)
        found = [os.get_inheritable(fd) for fd in fds]
        for fd in fds:
            os.close(fd)
    assert (data, found) == (b"two", [False, False])
