"""A client's cache files as descriptors: regular files, opened to be read and written.

Another process may write to a file, truncate it or replace its content at any time. So a file is copied
once, by reading (a mapping of a file that shrinks would end the process), and only the copy is looked at.
"""

from __future__ import annotations

import fcntl
import os
import stat
from typing import Final

from nnburst.control.channel import Fds
from nnburst.driver.limits.quotas import HELD_FDS
from nnburst.hal.errors import GeneralFailure, InvalidArgument

#: Longest cache file that is read.
MAX_CACHE_BYTES: Final = 1 << 30
_CHUNK: Final = 1 << 20


class CacheFiles:
    """The cache files that came with a call, taken from it.

    Attributes:
        model: descriptors of the model cache, in order.
        data: descriptors of the data cache, in order.
    """

    def __init__(self, fds: Fds, first: int, model: int, data: int) -> None:
        """Own `model` and then `data` descriptors of a message, from the one numbered `first` on.

        Raises:
            ResourceExhausted: the client has too many descriptors here already; none is taken.
        """
        self._charge = HELD_FDS.charge(model + data)
        self._fds = Fds(fds.take(first + at) for at in range(model + data))
        found = list(self._fds)
        self.model: Final = found[:model]
        self.data: Final = found[model:]

    def close(self) -> None:
        """Close them all."""
        self._fds.close()
        self._charge.close()


def check_cache_file(fd: int, name: str) -> None:
    """What the descriptor of a cache file must be; `name` is for the message.

    Raises:
        InvalidArgument: it is not a regular file that was opened to be read and written.
    """
    if not stat.S_ISREG(os.fstat(fd).st_mode):
        raise InvalidArgument(f"device:P5: {name} is not a regular file")
    if fcntl.fcntl(fd, fcntl.F_GETFL) & os.O_ACCMODE != os.O_RDWR:
        raise InvalidArgument(f"device:P5: {name} is not opened to be read and written")


def read_copy(fd: int, name: str) -> bytearray:
    """A private copy of a whole file, whatever the descriptor's offset is.

    Raises:
        GeneralFailure: it is longer than MAX_CACHE_BYTES, or cannot be read.
    """
    try:
        size = os.fstat(fd).st_size
        if size > MAX_CACHE_BYTES:
            raise GeneralFailure(f"{name} has {size} bytes, at most {MAX_CACHE_BYTES}")
        content = bytearray(size)
        done = 0
        with memoryview(content) as view:
            while done < size and (read := os.preadv(fd, [view[done:]], done)):
                done += read
    except OSError as error:
        raise GeneralFailure(f"{name} cannot be read: {error}") from error
    del content[done:]  # it was truncated meanwhile
    return content


def overwrite(fd: int, content: bytes | bytearray) -> None:
    """Make `content` all that a file has, whatever was in it and whatever the descriptor's offset is.

    Raises:
        OSError: it cannot be written; the file is then empty, as far as that can be done.
    """
    os.ftruncate(fd, 0)
    try:
        view = memoryview(content)
        done = 0
        while done < len(view):
            done += os.pwrite(fd, view[done : done + _CHUNK], done)
    except OSError:
        os.ftruncate(fd, 0)
        raise
