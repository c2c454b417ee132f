"""Passes a queue to another process: by a name, over a Unix socket, or by inheritance.

    send_queue(connection, queue)                       # one process
    queue = receive_queue(connection, HEADER)           # the other one

    text, fds = inheritance(queue)
    subprocess.Popen(["camera", text], pass_fds=fds)    # one process
    queue = inherit_queue(sys.argv[1], HEADER)          # the other one

Over a socket, a queue is sent as a record of `RECORD_BYTES` bytes, with one or two descriptors beside its
first byte.

A name is for cooperating processes of one user that share no socket.

    queue = create_named_queue("/camera", np.dtype("<u4"), 1024)        # one process
    queue = open_named_queue("/camera", np.dtype("<u4"), timeout=5)     # the other one

    0        8        12       16                       1024       a multiple of 64, or of a page
    | magic  | pid    | 0      | descriptor (a record)  | flag     | the queue's parts …          |

The name is removed as soon as the second process has opened the queue. If more processes may open it (an
unsynchronized queue, or `reopen=True`), the name is removed when its maker closes it or ends. A killed
process leaves its name, but its lock on the memory is gone, so the next `create_named_queue` and
`nnburst fmq --remove` detect that the name is stale.

POSIX shared memory cannot be sealed, so a process can shrink it while another one reads it. A driver never
accepts it, and no program should accept it from a process that it does not trust.

Only this module needs `posix_ipc`, which lacks wheels for some versions of Python: so it is imported late.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import socket
import stat
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import msgspec
import numpy as np

from nnburst._native import ffi, lib
from nnburst.fmq.event_flag import timeout_ns
from nnburst.fmq.message_queue import MessageQueue, element_type, prepare_ends
from nnburst.fmq.queue_end import SPIN_WINDOW, checked_spin_window
from nnburst.fmq.queue_loop import PATIENCE
from nnburst.fmq.shared_memory import (
    EVENT_FLAG_BYTES,
    RECORD_BYTES,
    Bytes,
    Flavor,
    MQDescriptor,
    SharedMemory,
    check,
    checked_size,
    close_received,
    from_record,
    layout,
    to_record,
)
from nnburst.hal.errors import (
    Closed,
    DeviceUnavailable,
    InvalidArgument,
    MissedDeadline,
    ResourceExhausted,
)
from nnburst.hal.peer import receive_fds
from nnburst.hal.utils import Scarce

if TYPE_CHECKING:
    import numpy.typing as npt


#: Mark of a complete region; only these get a name.
_MAGIC: Final = int.from_bytes(b"nnbqueue", "little")
_HEADER: Final = 1024
_RECORD_AT: Final = 16
_FOLDER: Final = Path("/dev/shm")  # noqa: S108 - where Linux keeps POSIX shared memory
_POLL_SECONDS: Final = 0.001
_PORTION: Final = 64 << 20  # bytes; a signal makes the kernel give back a portion that it has begun


class NamedQueue(msgspec.Struct, frozen=True):
    """A queue of this user that has a name.

    Attributes:
        name: the name, as given to `create_named_queue`.
        pid: number of the process that made it.
        is_stale: whether that process has ended without removing the name.
        flavor: synchronized or not.
        quantum: bytes of an element.
        capacity: number of elements.
    """

    name: str
    pid: int
    is_stale: bool
    flavor: Flavor
    quantum: int
    capacity: int


def create_named_queue(
    name: str,
    dtype: npt.DTypeLike,
    capacity: int,
    flavor: Flavor = Flavor.SYNCHRONIZED_READ_WRITE,
    *,
    reopen: bool = False,
    keep_unread: bool = True,
    spin_window: float = SPIN_WINDOW,
) -> MessageQueue:
    """Create a queue that another process of this user can open once; any number, if it is unsynchronized.

    A stale name is reused. The object's `close`, or the end of this process, removes the name if it still
    exists.

    Args:
        name: "/" and 1 to 254 bytes of UTF-8 without another "/"; not "/." or "/..".
        dtype: element type; its item size is the quantum. `bytes` for messages of any length.
        capacity: number of elements; bytes for messages.
        flavor: synchronized or not.
        reopen: whether other processes may replace ends that have gone; the name is kept for them.
        keep_unread: whether a reader that replaces another one begins with the unread elements; False only
            with `reopen`.
        spin_window: seconds that a wait spins before it sleeps if no rhythm is known, 0 to 1.

    Raises:
        InvalidArgument: the name or a size is invalid, or as for `MessageQueue.create`.
        DeviceUnavailable: the name is in use, or posix_ipc is not installed.
        ResourceExhausted: the kernel has no memory left, or this process may have no more descriptors.
    """
    path, kind = _checked(name), element_type(dtype)
    spin_window = checked_spin_window(spin_window)
    apart = flavor == Flavor.UNSYNCHRONIZED_WRITE
    start = max(4096, os.sysconf("SC_PAGESIZE")) if apart else _HEADER
    descriptor = layout(
        kind.itemsize or 1, capacity, flavor, ends=True, start=start, flag_start=_HEADER
    )
    size = descriptor.size_bytes()
    _posix_ipc()
    whole = SharedMemory(_create(size), size)
    fcntl.flock(whole.fd, fcntl.LOCK_SH)  # as long as this process or a child has the queue
    view = whole.map(writable=True)
    prepare_ends(view, descriptor, reopen=reopen, keep_unread=keep_unread)
    view[8:12].view("<u4")[0] = os.getpid()
    view[_RECORD_AT : _RECORD_AT + RECORD_BYTES] = np.frombuffer(to_record(descriptor), np.uint8)
    lib.nnb_store_release_u64(_magic_of(view), _MAGIC)
    memories = _apart(whole, descriptor)
    views = [view, *(more.map(writable=True) for more in memories[1:])]
    queue = MessageQueue(descriptor, memories, views, kind, spin_window)
    status = os.fstat(whole.fd)
    queue._when_closed(partial(_take_away, path, (status.st_dev, status.st_ino), os.getpid()))
    try:  # complete: a failure or a kill leaves no name of a half-made queue
        _give_name(path, whole.fd)
    except BaseException:
        queue.close()
        raise
    return queue


def open_named_queue(
    name: str, dtype: npt.DTypeLike, *, timeout: float, spin_window: float = SPIN_WINDOW
) -> MessageQueue:
    """Open a queue that another process of this user creates, and remove its name unless others may open it.

    Args:
        name: the name that was given to `create_named_queue`.
        dtype: the expected element type.
        timeout: seconds to wait until the queue exists; a stale queue counts as absent.
        spin_window: as for `create_named_queue`.

    Raises:
        DeviceUnavailable: it was not created in time, or another process opened it first, or posix_ipc is
            not installed.
        InvalidArgument: it belongs to another user, or is not a queue of this element type.
        ResourceExhausted: this process may have no more descriptors, or no more memory.
    """
    path, kind = _checked(name), element_type(dtype)
    spin_window = checked_spin_window(spin_window)
    deadline = time.monotonic_ns() + timeout_ns(timeout)
    while (found := _try_open(path)) is None:
        if time.monotonic_ns() >= deadline:
            raise DeviceUnavailable(f"name: {name} was not created within {timeout} s")
        time.sleep(_POLL_SECONDS)
    memory, view = found
    descriptor = _descriptor(view)
    check(descriptor, [memory.size, memory.size], kind.itemsize or 1)
    if descriptor.is_broadcast:
        memories = _apart(memory, descriptor)
        views = [more.map_memory(writable=more.is_writable) for more in memories]
        return MessageQueue(descriptor, memories, views, kind, spin_window)
    # Before the name goes, since this may fail.
    queue = MessageQueue(descriptor, [memory], [view], kind, spin_window)
    if _is_for_more(view, descriptor):
        fcntl.flock(memory.fd, fcntl.LOCK_SH)
    elif not _unlink(path, memory.fd):
        queue.close()
        raise DeviceUnavailable(f"name: another process has opened {name} just now")
    return queue


def list_named_queues(prefix: str = "/") -> list[NamedQueue]:
    """List the queues of this user that have a name; see `nnburst fmq`.

    Args:
        prefix: the beginning of their names.

    Raises:
        ResourceExhausted: this process may have no more descriptors.
    """
    return [queue for queue, _ in _all_named(prefix)]


def remove_stale_names(prefix: str = "/") -> list[NamedQueue]:
    """Remove the names that killed processes have left.

    Args:
        prefix: the beginning of the names.

    Returns:
        The queues whose names were removed; their memory is freed with the last process that maps it.

    Raises:
        ResourceExhausted: this process may have no more descriptors.
    """
    removed = []
    for queue, fd in _all_named(prefix):
        if queue.is_stale and _lock(fd) and _unlink(queue.name, fd):
            removed.append(queue)
    return removed


def _all_named(prefix: str) -> Iterator[tuple[NamedQueue, int]]:
    """Iterate over named queues, each with a descriptor that is open until the next one."""
    scarce = Scarce("named queues cannot be listed")
    with scarce:
        paths = sorted(_FOLDER.iterdir())
    for path in paths:
        if not f"/{path.name}".startswith(prefix):
            continue
        with contextlib.suppress(OSError, InvalidArgument), contextlib.ExitStack() as stack:
            status = path.stat(follow_symlinks=False)
            if not stat.S_ISREG(status.st_mode) or status.st_uid != os.geteuid():
                continue
            with scarce:
                fd = os.open(path, os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC)
            stack.callback(os.close, fd)
            header = os.pread(fd, _HEADER, 0)
            if int.from_bytes(header[:8], "little") != _MAGIC:
                continue
            # TRUST: copied once, and only displayed.
            descriptor = from_record(header[_RECORD_AT : _RECORD_AT + RECORD_BYTES])
            check(descriptor, [status.st_size, status.st_size], None)
            is_stale = _lock(fd)
            fcntl.flock(fd, fcntl.LOCK_UN)
            found = NamedQueue(
                f"/{path.name}",
                int.from_bytes(header[8:12], "little"),
                is_stale,
                Flavor(descriptor.flags),
                descriptor.quantum,
                descriptor.capacity,
            )
            yield found, fd


def _create(size: int) -> int:
    """Create memory without a name in the folder of named memory, with all its pages.

    A write into a page that a full folder cannot give would be a SIGBUS.
    """
    try:
        fd = os.open(_FOLDER, os.O_TMPFILE | os.O_RDWR | os.O_CLOEXEC, 0o600)
        try:
            for start in range(0, size, _PORTION):
                os.posix_fallocate(fd, start, min(_PORTION, size - start))
        except OSError:
            os.close(fd)
            raise
    except OSError as error:
        text = f"cannot create shared memory of {size} bytes: {error.strerror}"
        raise ResourceExhausted(text) from error
    return fd


def _give_name(name: str, fd: int) -> None:
    """Give memory a name that is unused or stale."""
    for is_last in (False, True):
        try:
            # This fails if the name exists.
            os.link(f"/proc/self/fd/{fd}", _path(name), src_dir_fd=fd)  # linkat follows the link
        except FileExistsError:
            if is_last or not _take_away_stale(name):
                raise DeviceUnavailable(f"name: {name} exists already") from None
        except OSError as error:
            raise ResourceExhausted(f"name: {name} cannot be given: {error.strerror}") from error
        else:
            return


def _take_away_stale(name: str) -> bool:
    found = _try_open(name, stale=True)
    if found is None:
        return False
    with found[0] as memory:
        return _unlink(name, memory.fd)


def _lock(fd: int) -> bool:
    """Try to lock the region until `fd` is closed; True if no live process has it locked."""
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _apart(whole: SharedMemory, descriptor: MQDescriptor) -> list[SharedMemory]:
    """Split a region as readers may map it: of an unsynchronized queue, only the flag is writable."""
    if not descriptor.is_broadcast:
        return [whole]
    with Scarce("the queue's memory cannot be opened for reading only"):
        fd = os.open(f"/proc/self/fd/{whole.fd}", os.O_RDONLY | os.O_CLOEXEC)
    whole_size, whole.size = whole.size, _HEADER + EVENT_FLAG_BYTES
    return [SharedMemory(fd, whole_size), whole]


def _posix_ipc() -> Any:  # noqa: ANN401 - a module without types
    try:
        import posix_ipc
    except ImportError as error:
        raise DeviceUnavailable(
            f"named queues need posix_ipc, which is not installed ({error}): `pip install posix_ipc`"
            " compiles it; other queues go without"
        ) from None
    return posix_ipc


def _checked(name: str) -> str:
    try:
        rest = name.encode()[1:]
    except (AttributeError, UnicodeEncodeError):
        rest = b""
    if (
        not 0 < len(rest) < 255
        or rest in (b".", b"..")
        or b"/" in rest
        or b"\0" in rest
        or name[0] != "/"
    ):
        raise InvalidArgument(f"name is {name!r}, expected '/' and 1 to 254 other bytes of UTF-8")
    return name


def _path(name: str) -> Path:
    return _FOLDER / name[1:]


def _open(name: str) -> int | None:
    """Open the memory called `name`; None if nothing, or a folder, a link or a socket, is called so."""
    posix_ipc = _posix_ipc()
    try:
        return int(posix_ipc.SharedMemory(name).fd)
    except (posix_ipc.ExistentialError, ValueError):  # ValueError: a folder
        return None
    except posix_ipc.PermissionsError:
        raise InvalidArgument(f"name: {name} belongs to another user") from None
    except OSError as error:
        if error.errno in (errno.ELOOP, errno.ENXIO):  # a link, a socket
            return None
        raise ResourceExhausted(f"name: {name} cannot be opened: {error}") from error


def _try_open(name: str, *, stale: bool = False) -> tuple[SharedMemory, Bytes] | None:
    """Open the complete region called `name`, in use or (`stale`) stale; None if there is no such region."""
    fd = _open(name)
    if fd is None:
        return None
    status = os.fstat(fd)
    if status.st_uid != os.geteuid() or stat.S_IMODE(status.st_mode) & 0o077:
        os.close(fd)
        raise InvalidArgument(f"name: {name} belongs to another user or is open to others")
    if status.st_size < _HEADER:
        os.close(fd)
        return None
    memory = SharedMemory(fd, status.st_size)
    view = memory.map(writable=True)
    if lib.nnb_load_acquire_u64(_magic_of(view)) != _MAGIC or _lock(fd) != stale:
        memory.close()
        return None
    return memory, view


def _magic_of(view: Bytes) -> Any:  # noqa: ANN401 - a cffi pointer
    return ffi.cast("nnb_atomic_u64 *", view.ctypes.data)


def _is_for_more(view: Bytes, descriptor: MQDescriptor) -> bool:
    """Whether the name is kept for processes that replace an end."""
    # TRUST: a byte of the peer affects only the name.
    return len(descriptor.grantors) == 5 and view[descriptor.grantors[4].offset + 8] != 0


def _take_away(name: str, identity: tuple[int, int], maker: int) -> None:
    """Remove a queue's name if it still belongs to that queue; does nothing in a forked child."""
    if os.getpid() != maker:
        return
    with contextlib.suppress(OSError):
        status = _path(name).lstat()
        if (status.st_dev, status.st_ino) == identity:
            _path(name).unlink()


def _unlink(name: str, fd: int) -> bool:
    """Remove a name; False if it does not belong to the region `fd` any more.

    Another process may have removed it meanwhile, and another one given it to a new queue. The name may be
    one that is no UTF-8, which posix_ipc refuses and C can give.
    """
    try:
        same = os.path.samestat(_path(name).lstat(), os.fstat(fd))
        if same:
            _path(name).unlink()
    except FileNotFoundError:
        return False
    return same


def _descriptor(view: Bytes) -> MQDescriptor:
    # TRUST: copied once; `check` looks at all of it.
    return from_record(view[_RECORD_AT : _RECORD_AT + RECORD_BYTES].tobytes())


_MOST_FDS: Final = 2


def send_queue(connection: socket.socket, queue: MessageQueue) -> None:
    """Send a queue to the process at the other end of a Unix socket; this object stays usable.

    Args:
        connection: a connected Unix stream socket.
        queue: a queue without a name.

    Raises:
        InvalidArgument: `connection` is no Unix socket; or the queue has a name: its memory cannot be sealed.
        OSError: the socket raised it; the socket's own timeout applies.
    """
    _refuse_other_sockets(connection)
    _refuse_named(queue)
    record = to_record(queue.descriptor)
    sent = socket.send_fds(connection, [record], [memory.fd for memory in queue.memories])
    if sent < len(
        record
    ):  # without bytes it would be a packet of its own on other sockets than streams
        connection.sendall(record[sent:])


def receive_queue(
    connection: socket.socket,
    dtype: npt.DTypeLike,
    *,
    timeout: float = PATIENCE,
    spin_window: float = SPIN_WINDOW,
) -> MessageQueue:
    """Receive a queue that the other process has sent; later bytes of the socket stay unread.

    Args:
        connection: a connected Unix stream socket.
        dtype: the expected element type.
        timeout: seconds to wait for it.
        spin_window: as for `MessageQueue.create`.

    Raises:
        MissedDeadline: it did not come in time; the socket is unusable then if a part came.
        Closed: the other process has closed the socket.
        ResourceExhausted: this process may have no more descriptors, or no more memory.
        InvalidArgument: `connection` is no Unix socket; or the received bytes are not a queue of this element
            type.
    """
    _refuse_other_sockets(connection)
    deadline = time.monotonic_ns() + timeout_ns(timeout)
    before = connection.gettimeout()
    fds: list[int] = []
    record = b""
    try:
        while len(record) < RECORD_BYTES:
            connection.settimeout(max((deadline - time.monotonic_ns()) * 1e-9, 1e-6))
            # TRUST: at most two descriptors are accepted; the kernel closes others.
            part, more, flags = receive_fds(connection, RECORD_BYTES - len(record), _MOST_FDS)
            fds += more
            # The kernel leaves out those beyond the most, too.
            if flags & socket.MSG_CTRUNC and len(fds) < _MOST_FDS:
                raise ResourceExhausted(
                    "this process has no descriptors left for those of the queue"
                )
            if not part:
                raise Closed("the other process has closed the socket")
            record += part
        # TRUST: adopted after a check of their seals; `open` checks the descriptor.
        memories = []
        while fds:
            memories.append(SharedMemory.adopt(fds.pop(0)))
        return MessageQueue.open(from_record(record), memories, dtype, spin_window=spin_window)
    except TimeoutError:
        raise MissedDeadline(f"no queue came within {timeout} s") from None
    finally:
        for fd in fds:
            close_received(fd)
        with contextlib.suppress(OSError):
            connection.settimeout(before)


def inheritance(queue: MessageQueue) -> tuple[str, tuple[int, ...]]:
    """Make a text and descriptors by which a program that this process starts can open a queue.

    Args:
        queue: a queue without a name; it must stay open until the program has been started.

    Returns:
        A text for its command line or environment, and the descriptors that it must inherit (`pass_fds`).

    Raises:
        InvalidArgument: the queue has a name.
    """
    _refuse_named(queue)
    fds = tuple(memory.fd for memory in queue.memories)
    return ",".join((to_record(queue.descriptor).hex(), *map(str, fds))), fds


def inherit_queue(
    text: str, dtype: npt.DTypeLike, *, spin_window: float = SPIN_WINDOW
) -> MessageQueue:
    """Open a queue that this process has inherited, and own its descriptors.

    Args:
        text: the text from `inheritance`.
        dtype: the expected element type.
        spin_window: as for `MessageQueue.create`.

    Raises:
        InvalidArgument: the text or a descriptor is not that of a queue of this element type.
    """
    try:
        record, *numbers = text.split(",")
        descriptor, fds = from_record(bytes.fromhex(record)), [int(number) for number in numbers]
    except (AttributeError, TypeError, ValueError) as error:
        raise InvalidArgument(f"text is {text!r}, expected what `inheritance` gave") from error
    for fd in fds:
        try:
            # Before `adopt`, which closes what it refuses: this may be another file of the program.
            checked_size(fd)
            os.set_inheritable(fd, False)
        except (OSError, OverflowError, ValueError) as error:
            raise InvalidArgument(
                f"text: descriptor {fd} is not that of a queue, was it in pass_fds? {error}"
            ) from error
    memories = [SharedMemory.adopt(fd) for fd in fds]
    return MessageQueue.open(descriptor, memories, dtype, spin_window=spin_window)


def _refuse_other_sockets(connection: object) -> None:
    """Refuse what carries no descriptors: the kernel drops those that are sent over other sockets."""
    if not isinstance(connection, socket.socket) or connection.family != socket.AF_UNIX:
        raise InvalidArgument(f"connection: {connection!r}, expected a Unix socket")


def _refuse_named(queue: MessageQueue) -> None:
    if not all(memory.is_sealed for memory in queue.memories):
        raise InvalidArgument(
            "queue: its memory has a name, and cannot be sealed; open it by its name"
        )
