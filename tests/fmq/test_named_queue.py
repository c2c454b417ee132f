"""Named queues: opened once by the same user, and gone from /dev/shm at once."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import gc
import os
import resource
import stat
import struct
import subprocess
import sys
import time
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from descriptors import descriptors
from fmq.queues import ELEMENT, numbers
from nnburst.fmq import named_queue
from nnburst.fmq.named_queue import (
    create_named_queue,
    list_named_queues,
    open_named_queue,
    remove_stale_names,
)
from nnburst.fmq.shared_memory import RECORD_BYTES, Flavor, from_record
from nnburst.hal.errors import (
    BadState,
    Closed,
    DeviceUnavailable,
    InvalidArgument,
    ResourceExhausted,
)
from waiting import wait_for

posix_ipc = pytest.importorskip("posix_ipc", reason="there is no posix_ipc for this Python")

PEER = """
import sys
from nnburst.fmq import create_named_queue, open_named_queue
there = open_named_queue(sys.argv[1], "<u4", timeout=30)
back = create_named_queue(sys.argv[1], "<u4", 3)
back.write(there.read(3, timeout=30)[::-1])
sys.stdin.read()
"""

#: Makes a queue and is killed.
KILLED = """
import os, signal, sys
from nnburst.fmq import Flavor, create_named_queue
queue = create_named_queue(sys.argv[1], "<u4", 8, Flavor(int(sys.argv[2])))
os.kill(os.getpid(), signal.SIGKILL)
"""


@pytest.fixture
def name() -> Iterator[str]:
    """A name that is not used, removed afterwards."""
    unique = f"/nnburst-test-{uuid.uuid4().hex}"
    yield unique
    if is_there(unique):
        path_of(unique).unlink()


def path_of(name: str) -> Path:
    return Path(f"/dev/shm{name}")


def is_there(name: str) -> bool:
    return path_of(name).exists()


def test_two_ends_share_elements_and_the_name_goes(name: str) -> None:
    writer = create_named_queue(name, ELEMENT, 8)
    assert is_there(name)
    reader = open_named_queue(name, ELEMENT, timeout=1)
    assert not is_there(name)
    assert writer.write(numbers(0, 8))
    found = reader.read(8)
    assert found is not None
    assert found.tolist() == list(range(8))


def test_another_process_opens_it_by_name(name: str) -> None:
    there = create_named_queue(name, ELEMENT, 3)
    there.write(numbers(0, 3))
    with subprocess.Popen([sys.executable, "-c", PEER, name], stdin=subprocess.PIPE) as peer:
        wait_for(lambda: there.peer is not None)
        # Its first name is gone, so the peer has used it again.
        back = open_named_queue(name, ELEMENT, timeout=60)
        found = back.read(3, timeout=60)
        peer.communicate(timeout=60)
    assert found is not None
    assert found.tolist() == [2, 1, 0]
    assert not is_there(name)


def test_queue_has_all_its_pages_before_it_has_a_name_so_no_write_fails_for_want_of_one(
    name: str,
) -> None:
    with create_named_queue(name, ELEMENT, 1 << 20):
        status = Path(f"/dev/shm{name}").stat()
        assert status.st_blocks * 512 >= status.st_size > 4 << 20


def test_name_goes_with_its_maker_if_no_other_process_comes(name: str) -> None:
    create_named_queue(name, ELEMENT, 8).close()
    assert not is_there(name)
    forgotten = create_named_queue(name, ELEMENT, 8)
    del forgotten
    gc.collect()
    assert not is_there(name)
    program = "import sys, nnburst.fmq as q; kept = q.create_named_queue(sys.argv[1], '<u4', 8)"
    subprocess.run([sys.executable, "-c", program, name], check=True, timeout=60)
    assert not is_there(name)


@pytest.mark.parametrize("flavor", list(Flavor))
def test_name_that_a_killed_process_has_left_is_stale_and_found_and_taken_over(
    name: str, flavor: Flavor
) -> None:
    command = [sys.executable, "-c", KILLED, name, str(int(flavor))]
    killed = subprocess.run(command, check=False, timeout=60)
    assert killed.returncode == -9
    (found,) = [queue for queue in list_named_queues(name) if queue.name == name]
    assert (found.is_stale, found.flavor, found.quantum, found.capacity) == (True, flavor, 4, 8)
    with pytest.raises(DeviceUnavailable, match="not created"):
        open_named_queue(name, ELEMENT, timeout=0.01)
    queue = create_named_queue(name, ELEMENT, 4)
    (found,) = [queue for queue in list_named_queues(name) if queue.name == name]
    assert (found.is_stale, found.pid, found.capacity) == (False, os.getpid(), 4)
    assert name not in [removed.name for removed in remove_stale_names(name)]
    queue.close()
    assert name not in [queue.name for queue in list_named_queues()]


def test_stale_name_is_removed_and_one_in_use_is_not(name: str) -> None:
    other = f"{name}-kept"
    subprocess.run([sys.executable, "-c", KILLED, name, "1"], check=False, timeout=60)
    with create_named_queue(other, ELEMENT, 4):
        removed = [queue.name for queue in remove_stale_names(name)]
        assert name in removed
        assert other not in removed
        assert is_there(other)
    assert not is_there(name)


def test_broadcast_keeps_its_name_for_readers_that_come_and_go(name: str) -> None:
    writer = create_named_queue(name, ELEMENT, 8, Flavor.UNSYNCHRONIZED_WRITE)
    for turn in range(3):
        with open_named_queue(name, ELEMENT, timeout=1) as reader:
            assert writer.write(numbers(turn, 2))
            found = reader.read(2, timeout=10)
            assert found is not None
            assert found.tolist() == [turn, turn + 1]
            with pytest.raises(BadState, match="read-only"):
                reader.write(numbers(0, 1))
        assert is_there(name)
    writer.close()
    assert not is_there(name)


def test_queue_that_others_may_follow_in_keeps_its_name_for_them(name: str) -> None:
    writer = create_named_queue(name, ELEMENT, 8, reopen=True, keep_unread=False)
    first = open_named_queue(name, ELEMENT, timeout=1)
    writer.write(numbers(0, 3))
    assert first.read(1) is not None
    first.close()
    second = open_named_queue(name, ELEMENT, timeout=1)
    assert second.read(1) is None, "what the first one left unread is dropped"
    writer.write(numbers(7, 1))
    assert second.read(1) is not None
    writer.close()
    assert not is_there(name)


def test_name_that_exists_is_not_taken_over(name: str) -> None:
    _kept = create_named_queue(name, ELEMENT, 8)
    with pytest.raises(DeviceUnavailable, match="exists"):
        create_named_queue(name, ELEMENT, 8)


def test_name_that_is_never_created_ends_at_the_timeout(name: str) -> None:
    with pytest.raises(DeviceUnavailable, match="was not created within"):
        open_named_queue(name, ELEMENT, timeout=0.01)


def test_second_opener_is_refused_since_the_queue_is_taken(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    _kept = create_named_queue(name, ELEMENT, 8)
    unlink = os.unlink
    # The other one wins between our look and our unlink.
    monkeypatch.setattr(os, "unlink", lambda path: (unlink(path), unlink(path)))
    with pytest.raises(DeviceUnavailable, match="another process has opened"):
        open_named_queue(name, ELEMENT, timeout=1)


def test_region_that_is_not_complete_yet_counts_as_absent(name: str) -> None:
    before = descriptors()
    for size in (0, 4096):
        posix_ipc.SharedMemory(name, posix_ipc.O_CREX, mode=0o600, size=size).close_fd()
        with pytest.raises(DeviceUnavailable):
            open_named_queue(name, ELEMENT, timeout=0.01)
        posix_ipc.unlink_shared_memory(name)
    gc.collect()  # what only garbage holds is not kept
    assert descriptors() <= before


@pytest.mark.parametrize(
    "make",
    [
        Path.mkdir,
        lambda path: path.symlink_to(path.with_name("nowhere")),
        lambda path: os.mkfifo(path, 0o600),
        lambda path: os.mknod(path, 0o600 | stat.S_IFSOCK),
    ],
    ids=["folder", "link", "fifo", "socket"],
)
def test_a_name_of_something_else_is_in_use_and_names_no_queue(
    name: str, make: Callable[[Path], object]
) -> None:
    make(path_of(name))
    try:
        with pytest.raises(DeviceUnavailable, match="was not created"):
            open_named_queue(name, ELEMENT, timeout=0.01)
        with pytest.raises(DeviceUnavailable, match="exists already"):
            create_named_queue(name, ELEMENT, 8)
        assert list_named_queues(name) == []
    finally:
        if path_of(name).is_dir():
            path_of(name).rmdir()
        else:
            path_of(name).unlink()


def test_stale_names_that_are_no_text_are_removed_as_others_are(name: str) -> None:
    for end in ("\udcff", "x"):
        subprocess.run([sys.executable, "-c", KILLED, name, "1"], check=False, timeout=60)
        path_of(name).rename(path_of(f"{name}-{end}"))
    found = [queue.name for queue in list_named_queues(name)]
    assert sorted(found) == [f"{name}-x", f"{name}-\udcff"]
    assert [queue.name for queue in remove_stale_names(name)] == found
    assert not list_named_queues(name)


def test_region_that_is_complete_but_only_a_header_is_not_a_queue(name: str) -> None:
    region = posix_ipc.SharedMemory(name, posix_ipc.O_CREX, mode=0o600, size=1024)
    Path(f"/dev/shm{name}").write_bytes(b"nnbqueue".ljust(1024, b"\0"))
    fcntl.flock(region.fd, fcntl.LOCK_SH)  # as its maker does
    with pytest.raises(InvalidArgument, match="describes no queue"):
        open_named_queue(name, ELEMENT, timeout=1)
    region.close_fd()


@pytest.mark.parametrize("mode", [0o666, 0o601, 0o602, 0o604, 0o610, 0o640])
def test_region_that_others_may_open_is_refused(name: str, mode: int) -> None:
    _kept = create_named_queue(name, ELEMENT, 8)
    Path(f"/dev/shm{name}").chmod(mode)
    before = descriptors()
    with pytest.raises(InvalidArgument, match="open to others"):
        open_named_queue(name, ELEMENT, timeout=1)
    gc.collect()  # what only garbage holds is not kept
    assert descriptors() <= before


def test_region_of_another_user_is_refused(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    _kept = create_named_queue(name, ELEMENT, 8)
    ours = os.geteuid()
    with monkeypatch.context() as patch:
        patch.setattr(os, "geteuid", lambda: ours + 1)
        with pytest.raises(InvalidArgument, match="another user"):
            open_named_queue(name, ELEMENT, timeout=1)

    def refuse(*_: object) -> None:
        raise posix_ipc.PermissionsError

    monkeypatch.setattr(posix_ipc, "SharedMemory", refuse)
    with pytest.raises(InvalidArgument, match="another user"):
        open_named_queue(name, ELEMENT, timeout=1)


def test_region_is_laid_out_as_documented_and_private(name: str) -> None:
    queue = create_named_queue(name, ELEMENT, 8, Flavor.UNSYNCHRONIZED_WRITE)
    page = max(4096, os.sysconf("SC_PAGESIZE"))
    offsets = [page, page + 64, page + 128, 1024, page + 192]
    assert [(g.fd_index, g.offset) for g in queue.descriptor.grantors] == [
        (int(number == 3), offset) for number, offset in enumerate(offsets)
    ]
    path = Path(f"/dev/shm{name}")
    data = path.read_bytes()
    assert data[:16] == struct.pack("<8sII", b"nnbqueue", os.getpid(), 0)
    assert from_record(data[16:][:RECORD_BYTES]) == queue.descriptor
    name_at = page + 192 + 80  # of the readers' sockets in event loops
    assert any(data[name_at : name_at + 16])
    assert not any(data[16 + RECORD_BYTES : name_at] + data[name_at + 16 :])
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


def test_opening_waits_until_the_queue_is_created(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = []
    clock = SimpleNamespace(
        monotonic_ns=time.monotonic_ns,
        sleep=lambda seconds: made.append((seconds, create_named_queue(name, ELEMENT, 8))),
    )
    monkeypatch.setattr("nnburst.fmq.named_queue.time", clock)
    queue = open_named_queue(name, ELEMENT, timeout=60)
    assert queue.descriptor == made[0][1].descriptor
    assert [seconds for seconds, _ in made] == [0.001]


def test_memory_that_the_kernel_does_not_have_is_refused_as_such(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise OSError(errno.ENOSPC, "no space")

    monkeypatch.setattr(os, "posix_fallocate", refuse)
    with pytest.raises(ResourceExhausted, match="cannot create shared memory of 1408 bytes"):
        create_named_queue(name, ELEMENT, 8)


def test_longest_name_is_a_name(name: str) -> None:
    longest = name + "x" * (255 - len(name))
    _kept = create_named_queue(longest, ELEMENT, 8)
    open_named_queue(longest, ELEMENT, timeout=1)
    assert not is_there(longest)


@pytest.mark.parametrize("grantors", [0, 2, 6, 2**32 - 1])
def test_region_without_a_queue_is_refused(name: str, grantors: int) -> None:
    queue = create_named_queue(name, ELEMENT, 8)
    view = queue.memories[0].map(writable=True)
    view[16:20].view("<u4")[0] = grantors
    with pytest.raises(InvalidArgument, match="describes no queue"):
        open_named_queue(name, ELEMENT, timeout=1)


def test_element_of_another_size_is_refused(name: str) -> None:
    _kept = create_named_queue(name, ELEMENT, 8)
    with pytest.raises(InvalidArgument, match="quantum is 4, expected 8"):
        open_named_queue(name, np.uint64, timeout=1)


@contextlib.contextmanager
def free_descriptors(count: int) -> Iterator[None]:
    """A time in which this process may open `count` more descriptors."""
    gc.collect()
    held = [os.dup(0) for _ in range(count)]
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    limit = max(descriptors()) + 1
    fillers = []
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (limit, before[1]))
        with contextlib.suppress(OSError):
            while True:
                fillers.append(os.dup(0))
        for fd in held:
            os.close(fd)
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, before)
        for fd in fillers:
            os.close(fd)


def test_refused_creation_leaves_no_name(name: str) -> None:
    with pytest.raises(InvalidArgument, match="spin_window is 5"):
        create_named_queue(name, ELEMENT, 8, spin_window=5)
    with pytest.raises(InvalidArgument, match="keep_unread: False, expected reopen=True"):
        create_named_queue(name, ELEMENT, 8, keep_unread=False)
    assert not is_there(name)


@pytest.mark.parametrize("flavor", list(Flavor))
@pytest.mark.parametrize("count", [0, 1])
def test_creation_that_needs_one_more_descriptor_is_refused_and_leaves_no_name(
    name: str, flavor: Flavor, count: int
) -> None:
    with free_descriptors(count):
        if (flavor, count) == (Flavor.SYNCHRONIZED_READ_WRITE, 1):
            create_named_queue(name, ELEMENT, 8, flavor).close()
        else:
            with pytest.raises(ResourceExhausted, match="Too many open files"):
                create_named_queue(name, ELEMENT, 8, flavor)
    assert not is_there(name)


@pytest.mark.parametrize(("dtype", "spin_window"), [(ELEMENT, 5), (ELEMENT, "x"), (np.uint64, 0.0)])
def test_refused_opening_leaves_the_queue_to_the_next_process(
    name: str, dtype: Any, spin_window: Any
) -> None:
    writer = create_named_queue(name, ELEMENT, 8)
    with pytest.raises(InvalidArgument):
        open_named_queue(name, dtype, timeout=1, spin_window=spin_window)
    reader = open_named_queue(name, ELEMENT, timeout=1)
    assert writer.write(numbers(0, 8))
    assert reader.read(8, timeout=1) is not None


@pytest.mark.parametrize(
    ("flavor", "count"),  # a broadcast's reader has one more descriptor, for reading only
    [
        (Flavor.SYNCHRONIZED_READ_WRITE, 0),
        (Flavor.UNSYNCHRONIZED_WRITE, 0),
        (Flavor.UNSYNCHRONIZED_WRITE, 1),
    ],
)
def test_opening_without_enough_descriptors_is_refused_and_leaves_the_queue(
    name: str, flavor: Flavor, count: int
) -> None:
    _kept = create_named_queue(name, ELEMENT, 8, flavor)
    with free_descriptors(count), pytest.raises(ResourceExhausted, match="files"):
        open_named_queue(name, ELEMENT, timeout=1)
    open_named_queue(name, ELEMENT, timeout=1)


def test_names_cannot_be_listed_without_a_descriptor(name: str) -> None:
    _kept = create_named_queue(name, ELEMENT, 8)
    for ask in (list_named_queues, remove_stale_names):
        with free_descriptors(0), pytest.raises(ResourceExhausted, match="Too many open files"):
            ask(name)
    with free_descriptors(1):
        assert [queue.name for queue in list_named_queues(name)] == [name]


@pytest.mark.parametrize(
    "bad",
    [
        *(
            "",
            "/",
            "queue",
            "/a/b",
            "/" + "x" * 255,
            "/a\0b",
            "/.",
            "/..",
            "/" + "ü" * 128,
            "/\udc80",
        ),
        *(None, 7, b"/queue"),
    ],
)
def test_names_without_the_form_of_a_name_are_refused(bad: Any) -> None:
    with pytest.raises(InvalidArgument, match="name is"):
        create_named_queue(bad, ELEMENT, 8)
    with pytest.raises(InvalidArgument, match="name is"):
        open_named_queue(bad, ELEMENT, timeout=1)


def test_refused_regions_leave_no_descriptor(name: str) -> None:
    queue = create_named_queue(name, ELEMENT, 8)
    before = descriptors()
    for _ in range(20):
        with pytest.raises(InvalidArgument):
            open_named_queue(name, np.uint64, timeout=1)
    gc.collect()  # what only garbage holds is not kept
    assert descriptors() <= before
    queue.close()


def test_name_that_stands_for_another_queue_by_now_is_left_alone(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = create_named_queue(name, ELEMENT, 4)
    made, real = [first], named_queue._descriptor

    def meanwhile(view: Any) -> Any:
        posix_ipc.unlink_shared_memory(name)  # another process opens the queue ...
        made.append(create_named_queue(name, ELEMENT, 8))  # ... and its creator makes a new one
        return real(view)

    monkeypatch.setattr(named_queue, "_descriptor", meanwhile)
    with pytest.raises(DeviceUnavailable, match="another process"):
        open_named_queue(name, ELEMENT, timeout=1)
    monkeypatch.setattr(named_queue, "_descriptor", real)
    assert open_named_queue(name, ELEMENT, timeout=1).capacity == 8


def test_without_posix_ipc_a_queue_with_a_name_is_refused_with_what_is_missing(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "posix_ipc", None)
    with pytest.raises(DeviceUnavailable, match="named queues need posix_ipc"):
        create_named_queue(name, ELEMENT, 8)
    with pytest.raises(DeviceUnavailable, match="named queues need posix_ipc"):
        open_named_queue(name, ELEMENT, timeout=1)


def test_nothing_but_a_named_queue_imports_posix_ipc() -> None:
    """Every module that a client or a driver loads, in a Python without it."""
    program = """
import importlib, pkgutil, sys
sys.modules["posix_ipc"] = None
import nnburst.client, nnburst.driver, nnburst.fmq, nnburst.control
for package in (nnburst.client, nnburst.driver, nnburst.fmq, nnburst.control):
    for module in pkgutil.walk_packages(package.__path__, package.__name__ + "."):
        if not module.name.endswith("__main__"):
            importlib.import_module(module.name)
"""
    subprocess.run([sys.executable, "-c", program], check=True, timeout=60)


def test_named_queue_carries_messages_and_has_one_writer(name: str) -> None:
    writer = create_named_queue(name, bytes, 256)
    reader = open_named_queue(name, bytes, timeout=1)
    assert writer.send(b"message")
    assert reader.receive(timeout=1) == b"message"
    with pytest.raises(BadState, match="writer already"):
        reader.send(b"another")
    writer.close()
    with pytest.raises(Closed):
        reader.receive(timeout=3600)
