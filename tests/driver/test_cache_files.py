"""Cache files as descriptors: what is accepted, copied and overwritten."""

from __future__ import annotations

import os
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from nnburst.driver.model import compilation_cache
from nnburst.driver.model.compilation_cache import check_cache_file, overwrite, read_copy
from nnburst.hal.errors import GeneralFailure, InvalidArgument


@pytest.fixture
def file(tmp_path: Path) -> Iterator[int]:
    fd = os.open(tmp_path / "cache", os.O_RDWR | os.O_CREAT, 0o600)
    yield fd
    os.close(fd)


def test_a_file_to_read_and_write_is_accepted(file: int) -> None:
    check_cache_file(file, "file")


@pytest.mark.parametrize("mode", [os.O_RDONLY, os.O_WRONLY, os.O_PATH])
def test_a_file_for_one_direction_is_refused(file: int, mode: int) -> None:
    one_way = os.open(f"/proc/self/fd/{file}", mode)
    try:
        with pytest.raises(InvalidArgument, match="P5: it is not opened to be read and written"):
            check_cache_file(one_way, "it")
    finally:
        os.close(one_way)


def test_what_is_not_a_regular_file_is_refused(tmp_path: Path) -> None:
    pipe, folder = os.pipe(), os.open(tmp_path, os.O_RDONLY)
    one, other = socket.socketpair()
    null = os.open("/dev/null", os.O_RDWR)
    with one, other:
        for fd in (*pipe, folder, one.fileno(), null):
            with pytest.raises(InvalidArgument, match="P5: it is not a regular file"):
                check_cache_file(fd, "it")
    for fd in (*pipe, folder, null):
        os.close(fd)


@pytest.mark.parametrize("before", [b"", b"a longer content than the new one"])
@pytest.mark.parametrize("offset", [0, 7, 1000])
def test_a_file_of_any_size_and_offset_has_the_new_content_only(
    file: int, before: bytes, offset: int
) -> None:
    os.write(file, before)
    os.lseek(file, offset, os.SEEK_SET)
    overwrite(file, b"new content")
    assert os.lseek(file, 0, os.SEEK_CUR) == offset
    assert read_copy(file, "file") == b"new content"
    assert os.fstat(file).st_size == 11


def test_a_file_that_only_appends_is_overwritten(file: int) -> None:
    os.write(file, b"before")
    appending = os.open(f"/proc/self/fd/{file}", os.O_RDWR | os.O_APPEND)
    overwrite(appending, b"after")
    os.close(appending)
    assert read_copy(file, "file") == b"after"


def test_a_long_content_is_written_in_pieces(file: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compilation_cache, "_CHUNK", 3)
    overwrite(file, b"0123456789")
    assert read_copy(file, "file") == b"0123456789"


def test_a_write_that_fails_leaves_an_empty_file(
    file: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    write, calls = os.pwrite, []

    def fail_at_second(fd: int, data: memoryview, at: int) -> int:
        calls.append(at)
        if len(calls) == 2:
            raise OSError(28, "no space left")
        return write(fd, data, at)

    monkeypatch.setattr(compilation_cache, "_CHUNK", 3)
    monkeypatch.setattr(os, "pwrite", fail_at_second)
    with pytest.raises(OSError, match="no space left"):
        overwrite(file, b"0123456789")
    assert os.fstat(file).st_size == 0


def test_a_copy_ends_where_a_file_is_truncated_meanwhile(
    file: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    overwrite(file, b"0123456789")
    read = os.preadv

    def read_after_truncation(fd: int, buffers: list[memoryview], at: int) -> int:
        os.ftruncate(fd, 4)
        return read(fd, buffers, at)

    monkeypatch.setattr(os, "preadv", read_after_truncation)
    assert read_copy(file, "file") == b"0123"


def test_a_file_beyond_the_limit_is_not_read(file: int) -> None:
    os.ftruncate(file, compilation_cache.MAX_CACHE_BYTES + 1)  # a hole: it takes no room
    with pytest.raises(GeneralFailure, match=r"file has \d+ bytes, at most"):
        read_copy(file, "file")


def test_a_file_that_cannot_be_read_is_named_with_the_reason(tmp_path: Path) -> None:
    fd = os.open(tmp_path / "write-only", os.O_WRONLY | os.O_CREAT, 0o600)
    try:
        os.write(fd, b"x")
        with pytest.raises(GeneralFailure, match="file cannot be read"):
            read_copy(fd, "file")
    finally:
        os.close(fd)
