"""A driver that breaks rules of the channel ends its connection, and leaves nothing behind in a C client."""

from __future__ import annotations

import array
import os
import socket
import threading
from pathlib import Path
from typing import Any

import msgspec
import pytest

from c_client.interface import PATIENCE, Failed, connected
from descriptors import descriptors, lingering_socket
from nnburst.control.channel import MAX_FDS
from waiting import error_of

DEADLINE = PATIENCE / 1e9


class Answering:
    """A driver that answers the first call, whatever it is, with `count` descriptors and declares as many.

    They are those of `sent`, which it then closes, again and again.
    """

    def __init__(self, path: Path, count: int, sent: Any) -> None:
        self._count, self._sent = count, sent
        self._listening = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._listening.settimeout(DEADLINE)
        self._listening.bind(str(path))
        self._listening.listen(1)
        self._thread = threading.Thread(target=self._answer)
        self._thread.start()

    def _answer(self) -> None:
        with self._listening, self._listening.accept()[0] as connection:
            connection.settimeout(DEADLINE)
            call, ancillary, _, _ = connection.recvmsg(1 << 16, 1 << 10)
            for _, _, data in ancillary:
                for fd in array.array("i", data):
                    os.close(fd)
            with self._sent:
                fds = array.array("i", [self._sent.fileno()] * self._count)
                body = msgspec.msgpack.encode({"status": 0})
                number = msgspec.msgpack.decode(call)[0]
                answer = msgspec.msgpack.encode([number, min(self._count, MAX_FDS), body, 0])
                connection.sendmsg([answer], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, fds)])
            connection.recv(1)  # until the client has ended the connection

    def join(self) -> None:
        self._thread.join(DEADLINE)
        assert not self._thread.is_alive()


@pytest.mark.parametrize("count", [MAX_FDS, MAX_FDS + 1, MAX_FDS + 2, MAX_FDS + 3, 253])
def test_no_descriptor_of_a_message_with_too_many_stays_open(tmp_path: Path, count: int) -> None:
    before = descriptors()
    with Path(os.devnull).open("rb") as file:
        driver = Answering(tmp_path / "driver.sock", count, file)
        with pytest.raises(Failed):
            connected(str(tmp_path / "driver.sock"))
        driver.join()
    assert descriptors() <= before


@pytest.mark.parametrize("count", [1, MAX_FDS + 1])
def test_no_program_waits_for_a_socket_that_lingers(tmp_path: Path, count: int) -> None:
    lingering, peer = lingering_socket()
    driver = Answering(tmp_path / "driver.sock", count, lingering)
    with peer:
        error_of(lambda: connected(str(tmp_path / "driver.sock")), 10)
        driver.join()
