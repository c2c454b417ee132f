"""Named queues: for two cooperating processes of one user that share no socket.

    queue = create_named_queue("/camera", np.dtype("<u4"), 1024)        # one process
    queue = open_named_queue("/camera", np.dtype("<u4"), timeout=5)     # the other one

    0        8        12       16                  a multiple of 64
    | magic  | length | 0      | descriptor (JSON) | the queue's parts … |

The name goes as soon as the second process has opened it: nothing is left in /dev/shm. If that
process never comes, its creator removes the name (`posix_ipc.unlink_shared_memory`). POSIX shared
memory cannot be sealed, so its holder can shrink it under its reader; a driver never accepts
it, and neither should anyone who does not trust the other side.

Nothing else needs `posix_ipc`, and it has not wheels for every Python: it is imported when a queue is named.
"""

from __future__ import annotations

import os
import stat
import time
from typing import Any, Final

import msgspec
import numpy as np
import numpy.typing as npt

from nnburst._native import ffi, lib
from nnburst.fmq.descriptor import Flavor, MQDescriptor, check, layout
from nnburst.fmq.event_flag import timeout_ns
from nnburst.fmq.message_queue import MessageQueue
from nnburst.fmq.shared_memory import Bytes, SharedMemory
from nnburst.hal.errors import DeviceUnavailable, InvalidArgument, ResourceExhausted

#: Written last: the region is complete once it is there.
_MAGIC: Final = int.from_bytes(b"nnbqueue", "little")
_HEADER: Final = 1024
_TEXT_AT: Final = 16
_POLL_SECONDS: Final = 0.001
_decode: Final = msgspec.json.Decoder(MQDescriptor).decode


def create_named_queue(
    name: str,
    dtype: npt.DTypeLike,
    capacity: int,
    flavor: Flavor = Flavor.SYNCHRONIZED_READ_WRITE,
) -> MessageQueue:
    """Create a queue that another process of this user can open once.

    Args:
        name: "/" and 1 to 254 characters without another "/".
        dtype: element type; its item size is the quantum.
        capacity: elements.
        flavor: synchronized or not.

    Raises:
        InvalidArgument: the name or a size makes no sense.
        DeviceUnavailable: the name is taken, or posix_ipc is not installed.
        ResourceExhausted: the kernel has no memory left.
    """
    path, kind = _checked(name), np.dtype(dtype)
    descriptor = layout(kind.itemsize, capacity, flavor, start=_HEADER)
    size = descriptor.size_bytes()
    posix_ipc = _posix_ipc()
    try:
        # A name that exists is never taken over: O_CREX fails, whatever its owner.
        region = posix_ipc.SharedMemory(path, posix_ipc.O_CREX, mode=0o600, size=size)
    except posix_ipc.ExistentialError:
        raise DeviceUnavailable(f"name: {name} exists already") from None
    except (OSError, ValueError) as error:
        raise ResourceExhausted(f"cannot create shared memory of {size} bytes: {error}") from error
    memory = SharedMemory(region.fd, size)
    view = memory.map(writable=True)
    text = msgspec.json.encode(descriptor)
    view[_TEXT_AT : _TEXT_AT + len(text)] = np.frombuffer(text, np.uint8)
    view[8:12].view("<u4")[0] = len(text)
    lib.nnb_store_release_u64(_magic_of(view), _MAGIC)  # all before it is visible to who reads it
    return MessageQueue(descriptor, [memory], [view], kind)


def open_named_queue(name: str, dtype: npt.DTypeLike, *, timeout: float) -> MessageQueue:
    """Open a queue that another process of this user creates, and take its name away.

    Args:
        name: as given to `create_named_queue`.
        dtype: element type that is expected.
        timeout: seconds to wait until the queue is there.

    Raises:
        DeviceUnavailable: it was not created in time, or another process was faster, or posix_ipc is
            not installed.
        InvalidArgument: it belongs to another user, or is not a queue of this element type.
    """
    path, kind = _checked(name), np.dtype(dtype)
    deadline = time.monotonic_ns() + timeout_ns(timeout)
    while (found := _try_open(path)) is None:
        if time.monotonic_ns() >= deadline:
            raise DeviceUnavailable(f"name: {name} was not created within {timeout} s")
        time.sleep(_POLL_SECONDS)
    memory, view = found
    descriptor = _descriptor(view)
    check(descriptor, [memory.size], kind.itemsize)
    if not _unlink(path, memory.fd):
        memory.close()
        raise DeviceUnavailable(f"name: another process has opened {name} just now")
    return MessageQueue(descriptor, [memory], [view], kind)


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
    if not name.startswith("/") or "/" in name[1:] or not 1 < len(name) < 256 or "\0" in name:
        raise InvalidArgument(f"name is {name!r}, expected '/' and 1 to 254 other characters")
    return name


def _try_open(name: str) -> tuple[SharedMemory, Bytes] | None:
    """The region called `name`, complete; None if it is not there yet."""
    posix_ipc = _posix_ipc()
    try:
        fd = posix_ipc.SharedMemory(name).fd
    except posix_ipc.ExistentialError:
        return None
    except posix_ipc.PermissionsError:
        raise InvalidArgument(f"name: {name} belongs to another user") from None
    status = os.fstat(fd)
    if status.st_uid != os.getuid() or stat.S_IMODE(status.st_mode) & 0o077:
        os.close(fd)
        raise InvalidArgument(f"name: {name} belongs to another user or is open to others")
    if status.st_size < _HEADER:
        os.close(fd)
        return None
    memory = SharedMemory(fd, status.st_size)
    view = memory.map(writable=True)
    if lib.nnb_load_acquire_u64(_magic_of(view)) != _MAGIC:
        memory.close()
        return None
    return memory, view


def _magic_of(view: Bytes) -> Any:  # noqa: ANN401 - a cffi pointer
    return ffi.cast("nnb_atomic_u64 *", view.ctypes.data)


def _unlink(name: str, fd: int) -> bool:
    """Take a name away; False if it does not stand for the region `fd` any more.

    Another opener may have taken it away, and a creator given it to a new queue since.
    """
    posix_ipc = _posix_ipc()
    try:
        now = posix_ipc.SharedMemory(name).fd
        same = os.path.sameopenfile(now, fd)
        os.close(now)
        if same:
            posix_ipc.unlink_shared_memory(name)
    except posix_ipc.ExistentialError:
        return False
    return same


def _descriptor(view: Bytes) -> MQDescriptor:
    # TRUST: copied once; decoding checks types, `check` the rest.
    header = view[:_HEADER].tobytes()
    length = int.from_bytes(header[8:12], "little")
    try:
        return _decode(header[_TEXT_AT:][:length])
    except msgspec.MsgspecError as error:
        raise InvalidArgument(f"the region describes no queue: {error}") from error
