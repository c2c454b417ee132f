"""Keeps system shared memory that clients on this machine have registered, with the rights of their users.

The front's own user may open more objects than a caller may. So an object is opened for a caller only if that
caller could have opened it. Regions belong to the user that registered them, and other users cannot find
them.

A POSIX region cannot be sealed. If it were mapped and shrank, SIGBUS would end this process. So it is read
and written through its descriptor, which also costs one copy, and only returns fewer bytes then.
"""

from __future__ import annotations

import errno
import os
import re
import stat
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Final

from nnburst.hal.errors import InvalidArgument, ResourceExhausted
from nnburst.hal.utils import Scarce

#: Greatest numbers of regions, for a user and in all; each holds a descriptor.
MAX_REGIONS: Final = 64
MAX_REGIONS_OF_ALL: Final = 256
#: A plain file name: not a path, not hidden, not a parent folder.
KEY: Final = re.compile(r"/?[A-Za-z0-9_-]{1,200}")
#: Permission to read and write for group and others.
_ALL_WRITE: Final = stat.S_IRGRP | stat.S_IWGRP | stat.S_IROTH | stat.S_IWOTH
#: Errors if a file has no access control list, or the file system supports none.
_NO_LIST: Final = (errno.ENODATA, errno.EOPNOTSUPP)
_FOLDER: Final = "/dev/shm"  # noqa: S108 - the folder of POSIX shared memory


@dataclass(frozen=True)
class Region:
    """A part of a shared memory object.

    Attributes:
        key: name of the object.
        offset: offset of the part in bytes.
        size: size of the part in bytes.
        fd: descriptor of the object.
    """

    key: str
    offset: int
    size: int
    fd: int

    def read(self, offset: int, size: int) -> bytes:
        """Read bytes of the part.

        Raises:
            InvalidArgument: the range exceeds the part, or the object has become shorter.
        """
        self._check(offset, size)
        data = os.pread(self.fd, size, self.offset + offset)
        if len(data) != size:
            raise InvalidArgument(f"shared memory {self.key}: {len(data)} bytes left of {size}")
        return data

    def write(self, offset: int, data: bytes) -> None:
        """Write `data` into the part.

        Raises:
            InvalidArgument: the range exceeds the part, or the object has become shorter.
            ResourceExhausted: the file system has no room left for a sparse object.
        """
        self._check(offset, len(data))
        if os.fstat(self.fd).st_size < self.offset + offset + len(data):
            raise InvalidArgument(f"shared memory {self.key} was cut short after it was registered")
        at, rest = self.offset + offset, memoryview(data)
        with Scarce(f"shared memory {self.key}"):
            while rest:  # one call may write a part
                done = os.pwrite(self.fd, rest, at)
                at, rest = at + done, rest[done:]

    def _check(self, offset: int, size: int) -> None:
        if offset < 0 or size < 0 or offset + size > self.size:
            raise InvalidArgument(
                f"shared memory {self.key}: {size} bytes at {offset}, the region has {self.size}"
            )


class Regions:
    """The regions of all users, by user and name. Thread-safe."""

    def __init__(self, trusted: str = "", most: int = 1 << 24) -> None:
        """Start without regions.

        Args:
            most: greatest size in bytes of a tensor whose shape its request chooses.
            trusted: prefix of keys; objects of this process's user with such keys are open to every caller,
                known or not; empty for none.
        """
        self.trusted = trusted.removeprefix("/")
        self.most = most
        self._regions: dict[int | None, dict[str, Region]] = {}
        self._lock = threading.Lock()

    def of(self, user: int | None) -> UserRegions | None:
        """The regions that a caller may use; None for an unknown user, unless some keys are trusted."""
        return UserRegions(self, user) if user is not None or self.trusted else None

    def _add(self, user: int | None, name: str, region: Region) -> None:
        with self._lock:
            own = self._regions.setdefault(user, {})
            full = (
                len(own) >= MAX_REGIONS
                or sum(map(len, self._regions.values())) >= MAX_REGIONS_OF_ALL
            )
            if name not in own and not full:
                own[name] = region
                return
            taken = name in own
            if not own:
                del self._regions[user]
        os.close(region.fd)
        if taken:
            raise InvalidArgument(f"name: a region {name!r} is registered already")
        raise ResourceExhausted(
            f"as many regions are registered as may be: {MAX_REGIONS} of a user,"
            f" {MAX_REGIONS_OF_ALL} of all"
        )

    def _remove(self, user: int | None, name: str) -> None:
        with self._lock:
            own = self._regions.get(user, {})
            removed = [own.pop(each) for each in ([name] if name else list(own)) if each in own]
            if not own:
                self._regions.pop(user, None)
        for region in removed:  # reads and writes use duplicates of the descriptor
            os.close(region.fd)

    def _listed(self, user: int | None) -> dict[str, Region]:
        with self._lock:
            return dict(self._regions.get(user, {}))

    @contextmanager
    def _open(self, user: int | None, name: str) -> Iterator[Region]:
        """A region with a duplicate descriptor, so that no caller waits for another one's read or write."""
        with self._lock:
            found = _find(self._regions.get(user, {}), name)
            try:
                own = replace(found, fd=os.dup(found.fd))
            except OSError as error:
                raise ResourceExhausted(f"shared memory {name!r}: {error.strerror}") from None
        try:
            yield own
        finally:
            os.close(own.fd)


class UserRegions:
    """Regions of one user. Thread-safe.

    Attributes:
        user: the user; None for unknown callers, which share their regions.
    """

    def __init__(self, regions: Regions, user: int | None) -> None:
        """View `regions` as `user`."""
        self.user = user
        self._regions = regions

    def check_open_size(self, size: int) -> None:
        """Refuse a tensor whose request chose its shape and which is larger than a tensor by value may be.

        Raises:
            ResourceExhausted: the tensor has more bytes.
        """
        if size > self._regions.most:
            raise ResourceExhausted(
                f"shared_memory_byte_size: {size} for a tensor of open shape, expected at most"
                f" {self._regions.most} (--max-message)"
            )

    def register(self, name: str, key: str, offset: int, size: int) -> None:
        """Open an object in /dev/shm that this user and this process's user may read and write.

        Raises:
            InvalidArgument: the name is taken, the key names no object of such a size, or the user has no
                right to it.
            ResourceExhausted: there are too many regions.
        """
        if not KEY.fullmatch(key):
            raise InvalidArgument(f"key: {key!r}, expected a name of letters, digits, '_' and '-'")
        if offset < 0 or size <= 0:
            raise InvalidArgument(
                f"byte_size: {size} at {offset}, expected at least 1 at 0 or more"
            )
        fd = self._opened(key, offset + size)
        self._regions._add(self.user, name, Region(key, offset, size, fd))

    def unregister(self, name: str) -> None:
        """Remove a region, or all of this user if `name` is empty; an unknown name is ignored."""
        self._regions._remove(self.user, name)

    def read(self, name: str, offset: int, size: int) -> bytes:
        """Read bytes of a region; see `Region.read`."""
        with self._regions._open(self.user, name) as region:
            return region.read(offset, size)

    def write(self, name: str, offset: int, data: bytes) -> None:
        """Write bytes into a region; see `Region.write`."""
        with self._regions._open(self.user, name) as region:
            region.write(offset, data)

    def listed(self, name: str = "") -> dict[str, Region]:
        """The regions of this user by name: all, or the one called `name`.

        Raises:
            InvalidArgument: there is no such region.
        """
        own = self._regions._listed(self.user)
        return {name: _find(own, name)} if name else own

    def _opened(self, key: str, end: int) -> int:
        """Open an object. The error is the same whether it does not exist or is another user's."""
        name = key.removeprefix("/")
        refused = InvalidArgument(
            f"key: {key} is not shared memory of at least {end} bytes that caller and service may write"
        )
        flags = os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK
        try:
            fd = os.open(f"{_FOLDER}/{name}", flags)
        except OSError:
            raise refused from None
        status = os.fstat(fd)
        trusted = self._regions.trusted
        if trusted and name.startswith(trusted):
            allowed = status.st_uid == os.geteuid()
        else:
            allowed = self.user is not None and _may_write(self.user, fd, status)
        if stat.S_ISREG(status.st_mode) and allowed and status.st_size >= end:
            return fd
        os.close(fd)
        raise refused


def required(regions: UserRegions | None, tensor: str = "") -> UserRegions:
    """Refuse a caller without regions; `tensor` is the name for the message, or "".

    Raises:
        InvalidArgument: the caller may not use shared memory.
    """
    if regions is None:
        which = f"{tensor!r}: " if tensor else ""
        raise InvalidArgument(
            f"{which}shared memory is switched off (--shared-memory), or the caller's user is not known:"
            " it is for connections over loopback that nothing lies between"
        )
    return regions


def _find(regions: dict[str, Region], name: str) -> Region:
    if name not in regions:
        raise InvalidArgument(f"shared memory: no region {name!r} is registered")
    return regions[name]


def _may_write(user: int, fd: int, status: os.stat_result) -> bool:
    """Whether `user` owns an object, or all users may read and write it; root is treated like other users.

    The caller's groups are not known here, and a group may have fewer rights than others; the same holds for
    an access control list. So group and others must both have the rights, and there must be no list.
    """
    if user == status.st_uid:
        return True
    try:
        os.getxattr(fd, "system.posix_acl_access")
    except OSError as error:
        return error.errno in _NO_LIST and status.st_mode & _ALL_WRITE == _ALL_WRITE
    return False
