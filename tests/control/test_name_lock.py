"""The holder of the lock owns the name; what a dead owner leaves behind can be removed."""

from __future__ import annotations

import os
import socket
from pathlib import Path

import pytest

from descriptors import descriptors
from nnburst.control.address import Listener, remove_if_dead, take_lock
from nnburst.hal.errors import InvalidArgument
from nnburst.serving.addresses import listen


def left_behind(path: Path) -> None:
    """The socket and the lock that a killed driver leaves."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as listening:
        listening.bind(str(path))
    path.with_name(path.name + ".new").touch()
    path.with_name(path.name + ".lock").touch()


def test_what_a_dead_owner_left_is_removed(tmp_path: Path) -> None:
    left_behind(tmp_path / "cam.sock")
    before = descriptors()
    assert remove_if_dead(tmp_path / "cam.sock")
    assert list(tmp_path.iterdir()) == []
    assert descriptors() <= before


def test_name_of_a_living_owner_is_left_alone(tmp_path: Path) -> None:
    left_behind(tmp_path / "cam.sock")
    lock = take_lock(tmp_path / "cam.sock")
    assert lock is not None
    before = sorted(tmp_path.iterdir())
    assert not remove_if_dead(tmp_path / "cam.sock")
    assert sorted(tmp_path.iterdir()) == before
    os.close(lock)
    assert remove_if_dead(tmp_path / "cam.sock")


def test_lock_on_a_file_that_was_removed_meanwhile_is_not_believed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "cam.sock"
    really_open, opened = os.open, []

    def open_and_lose(*words: object, **options: object) -> int:
        opened.append(really_open(*words, **options))  # type: ignore[arg-type]
        if len(opened) == 1:  # another process removes the name between open and flock
            (tmp_path / "cam.sock.lock").unlink()
        return opened[-1]

    monkeypatch.setattr(os, "open", open_and_lose)
    lock = take_lock(path)
    monkeypatch.undo()
    assert lock is not None
    assert len(opened) == 2
    assert take_lock(path) is None
    os.close(lock)


def test_lock_that_is_a_link_removes_nothing(tmp_path: Path) -> None:
    (tmp_path / "cam.sock").touch()
    (tmp_path / "cam.sock.lock").symlink_to(tmp_path / "victim")
    with pytest.raises(OSError, match=os.strerror(40)):
        remove_if_dead(tmp_path / "cam.sock")
    assert (tmp_path / "cam.sock").exists()


def test_driver_at_the_path_of_a_file_is_refused_and_the_file_stays(tmp_path: Path) -> None:
    file = tmp_path / "here"
    file.write_text("a network")
    with pytest.raises(InvalidArgument, match=f"^address: {file} .*not a socket"):
        Listener.claim(file)
    assert list(tmp_path.iterdir()) == [file]
    assert file.read_text() == "a network"


def test_front_at_the_path_of_a_file_is_refused_and_the_file_stays(tmp_path: Path) -> None:
    file = tmp_path / "here"
    file.write_text("a network")
    with pytest.raises(InvalidArgument, match=f"^--http: {file} .*not a socket"):
        listen("--http", f"unix:{file}", any_user=False)
    assert list(tmp_path.iterdir()) == [file]
    assert file.read_text() == "a network"
