"""The open file descriptors of the process of the tests: `assert descriptors() <= before`."""

from __future__ import annotations

import contextlib
import os
import socket
import struct

from nnburst import Memory


def descriptors() -> frozenset[int]:
    """The descriptors that are open now.

    Compare them as sets and not by their number: garbage and threads of earlier tests may close descriptors
    in the meantime, which must neither fail a test nor hide a leak. Descriptors that only garbage of the test
    itself holds need `gc.collect()` before.
    """
    return frozenset(fd for fd in map(int, os.listdir("/proc/self/fd")) if _is_open(fd))


def _is_open(fd: int) -> bool:
    """False for the descriptor that the listing itself was read from."""
    try:
        os.fstat(fd)
    except OSError:
        return False
    return True


def status_of(pool: Memory) -> os.stat_result:
    """The status of the file behind a pool."""
    fd = pool.duplicate()
    try:
        return os.fstat(fd)
    finally:
        os.close(fd)


def inode_of(pool: Memory) -> int:
    """The number by which `descriptors_with` finds the descriptors of a pool, even after it was closed."""
    return status_of(pool).st_ino


def descriptors_with(inode: int) -> frozenset[int]:
    """The descriptors of this process that are open on the shared memory with this number."""
    found = set()
    for fd in descriptors():
        with contextlib.suppress(OSError):  # another thread has closed it
            if os.fstat(fd).st_ino == inode and "/memfd:" in os.readlink(f"/proc/self/fd/{fd}"):
                found.add(fd)
    return frozenset(found)


def lingering_socket() -> tuple[socket.socket, socket.socket]:
    """A socket whose last `close` waits for an hour, and its peer, which does not read."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        lingering = socket.create_connection(listening.getsockname())
        peer, _ = listening.accept()
    lingering.setblocking(False)
    with contextlib.suppress(BlockingIOError):
        while True:
            lingering.send(bytes(1 << 20))
    lingering.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 3600))
    return lingering, peer
