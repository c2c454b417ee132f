"""Pools made of memory from elsewhere: what is taken as it is, what is copied once, what is refused."""

from __future__ import annotations

import contextlib
import fcntl
import mmap
import os
import socket
import tracemalloc
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final

import numpy as np
import pytest

from descriptors import status_of
from nnburst import Device, InvalidArgument, Memory, Model
from nnburst.fmq.shared_memory import SIZE_SEALS, SharedMemory

MIB: Final = 1 << 20
#: What Python and the library allocate on the way; a copy of a MiB is much more.
SMALL: Final = 64 << 10
F_SEAL_FUTURE_WRITE: Final = 0x0010
MFD_HUGETLB: Final = 0x0004


def memfd(size: int, flags: int = os.MFD_ALLOW_SEALING) -> int:
    fd = os.memfd_create("camera", os.MFD_CLOEXEC | flags)
    os.ftruncate(fd, size)
    return fd


def seals(fd: int) -> int:
    return fcntl.fcntl(fd, fcntl.F_GET_SEALS)


def seals_if_any(fd: int) -> int | None:
    try:
        return seals(fd)
    except OSError:
        return None


@pytest.fixture
def foreign() -> Iterator[int]:
    """A memfd of 4 KiB that can be sealed and is not."""
    fd = memfd(4096)
    yield fd
    os.close(fd)


def test_foreign_memfd_is_the_pool_itself(device: Device, foreign: int) -> None:
    with mmap.mmap(foreign, 4096) as theirs, Memory.from_fd(foreign, seal=True) as memory:
        theirs[100:104] = b"here"
        assert bytes(memory.view()[100:104]) == b"here"
        memory.array("u1", (4,), 200)[...] = 7
        assert theirs[200:204] == bytes([7] * 4)
        assert memory.size == 4096
        fd = memory.duplicate()
        assert os.path.sameopenfile(fd, foreign)
        os.close(fd)


def test_import_that_may_seal_fixes_the_size_for_all(device: Device, foreign: int) -> None:
    with Memory.from_fd(foreign, seal=True):
        assert seals(foreign) & SIZE_SEALS == SIZE_SEALS
        for size in (0, 8192):
            with pytest.raises(PermissionError):
                os.ftruncate(foreign, size)


def test_memfd_that_is_not_sealed_is_refused_and_left_alone_unless_it_may_be(
    device: Device, foreign: int
) -> None:
    with pytest.raises(InvalidArgument, match=r"lacks the seals .* seal=True adds them"):
        Memory.from_fd(foreign)
    assert not seals(foreign) & SIZE_SEALS
    os.ftruncate(foreign, 8192)  # as its owner may


def test_memfd_that_its_owner_has_sealed_needs_no_leave(device: Device, foreign: int) -> None:
    fcntl.fcntl(foreign, fcntl.F_ADD_SEALS, SIZE_SEALS)
    with Memory.from_fd(foreign) as memory:
        assert memory.size == 4096


def test_descriptor_stays_the_callers(device: Device) -> None:
    fd = memfd(4096)
    memory = Memory.from_fd(fd, seal=True)
    os.close(fd)
    assert memory.array("u1", (4096,)).sum() == 0
    memory.close()


def test_import_allocates_nothing_of_the_memfds_size(device: Device) -> None:
    fd = memfd(MIB)
    tracemalloc.start()
    try:
        with Memory.from_fd(fd, seal=True):
            assert tracemalloc.get_traced_memory()[1] < SMALL
            assert os.fstat(fd).st_blocks == 0, "the kernel gave it pages: somebody wrote to it"
    finally:
        tracemalloc.stop()
        os.close(fd)


def test_execution_reads_and_writes_a_foreign_memfd(
    device: Device, make_model: Callable[..., Model], foreign: int
) -> None:
    with (
        mmap.mmap(foreign, 4096) as theirs,
        Memory.from_fd(foreign, seal=True) as memory,
        device.prepare(make_model((4,))) as prepared,
        prepared.open_burst() as burst,
    ):
        a, b, c = (memory.array("f4", (4,), offset) for offset in (0, 64, 128))
        bound = burst.bind([a, b], [c])
        theirs[0:16] = np.float32([1, 2, 3, 4]).tobytes()
        theirs[64:80] = np.float32([10, 20, 30, 40]).tobytes()
        bound.run()
        assert np.frombuffer(theirs[128:144], "f4").tolist() == [11, 22, 33, 44]


def test_one_memfd_can_be_a_pool_twice(device: Device, foreign: int) -> None:
    with Memory.from_fd(foreign, seal=True) as first, Memory.from_fd(foreign, seal=True) as second:
        first.view()[0] = 9
        assert second.view()[0] == 9
        assert first._number != second._number


@pytest.mark.parametrize("how", ["sealed against writing", "opened for reading only"])
def test_memfd_that_others_write_is_a_read_only_pool(
    device: Device, make_model: Callable[..., Model], foreign: int, how: str
) -> None:
    theirs = mmap.mmap(foreign, 4096)
    if how == "opened for reading only":
        fcntl.fcntl(foreign, fcntl.F_ADD_SEALS, SIZE_SEALS)
        fd = os.open(f"/proc/self/fd/{foreign}", os.O_RDONLY | os.O_CLOEXEC)
    else:
        fcntl.fcntl(foreign, fcntl.F_ADD_SEALS, F_SEAL_FUTURE_WRITE)
        fd = os.dup(foreign)
    theirs[0:16] = np.float32([1, 2, 3, 4]).tobytes()
    with (
        theirs,
        Memory.from_fd(fd, seal=True) as memory,
        device.prepare(make_model((4,))) as prepared,
        prepared.open_burst() as burst,
    ):
        os.close(fd)
        given = memory.array("f4", (4,))
        assert not given.flags.writeable
        assert memory.view().readonly
        assert burst.execute([given, given]).outputs[0].tolist() == [2, 4, 6, 8]
        with pytest.raises(InvalidArgument, match=r"outputs\[0\] is read-only"):
            burst.bind([given, given], [given])


def regular_file(folder: Path) -> int:
    path = folder / "file"
    path.write_bytes(bytes(100))
    return os.open(path, os.O_RDWR)


def shm_file(_folder: Path) -> int:
    fd = os.open("/dev/shm", os.O_TMPFILE | os.O_RDWR)
    os.ftruncate(fd, 100)
    return fd


def unsealable(_folder: Path) -> int:
    return memfd(4096, flags=0)


def closed_for_seals(_folder: Path) -> int:
    fd = memfd(4096)
    fcntl.fcntl(fd, fcntl.F_ADD_SEALS, fcntl.F_SEAL_GROW | fcntl.F_SEAL_SEAL)
    return fd


def unsealed_and_read_only(_folder: Path) -> int:
    fd = memfd(4096)
    try:
        return os.open(f"/proc/self/fd/{fd}", os.O_RDONLY)
    finally:
        os.close(fd)


def write_only(_folder: Path) -> int:
    fd = memfd(4096)
    try:
        return os.open(f"/proc/self/fd/{fd}", os.O_WRONLY)
    finally:
        os.close(fd)


def pipe(_folder: Path) -> int:
    reader, writer = os.pipe()
    os.close(writer)
    return reader


def socket_end(_folder: Path) -> int:
    one, other = socket.socketpair()
    other.close()
    return one.detach()


def descriptors_of_the_same_file(fd: int) -> list[int]:
    """Those of this process. Others come and go on threads that clean up behind earlier tests."""
    same = []
    for number in map(int, os.listdir("/proc/self/fd")):
        with contextlib.suppress(OSError):  # one that was closed meanwhile
            if os.path.sameopenfile(number, fd):
                same.append(number)
    return same


@pytest.mark.parametrize(
    ("make", "reason"),
    [
        (regular_file, "a regular file is not a memfd and may shrink.*from_file"),
        (shm_file, "may shrink while it is read and takes no seals"),
        (unsealable, "made without MFD_ALLOW_SEALING"),
        (closed_for_seals, "takes no seals"),
        (unsealed_and_read_only, "open for reading only, so that they cannot be added"),
        (write_only, "open for writing only"),
        (pipe, "a pipe is not a memfd"),
        (socket_end, "a socket is not a memfd"),
        (lambda _: memfd(0), "has 0 bytes"),
    ],
)
def test_everything_else_is_refused_with_the_reason_and_left_alone(
    device: Device, tmp_path: Path, make: Callable[[Path], int], reason: str
) -> None:
    fd = make(tmp_path)
    before = seals_if_any(fd)
    descriptors = descriptors_of_the_same_file(fd)
    try:
        with pytest.raises(InvalidArgument, match=reason):
            Memory.from_fd(fd, seal=True)
        assert seals_if_any(fd) == before
        assert descriptors_of_the_same_file(fd) == descriptors == [fd]
    finally:
        os.close(fd)


def test_huge_pages_are_refused(device: Device) -> None:
    try:
        fd = os.memfd_create("huge", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING | MFD_HUGETLB)
    except OSError as error:
        pytest.skip(f"this kernel has no huge pages for memfds: {error}")
    try:
        with pytest.raises(InvalidArgument, match="huge pages"):
            Memory.from_fd(fd, seal=True)
        assert not seals(fd) & fcntl.F_SEAL_SEAL
    finally:
        os.close(fd)


@pytest.mark.parametrize("fd", ["0", None, 1.5, -1, 1 << 20, 1 << 40])
def test_what_is_not_an_open_descriptor_is_refused(device: Device, fd: Any) -> None:
    with pytest.raises(InvalidArgument, match=r"^fd: "):
        Memory.from_fd(fd, seal=True)


def test_file_becomes_a_pool_by_one_copy_of_the_kernel(device: Device, tmp_path: Path) -> None:
    content = np.random.default_rng(1).bytes(MIB + 5)
    path = tmp_path / "weights"
    path.write_bytes(content)
    tracemalloc.start()
    try:
        before = bytes_read()
        memory = Memory.from_file(path)
        copied = bytes_read() - before
        assert tracemalloc.get_traced_memory()[1] < SMALL, "there is a copy beside the pool"
    finally:
        tracemalloc.stop()
    assert len(content) <= copied < len(content) + SMALL, "the kernel copied it not just once"
    assert bytes(memory.view()) == content
    os.truncate(path, 10)
    assert bytes(memory.view()) == content, "the pool depends on the file"
    assert status_of(memory).st_blocks * 512 < MIB + SMALL


def bytes_read() -> int:
    """The bytes that this process has ever read through system calls."""
    (line,) = [x for x in Path("/proc/self/io").read_text().splitlines() if x.startswith("rchar")]
    return int(line.split()[1])


def test_files_that_cannot_be_pools_are_refused(device: Device, tmp_path: Path) -> None:
    (tmp_path / "empty").touch()
    os.mkfifo(tmp_path / "fifo")
    with pytest.raises(InvalidArgument, match="is empty"):
        Memory.from_file(tmp_path / "empty")
    with pytest.raises(InvalidArgument, match="is a pipe, expected a regular file"):
        Memory.from_file(str(tmp_path / "fifo"))
    with pytest.raises(InvalidArgument, match="is a device, expected a regular file"):
        Memory.from_file("/dev/zero")
    with pytest.raises(InvalidArgument, match="is a directory, expected a regular file"):
        Memory.from_file(tmp_path)
    with pytest.raises(FileNotFoundError):
        Memory.from_file(tmp_path / "nothing")


def test_file_that_shrinks_while_it_is_read_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "log"
    path.write_bytes(bytes(1000))
    create = SharedMemory.create

    def create_and_truncate(size: int, *, name: str) -> SharedMemory:
        os.truncate(path, 300)
        return create(size, name=name)

    monkeypatch.setattr(SharedMemory, "create", create_and_truncate)
    with pytest.raises(InvalidArgument, match="has shrunk to 300 of 1000 bytes"):
        Memory.from_file(path)


def mapped_memory() -> int:
    """KiB that this process has for data of its own, whether Python allocated it or not."""
    (line,) = [
        x for x in Path("/proc/self/status").read_text().splitlines() if x.startswith("VmData")
    ]
    return int(line.split()[1])


@pytest.mark.parametrize("strides", ["C order", "transposed", "every second"])
def test_array_becomes_a_pool_by_one_copy(device: Device, strides: str) -> None:
    square = np.random.default_rng(2).standard_normal((512, 512)).astype(np.float32)
    array = {"C order": square, "transposed": square.T, "every second": square[:, ::2]}[strides]
    before = mapped_memory()
    tracemalloc.start()
    try:
        memory = Memory.from_dlpack(array)
        assert tracemalloc.get_traced_memory()[1] < SMALL, "there is a copy beside the pool"
    finally:
        tracemalloc.stop()
    assert mapped_memory() - before < array.nbytes // 1024 // 2, "there is a copy beside the pool"
    assert memory.size == array.nbytes
    assert status_of(memory).st_blocks * 512 < array.nbytes + SMALL
    np.testing.assert_array_equal(memory.array(array.dtype, array.shape), array)
    array[...] = 0
    assert memory.array("u1", (memory.size,)).any(), "the pool depends on the array"


class OnlyDlpack:
    """The form of another library's tensor."""

    def __init__(self, array: np.ndarray) -> None:
        self._array = array

    def __dlpack__(self, **options: Any) -> Any:
        return self._array.__dlpack__(**options)

    def __dlpack_device__(self) -> tuple[int, int]:
        return self._array.__dlpack_device__()


def test_anything_with_dlpack_will_do(device: Device) -> None:
    numbers = np.arange(6, dtype=np.int64).reshape(2, 3)
    with Memory.from_dlpack(OnlyDlpack(numbers)) as memory:
        np.testing.assert_array_equal(memory.array("i8", (2, 3)), numbers)
        with Memory.from_dlpack(memory) as again:
            assert bytes(again.view()) == bytes(memory.view())
    numbers.flags.writeable = False
    with Memory.from_dlpack(numbers) as memory:
        memory.view()[0] = 1
    assert numbers[0, 0] == 0


class InAnotherMemory(OnlyDlpack):
    def __dlpack__(self, **_options: Any) -> Any:
        raise BufferError("the tensor lies in a graphics processor")


@pytest.mark.parametrize(
    ("array", "reason"),
    [
        ([1, 2, 3], "of type list, expected one with __dlpack__"),
        (np.zeros((0, 4)), r"shape \(0, 4\) has 0 bytes"),
        (np.array([object()]), "dtype object"),
        (InAnotherMemory(np.zeros(3)), "graphics processor"),
    ],
)
def test_arrays_that_cannot_be_pools_are_refused(device: Device, array: Any, reason: str) -> None:
    with pytest.raises(InvalidArgument, match=reason):
        Memory.from_dlpack(array)


def test_memory_needs_no_device(tmp_path: Path, foreign: int) -> None:
    (tmp_path / "file").write_bytes(b"x")
    with (
        Memory.from_fd(foreign, seal=True) as shared,
        Memory.from_file(tmp_path / "file") as read,
        Memory.from_dlpack(np.zeros(3)) as copied,
    ):
        assert (shared.size, read.size, copied.size) == (os.fstat(foreign).st_size, 1, 24)
