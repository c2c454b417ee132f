"""Folders of temporary files are removed by their maker, or after it by the next."""

from __future__ import annotations

import errno
import os
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from nnburst.hal import own_folder
from nnburst.hal.own_folder import OwnFolder


@pytest.fixture(autouse=True)
def parent(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr(tempfile, "tempdir", None)
    return tmp_path


def test_folder_is_for_this_user_alone_and_goes_with_its_content() -> None:
    with OwnFolder() as own:
        assert own.path.stat().st_mode & 0o777 == 0o700
        (own.path / "inside").mkdir()
    assert not own.path.exists()
    own.close()


def test_folder_of_a_killed_process_goes_with_the_next_one_and_no_other_does(parent: Path) -> None:
    text = (
        "from nnburst.hal.own_folder import OwnFolder\n"
        "own = OwnFolder()\n"
        "(own.path / 'inside').touch()\n"
        "print(own.path, flush=True)\n"
        "input()"
    )
    with subprocess.Popen(
        [sys.executable, "-c", text], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as maker:
        assert maker.stdout is not None
        left = Path(maker.stdout.readline().rstrip())
        others = [parent / "nnburst-other", parent / "nnburst-run-file"]
        others[0].mkdir()
        others[1].touch()
        (parent / "nnburst-run-link").symlink_to(others[0])
        with OwnFolder() as first:
            assert left.exists()
            maker.kill()
            maker.wait(60)
            with OwnFolder():
                assert not left.exists()
                assert first.path.exists()
    assert all(other.exists() for other in others)


def test_forked_child_that_closes_a_folder_leaves_it_to_its_maker() -> None:
    with OwnFolder() as own:
        child = os.fork()
        if not child:
            own.close()
            os._exit(0)
        os.waitpid(child, 0)
        assert own.path.exists()
        with OwnFolder():
            assert own.path.exists()


def test_folder_that_cannot_be_locked_for_lack_of_descriptors_is_reported_and_removed(
    parent: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(path: Path) -> int:
        raise OSError(errno.EMFILE, "Too many open files", str(path))

    monkeypatch.setattr(own_folder, "_take_lock", full)
    with pytest.raises(OSError, match="Too many open files"):
        OwnFolder()
    assert not list(parent.iterdir())


def test_folder_that_another_process_removes_before_it_is_locked_is_made_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    removed = []
    take = own_folder._take_lock

    def late(path: Path) -> int | None:
        if not removed:
            removed.append(path)
            path.rmdir()
        return take(path)

    monkeypatch.setattr(own_folder, "_take_lock", late)
    with OwnFolder() as own:
        assert own.path.exists()
        assert own.path not in removed
