"""Receives descriptors over a connection, and finds the user at its other end, if that is possible.

A port alone does not identify a user: later, another user may have the port. And for a connection that has
ended, but is kept for a minute (TIME_WAIT), the kernel reports root as its user.
"""

from __future__ import annotations

import array
import errno
import os
import socket
import struct
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Final, NamedTuple, TypeAlias

#: Address and port.
End: TypeAlias = tuple[str, int]

#: Prefix of an IPv4 address in an IPv6 socket: all addresses are compared as 16 bytes of IPv6.
_OF_IPV4: Final = bytes(10) + b"\xff\xff"
#: State in <net/tcp_states.h>, as in /proc.
_ESTABLISHED: Final = 1
#: Constants of <linux/netlink.h>, <linux/sock_diag.h>, <linux/inet_diag.h>.
_NETLINK_SOCK_DIAG: Final = 4
_SOCK_DIAG_BY_FAMILY: Final = 20
_NLMSG_ERROR: Final = 2
_HEAD_BYTES: Final = 16
_NO_COOKIE: Final = 0xFFFFFFFF
_ALL_STATES: Final = 0xFFFFFFFF
#: Timeout of the kernel's answer in seconds; normally it comes at once.
_PATIENCE: Final = 1.0
_EVERYONE: Final = ["0", "0", "4294967295"]


class PeerCredentials(NamedTuple):
    """The process that opened the other end (SO_PEERCRED); for a listener, the one that called listen()."""

    pid: int
    uid: int
    gid: int


def unix_peer(connected: socket.socket) -> PeerCredentials:
    """The process at the other end of an AF_UNIX socket."""
    form = "3i"
    raw = connected.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, struct.calcsize(form))
    return PeerCredentials(*struct.unpack(form, raw))


def receive_fds(connection: socket.socket, size: int, most: int) -> tuple[bytes, list[int], int]:
    """Receive bytes with descriptors, of which no program that this process starts gets a copy.

    `socket.recv_fds` ignores its flags, so descriptors from it go to programs that are started.

    Args:
        connection: an AF_UNIX socket.
        size: bytes to receive at most.
        most: number of descriptors to accept; the kernel closes others.

    Returns:
        The bytes, the descriptors, and the flags of the message.
    """
    room = socket.CMSG_LEN(most * struct.calcsize("i"))
    data, ancillary, flags, _ = connection.recvmsg(size, room, socket.MSG_CMSG_CLOEXEC)
    return data, fds_of(ancillary), flags


def fds_of(ancillary: Iterable[tuple[int, int, bytes]]) -> list[int]:
    """The descriptors in the ancillary data of a message; a list that was cut may end within a number."""
    fds = array.array("i")
    for level, kind, data in ancillary:
        if level == socket.SOL_SOCKET and kind == socket.SCM_RIGHTS:
            fds.frombytes(data[: len(data) - len(data) % fds.itemsize])
    return fds.tolist()


def tcp_peer_user(theirs: End, ours: End) -> int | None:
    """The user of the process at the other end of a TCP connection over loopback.

    The user is known only if the other end is a connected socket of this host with these two addresses, and a
    process has it open; it is unknown, for example, while the connection is being closed.

    Args:
        theirs: address and port of the other end.
        ours: address and port of this end. Both are needed: another address may have the same port.

    Returns:
        The user's number in this process's user namespace, or None if it cannot be known.
    """
    peer, here = (_packed(theirs[0]), theirs[1]), (_packed(ours[0]), ours[1])
    if not (_is_loopback(peer[0]) and _is_loopback(here[0])):
        return None
    try:
        found = _asked(peer, here)
    except OSError:  # no netlink, as in some sandboxes: /proc says the same, in milliseconds
        found = _listed(peer, here)
    # A connection that is not accepted yet, or that no process has open any more, shows root as its user.
    if found is None or found.state != _ESTABLISHED or not found.inode:
        return None
    known = found.user != _overflow_user() or _knows_all_users()
    return found.user if known else None


def has_rights_of_service(user: int | None) -> bool:
    """Whether a peer has the rights of this process's user: it is that user, or root."""
    return user is not None and user in (0, os.geteuid())


class _Socket(NamedTuple):
    state: int
    user: int
    inode: int


def _asked(local: tuple[bytes, int], remote: tuple[bytes, int]) -> _Socket | None:
    """Find the socket with these ends by the kernel's sock_diag.

    Raises:
        OSError: the query fails.
    """
    is_ipv4 = local[0].startswith(_OF_IPV4)
    family = socket.AF_INET if is_ipv4 else socket.AF_INET6
    start = len(_OF_IPV4) if is_ipv4 else 0
    ends = struct.pack("!HH", local[1], remote[1]) + b"".join(
        address[start:].ljust(16, b"\0") for address, _ in (local, remote)
    )
    asked = struct.pack("=BBBBI", family, socket.IPPROTO_TCP, 0, 0, _ALL_STATES)
    asked += ends + struct.pack("=III", 0, _NO_COOKIE, _NO_COOKIE)
    head = struct.pack("=IHHII", _HEAD_BYTES + len(asked), _SOCK_DIAG_BY_FAMILY, 1, 1, 0)
    with socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, _NETLINK_SOCK_DIAG) as kernel:
        kernel.settimeout(_PATIENCE)
        kernel.connect((0, 0))
        kernel.send(head + asked)
        answer = kernel.recv(4096)
    kind = struct.unpack_from("=H", answer, 4)[0]
    if kind == _NLMSG_ERROR:
        number = -struct.unpack_from("=i", answer, _HEAD_BYTES)[0]
        if number == errno.ENOENT:
            return None
        raise OSError(number, "sock_diag")
    # inet_diag_msg: family, state, timer, retransmits; then both ends, which differ for a listener.
    theirs, state = answer[_HEAD_BYTES], answer[_HEAD_BYTES + 1]
    ports = struct.unpack_from("!HH", answer, _HEAD_BYTES + 4)
    addresses = (answer[at : at + 16] for at in (_HEAD_BYTES + 8, _HEAD_BYTES + 24))
    if theirs == socket.AF_INET:
        addresses = (_OF_IPV4 + address[:4] for address in addresses)
    if tuple(zip(addresses, ports, strict=True)) != (local, remote):
        return None
    user, inode = struct.unpack_from("=II", answer, _HEAD_BYTES + 64)
    return _Socket(state, user, inode)


def _listed(local: tuple[bytes, int], remote: tuple[bytes, int]) -> _Socket | None:
    """Find the socket with these ends in /proc; None also without /proc."""
    wanted = f":{local[1]:04X} "
    for table in ("tcp", "tcp6"):
        try:
            lines = Path(f"/proc/net/{table}").read_text(encoding="ascii").splitlines()[1:]
        except OSError:
            continue  # no /proc, or a kernel without IPv6
        for line in lines:
            if wanted in line:
                fields = line.split()
                if (_end(fields[1]), _end(fields[2])) == (local, remote):
                    return _Socket(int(fields[3], 16), int(fields[7]), int(fields[9]))
    return None


def _packed(text: str) -> bytes:
    """Convert an address to 16 bytes; empty if it is not an address."""
    try:
        return _OF_IPV4 + socket.inet_pton(socket.AF_INET, text)
    except OSError:
        pass
    try:
        return socket.inet_pton(socket.AF_INET6, text)
    except OSError:
        return b""


def _is_loopback(address: bytes) -> bool:
    return address.startswith(_OF_IPV4 + b"\x7f") or address == bytes(15) + b"\x01"


def _end(text: str) -> tuple[bytes, int]:
    address, _, port = text.partition(":")
    # Words of 32 bits, each as this machine has it in memory.
    words = [int(address[at : at + 8], 16) for at in range(0, len(address), 8)]
    packed = b"".join(word.to_bytes(4, sys.byteorder) for word in words)
    return packed if len(packed) == 16 else _OF_IPV4 + packed, int(port, 16)


def _overflow_user() -> int:
    """The number that represents all users without a number in this process's user namespace."""
    try:
        return int(Path("/proc/sys/kernel/overflowuid").read_text(encoding="ascii"))
    except OSError:
        return 65534


def _knows_all_users() -> bool:
    try:
        return Path("/proc/self/uid_map").read_text(encoding="ascii").split() == _EVERYONE
    except OSError:
        return False
