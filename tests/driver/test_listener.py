from __future__ import annotations

import os
import socket
from pathlib import Path

import pytest

from descriptors import descriptors
from nnburst.control.address import Listener, take_lock
from nnburst.hal.errors import DeviceUnavailable, InvalidArgument


def connect(path: Path) -> None:
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as client:
        client.connect(str(path))


def test_claimed_name_accepts_connections_and_is_private(tmp_path: Path) -> None:
    listener = Listener.claim(tmp_path / "cam.sock")
    connect(listener.path)
    listener.accept().close()
    assert listener.path.stat().st_mode & 0o777 == 0o600
    listener.close()
    assert not listener.path.exists()


def test_name_has_one_owner_at_a_time(tmp_path: Path) -> None:
    path = tmp_path / "cam.sock"
    first = Listener.claim(path)
    with pytest.raises(DeviceUnavailable, match="served by another process"):
        Listener.claim(path)
    connect(path)
    first.close()
    Listener.claim(path).close()


def test_what_a_crash_left_behind_is_replaced(tmp_path: Path) -> None:
    path = tmp_path / "cam.sock"
    Listener.claim(path).abandon_in_child()  # as the kernel does: descriptors closed, files left
    assert path.exists()
    (tmp_path / "cam.sock.new").touch()
    listener = Listener.claim(path)
    connect(path)
    listener.close()


def test_lock_that_a_dead_drivers_last_child_still_holds_is_waited_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, looks = tmp_path / "cam.sock", 0
    dead = Listener.claim(path)

    def look(path: Path) -> int | None:
        nonlocal looks
        looks += 1
        if looks == 3:
            dead.abandon_in_child()  # what the child does once it gets a core
        return take_lock(path)

    monkeypatch.setattr("nnburst.control.address.take_lock", look)
    Listener.claim(path).close()
    assert looks == 3


def test_failure_to_listen_gives_the_name_up_again(tmp_path: Path) -> None:
    path = tmp_path / "cam.sock"
    (tmp_path / "cam.sock.new").mkdir()
    before = descriptors()
    with pytest.raises(OSError, match=r"cam\.sock\.new"):
        Listener.claim(path)
    assert descriptors() <= before
    (tmp_path / "cam.sock.new").rmdir()
    Listener.claim(path).close()


def test_lock_that_is_a_link_is_not_followed(tmp_path: Path) -> None:
    (tmp_path / "cam.sock.lock").symlink_to(tmp_path / "victim")
    with pytest.raises(OSError, match=os.strerror(40)):
        Listener.claim(tmp_path / "cam.sock")
    assert not (tmp_path / "victim").exists()


def test_path_that_is_too_long_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InvalidArgument, match="107 bytes"):
        Listener.claim(tmp_path / ("x" * 120))


def test_name_for_any_user_lets_other_users_connect(tmp_path: Path) -> None:
    listener = Listener.claim(tmp_path / "cam.sock", any_user=True)
    assert listener.path.stat().st_mode & 0o777 == 0o666
    listener.close()


def test_owner_leaves_a_socket_alone_that_is_not_its_own(tmp_path: Path) -> None:
    path = tmp_path / "cam.sock"
    first = Listener.claim(path)
    (tmp_path / "cam.sock.lock").unlink()  # as cleaners of old files do
    second = Listener.claim(path)
    first.close()
    connect(path)
    second.close()
    assert not path.exists()
