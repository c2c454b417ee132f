"""Sealed memory: it cannot shrink, views keep it mapped, and nothing else is accepted for it."""

from __future__ import annotations

import ctypes
import errno
import fcntl
import gc
import mmap
import os
import socket
import subprocess
import sys
import tempfile
import weakref
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from descriptors import descriptors
from nnburst.fmq.shared_memory import SIZE_SEALS, SharedMemory
from nnburst.hal.errors import Closed, InvalidArgument, ResourceExhausted


def memfd(size: int, seals: int = SIZE_SEALS, flags: int = 0) -> int:
    """A foreign memfd."""
    fd = os.memfd_create("foreign", os.MFD_ALLOW_SEALING | flags)
    os.ftruncate(fd, size)
    if seals:
        fcntl.fcntl(fd, fcntl.F_ADD_SEALS, seals)
    return fd


def is_mapped(name: str) -> bool:
    """Whether this process maps a memfd called `name`."""
    return f"/memfd:{name}" in Path("/proc/self/maps").read_text()


@pytest.mark.parametrize("size", [0, 4096, 16384])
def test_size_is_final(size: int) -> None:
    memory = SharedMemory.create(8192)
    with pytest.raises(OSError, match="not permitted") as refused:
        os.ftruncate(memory.fd, size)
    assert refused.value.errno == errno.EPERM


def test_both_mappings_see_the_same_bytes() -> None:
    memory = SharedMemory.create(100)
    writable, read_only = memory.map(writable=True), memory.map(writable=False)
    writable[:] = np.arange(100)
    assert read_only.tolist() == list(range(100))
    assert read_only.size == memory.size == 100


def test_view_for_reading_cannot_be_written() -> None:
    view = SharedMemory.create(8).map(writable=False)
    with pytest.raises(ValueError, match="read-only"):
        view[0] = 1


def test_memory_starts_as_zeros() -> None:
    assert not SharedMemory.create(100_000).map(writable=False).any()


def test_derived_view_keeps_the_mapping_and_the_last_one_takes_it_away() -> None:
    memory = SharedMemory.create(4096, "test-views")
    part = memory.map(writable=True)[8:16].view("<u4").reshape(2, 1)
    memory.close()
    gc.collect()
    part[:] = 7
    assert part.tolist() == [[7], [7]]
    assert is_mapped("test-views")
    del part
    gc.collect()
    assert not is_mapped("test-views")


def test_one_readable_page_follows_the_region() -> None:
    size = mmap.PAGESIZE
    view = SharedMemory.create(size).map(writable=False)
    beyond = (ctypes.c_uint8 * 64).from_address(view.ctypes.data + size)
    assert bytes(beyond) == bytes(64)


FORK = """
import os
from nnburst.fmq.shared_memory import SharedMemory
view = SharedMemory.create(4096, "test-fork").map(writable=True)
count = lambda: open("/proc/self/maps").read().count("test-fork")
assert count() == 1
if (pid := os.fork()) == 0:
    os._exit(count())
print(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))
"""


def test_mapping_is_not_inherited_by_fork() -> None:
    # In a process of its own: this one may have threads, which a fork would leave behind.
    done = subprocess.run(
        [sys.executable, "-c", FORK], stdout=subprocess.PIPE, text=True, check=True, timeout=30
    )
    assert done.stdout == "0\n"


def test_others_can_only_read_what_was_protected() -> None:
    memory = SharedMemory.create(64, read_only_for_others=True)
    mine = memory.map_then_protect()
    mine[:] = bytes([5]) * 64
    theirs = SharedMemory.adopt(os.dup(memory.fd))
    assert theirs.map(writable=False).tolist() == [5] * 64
    with pytest.raises(PermissionError):
        mmap.mmap(theirs.fd, 64)


def test_close_is_idempotent_and_final() -> None:
    memory = SharedMemory.create(8)
    with memory:
        memory.close()
    assert memory.closed
    with pytest.raises(Closed):
        memory.map(writable=False)


def test_forgotten_memory_leaves_no_descriptor() -> None:
    before = descriptors()
    for _ in range(50):
        SharedMemory.create(8)
    gc.collect()  # what only garbage holds is not kept
    assert descriptors() <= before


class Anything:
    """An object that can be referred to weakly."""


def test_what_a_mapping_keeps_lives_as_long_as_the_mapping() -> None:
    kept = Anything()
    watch = weakref.ref(kept)
    view = SharedMemory.create(8).map(writable=True, keep=kept)
    del kept
    gc.collect()
    assert watch() is not None
    del view
    gc.collect()
    assert watch() is None


def test_memory_that_was_never_made_closes_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    closed: list[int] = []
    gc.collect()  # what others have forgotten is not closed below
    with monkeypatch.context() as patch:
        patch.setattr(os, "close", closed.append)
        SharedMemory.__new__(SharedMemory)
    assert closed == []


ZERO = """
import gc, os
from nnburst.fmq.shared_memory import SharedMemory

def is_open() -> bool:
    return os.path.exists("/proc/self/fd/0")

os.close(0)
memory = SharedMemory.create(8)
print(memory.fd, memory.closed, len(memory.map(writable=True)))
memory.close()
print(memory.closed, is_open())
memory = SharedMemory.create(8)
print(memory.fd, is_open())
del memory
gc.collect()
print(is_open())
"""


def test_descriptor_zero_is_one_like_any_other() -> None:
    done = subprocess.run(
        [sys.executable, "-c", ZERO], stdout=subprocess.PIPE, text=True, check=True, timeout=60
    )
    assert done.stdout.splitlines() == ["0 False 8", "True False", "0 True", "False"]


def test_duplicate_is_an_object_of_its_own_for_the_same_bytes() -> None:
    memory = SharedMemory.create(16)
    memory.map(writable=True)[:] = 3
    twin = memory.duplicate()
    assert twin.fd != memory.fd
    memory.close()
    assert twin.map(writable=False).tolist() == [3] * 16


def test_memory_that_the_kernel_does_not_have_is_refused_as_such() -> None:
    with pytest.raises(ResourceExhausted, match="cannot create shared memory"):
        SharedMemory.create(8, "n" * 300)
    with pytest.raises(ResourceExhausted, match="more than a file can have"):
        SharedMemory.create(1 << 70)
    huge = SharedMemory.create(1 << 50)
    with pytest.raises(ResourceExhausted, match="cannot map 1125899906842624 bytes"):
        huge.map(writable=True)


def test_region_that_cannot_get_its_size_leaves_no_descriptor(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def refuse(_fd: int, _size: int) -> None:
        raise OSError(errno.ENOSPC, "no space")

    monkeypatch.setattr(os, "ftruncate", refuse)
    before = descriptors()
    with pytest.raises(ResourceExhausted, match="cannot create shared memory of 8 bytes: no space"):
        SharedMemory.create(8)
    gc.collect()  # what only garbage holds is not kept
    assert descriptors() <= before


def test_one_byte_is_a_size() -> None:
    assert SharedMemory.create(1).map(writable=True).tolist() == [0]


@pytest.mark.parametrize("size", [0, -1])
def test_size_must_be_positive(size: int) -> None:
    with pytest.raises(InvalidArgument, match="at least 1 byte"):
        SharedMemory.create(size)


# --- what a stranger may hand over ---


def file_fd() -> int:
    with tempfile.TemporaryFile() as file:
        file.write(b"x" * 4096)
        return os.dup(file.fileno())


def socket_fd() -> int:
    ours, theirs = socket.socketpair()
    ours.close()
    return theirs.detach()


def read_end() -> int:
    ours, theirs = os.pipe()
    os.close(theirs)
    return ours


STRANGERS: dict[str, Callable[[], int]] = {
    "regular file": file_fd,
    "directory": lambda: os.open("/", os.O_RDONLY | os.O_DIRECTORY),
    "device": lambda: os.open("/dev/zero", os.O_RDWR),
    "pipe": read_end,
    "socket": socket_fd,
    "eventfd": lambda: os.eventfd(0),
    "unsealed memfd": lambda: memfd(4096, 0),
    "memfd that can grow": lambda: memfd(4096, fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_SEAL),
    "memfd that can shrink": lambda: memfd(4096, fcntl.F_SEAL_GROW | fcntl.F_SEAL_SEAL),
    "memfd whose seals can change": lambda: memfd(4096, fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW),
    "empty memfd": lambda: memfd(0),
}


@pytest.mark.parametrize("kind", STRANGERS)
def test_stranger_is_refused_and_its_descriptor_closed(kind: str) -> None:
    fd = STRANGERS[kind]()
    with pytest.raises(InvalidArgument):
        SharedMemory.adopt(fd)
    with pytest.raises(OSError, match="Bad file descriptor"):
        os.fstat(fd)


def test_memfd_of_huge_pages_is_refused() -> None:
    try:
        fd = memfd(2 << 20, SIZE_SEALS, os.MFD_HUGETLB)
    except OSError as error:
        pytest.skip(f"no huge pages here: {error.strerror}")
    with pytest.raises(InvalidArgument, match="huge"):
        SharedMemory.adopt(fd)


@pytest.mark.parametrize(
    ("promised", "accepted"), [(4096, True), (1, True), (4097, False), (0, False), (-1, False)]
)
def test_file_must_hold_what_was_promised(promised: int, accepted: bool) -> None:
    fd = memfd(4096)
    if accepted:
        assert SharedMemory.adopt(fd, promised).size == promised
    else:
        with pytest.raises(InvalidArgument, match=f"4096 bytes, expected {promised}"):
            SharedMemory.adopt(fd, promised)


def test_sparse_memfd_is_normal() -> None:
    memory = SharedMemory.adopt(memfd(1 << 30))
    assert memory.map(writable=False)[-1] == 0
