"""System shared memory that clients on this machine have registered.

A POSIX region cannot be sealed: mapped, one that shrinks would end this process by SIGBUS. It is read and
written through its descriptor instead, which costs one copy as well and only comes up short.
"""

from __future__ import annotations

import os
import re
import stat
import threading
from dataclasses import dataclass
from typing import Final

from nnburst.hal.errors import InvalidArgument, ResourceExhausted

#: Regions at once, over all clients: each holds a descriptor.
MAX_REGIONS: Final = 64
#: A name in one directory: no path, nothing hidden, nothing above.
_KEY: Final = re.compile(r"/?[A-Za-z0-9_-]{1,200}")
_FOLDER: Final = "/dev/shm"  # noqa: S108 - where Linux has POSIX shared memory


@dataclass(frozen=True)
class Region:
    """A part of a shared memory object.

    Attributes:
        key: name of the object.
        offset: where the part begins, in bytes.
        size: of the part, in bytes.
        fd: of the object.
    """

    key: str
    offset: int
    size: int
    fd: int

    def read(self, offset: int, size: int) -> bytes:
        """Bytes of the part.

        Raises:
            InvalidArgument: the part is not that long, or the object has become shorter.
        """
        self._check(offset, size)
        data = os.pread(self.fd, size, self.offset + offset)
        if len(data) != size:
            raise InvalidArgument(f"shared memory {self.key}: {len(data)} bytes left of {size}")
        return data

    def write(self, offset: int, data: bytes) -> None:
        """Put `data` into the part.

        Raises:
            InvalidArgument: the part is not that long, or the object has become shorter.
        """
        self._check(offset, len(data))
        if os.fstat(self.fd).st_size < self.offset + offset + len(data):
            raise InvalidArgument(f"shared memory {self.key} was cut short after it was registered")
        os.pwrite(self.fd, data, self.offset + offset)

    def _check(self, offset: int, size: int) -> None:
        if offset < 0 or size < 0 or offset + size > self.size:
            raise InvalidArgument(
                f"shared memory {self.key}: {size} bytes at {offset}, the region has {self.size}"
            )


class Regions:
    """Regions by the names that clients gave them. Thread-safe."""

    def __init__(self) -> None:
        """Begin with none."""
        self._regions: dict[str, Region] = {}
        self._lock = threading.Lock()

    def register(self, name: str, key: str, offset: int, size: int) -> None:
        """Open an object of this user in /dev/shm.

        Raises:
            InvalidArgument: the name is taken, or the key names no object of this user of such a size.
            ResourceExhausted: there are too many.
        """
        if not _KEY.fullmatch(key):
            raise InvalidArgument(f"key: {key!r}, expected a name of letters, digits, '_' and '-'")
        fd = _open(key, offset + size) if offset >= 0 and size > 0 else -1
        if fd < 0:
            raise InvalidArgument(
                f"byte_size: {size} at {offset}, expected at least 1 at 0 or more"
            )
        with self._lock:
            if name not in self._regions and len(self._regions) < MAX_REGIONS:
                self._regions[name] = Region(key, offset, size, fd)
                return
            taken = name in self._regions
        os.close(fd)
        if taken:
            raise InvalidArgument(f"name: a region {name!r} is registered already")
        raise ResourceExhausted(f"{MAX_REGIONS} regions are registered, as many as may be")

    def unregister(self, name: str) -> None:
        """Forget a region, or all if `name` is empty; an unknown one is ignored."""
        with self._lock:
            names = [name] if name else list(self._regions)
            # Under the lock, like reads and writes: a number that is closed may be another file's at once.
            for region in [self._regions.pop(each) for each in names if each in self._regions]:
                os.close(region.fd)

    def read(self, name: str, offset: int, size: int) -> bytes:
        """Bytes of a region; see `Region.read`."""
        with self._lock:
            return self._find(name).read(offset, size)

    def write(self, name: str, offset: int, data: bytes) -> None:
        """Put bytes into a region; see `Region.write`."""
        with self._lock:
            self._find(name).write(offset, data)

    def listed(self, name: str = "") -> dict[str, Region]:
        """Regions by name: all, or the one that is asked for.

        Raises:
            InvalidArgument: there is no such region.
        """
        with self._lock:
            return {name: self._find(name)} if name else dict(self._regions)

    def _find(self, name: str) -> Region:
        if name not in self._regions:
            raise InvalidArgument(f"shared memory: no region {name!r} is registered")
        return self._regions[name]


def _open(key: str, end: int) -> int:
    path = f"{_FOLDER}/{key.removeprefix('/')}"
    try:
        fd = os.open(path, os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK)
    except OSError as error:
        raise InvalidArgument(f"key: {key} cannot be opened: {error.strerror}") from None
    status = os.fstat(fd)
    if not stat.S_ISREG(status.st_mode) or status.st_uid != os.getuid() or status.st_size < end:
        os.close(fd)
        raise InvalidArgument(
            f"key: {key} is not shared memory of this user with at least {end} bytes"
        )
    return fd
