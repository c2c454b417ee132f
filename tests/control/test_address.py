from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

from nnburst.control.address import check_length, directory, socket_path
from nnburst.hal.errors import DeviceUnavailable, InvalidArgument


@pytest.fixture
def runtime(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    return tmp_path


def test_directory_is_private(runtime: Path) -> None:
    assert socket_path("cam-1.fast", create=True) == runtime / "nnburst" / "cam-1.fast.sock"
    assert (runtime / "nnburst").stat().st_mode & 0o777 == 0o700


@pytest.mark.parametrize("value", ["", "relative/folder"])
def test_without_a_runtime_directory_the_user_has_one_of_their_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, value: str
) -> None:
    monkeypatch.setenv("XDG_RUNTIME_DIR", value)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    assert directory(create=True).parent == tmp_path
    assert directory().stat().st_mode & 0o777 == 0o700


def test_where_nothing_can_be_written_no_driver_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("XDG_RUNTIME_DIR", raising=False)
    monkeypatch.setattr("tempfile.tempdir", None)
    monkeypatch.setattr("tempfile._get_default_tempdir", no_folder)
    assert directory() == Path(f"/tmp/nnburst-{os.geteuid()}")


def no_folder() -> str:
    raise FileNotFoundError(errno.ENOENT, "No usable temporary directory found")


@pytest.mark.parametrize("mode", [0o755, 0o770, 0o701])
def test_directory_that_others_can_enter_is_refused(runtime: Path, mode: int) -> None:
    (runtime / "nnburst").mkdir()
    (runtime / "nnburst").chmod(mode)
    with pytest.raises(DeviceUnavailable, match="0700"):
        socket_path("x")


def test_directory_whose_name_no_file_can_have_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_RUNTIME_DIR", "/" + "x" * 4000)
    for create in (False, True):
        with pytest.raises(DeviceUnavailable, match="directory of drivers"):
            directory(create=create)


def test_directory_behind_a_link_is_refused(runtime: Path) -> None:
    (runtime / "elsewhere").mkdir(mode=0o700)
    (runtime / "nnburst").symlink_to(runtime / "elsewhere")
    with pytest.raises(DeviceUnavailable, match="0700"):
        directory()


@pytest.mark.parametrize("name", ["", ".", "..", "a/b", "-x", "a b", "ü", "x" * 65, "a\n", "a\0"])
def test_name_that_could_leave_the_directory_is_refused(runtime: Path, name: str) -> None:
    with pytest.raises(InvalidArgument, match="name:"):
        socket_path(name)


def test_path_that_no_socket_can_have_is_refused(tmp_path: Path) -> None:
    assert check_length(Path("/" + "x" * 106)) == Path("/" + "x" * 106)
    with pytest.raises(InvalidArgument, match="107"):
        check_length(Path("/" + "x" * 107))
