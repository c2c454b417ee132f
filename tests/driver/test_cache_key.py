"""The user's key: made once, read by every driver, refused if others can read it."""

from __future__ import annotations

import os
import stat
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from nnburst.driver.model.compilation_cache import cache_key
from nnburst.hal.errors import GeneralFailure


@pytest.fixture
def file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    return tmp_path / "nnburst" / "compilation_cache.key"


def test_the_key_is_made_at_the_first_use_and_stays(file: Path) -> None:
    assert not file.exists()
    key = cache_key()
    assert len(key) == 32
    assert key == file.read_bytes() == cache_key()


def test_only_its_owner_can_read_the_key(file: Path) -> None:
    cache_key()
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert stat.S_IMODE(file.parent.stat().st_mode) == 0o700


def test_nothing_is_left_beside_the_key(file: Path) -> None:
    cache_key()
    assert list(file.parent.iterdir()) == [file]


def test_what_a_worker_left_that_ended_meanwhile_is_removed(file: Path) -> None:
    file.parent.mkdir(mode=0o700)
    old, new = (file.with_name(f".{file.name}.{pid}.aa") for pid in (1, 2))
    for left in (old, new):
        left.touch()
    os.utime(old, (0, 0))
    cache_key()
    assert sorted(file.parent.iterdir()) == sorted([file, new])


def test_all_who_make_it_at_once_get_the_same_key(file: Path) -> None:
    with ThreadPoolExecutor(16) as threads:
        keys = list(threads.map(lambda _: cache_key(), range(64)))
    assert set(keys) == {file.read_bytes()}


@pytest.mark.parametrize("mode", [0o644, 0o620, 0o604])
def test_a_key_that_others_can_reach_is_not_used(file: Path, mode: int) -> None:
    cache_key()
    file.chmod(mode)
    with pytest.raises(GeneralFailure, match="mode 0600"):
        cache_key()


@pytest.mark.parametrize("size", [0, 31, 33])
def test_a_key_of_another_length_is_not_used(file: Path, size: int) -> None:
    cache_key()
    file.write_bytes(bytes(size))
    with pytest.raises(GeneralFailure, match="32 bytes"):
        cache_key()


def test_a_link_is_not_followed_to_a_key(file: Path) -> None:
    cache_key()
    file.rename(file.with_name("elsewhere"))
    file.symlink_to("elsewhere")
    with pytest.raises(GeneralFailure, match="the key of the compilation cache"):
        cache_key()


def test_a_state_directory_that_cannot_be_made_is_a_failure(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "file"))
    with pytest.raises(GeneralFailure, match="the key of the compilation cache"):
        cache_key()


def test_a_relative_state_directory_is_ignored(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", "relative")
    monkeypatch.setenv("HOME", str(tmp_path))
    cache_key()
    assert (tmp_path / ".local/state/nnburst/compilation_cache.key").stat().st_uid == os.getuid()
