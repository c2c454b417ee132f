"""Where a named driver listens: NAME.sock in a directory that belongs to one user.

No abstract sockets: they have no permission bits.
"""

from __future__ import annotations

import os
import re
import stat
from pathlib import Path
from typing import Final

from nnburst.hal.errors import DeviceUnavailable, InvalidArgument

_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
#: sizeof(sockaddr_un.sun_path) less the terminating zero.
_MAX_PATH_BYTES: Final = 107
SUFFIX: Final = ".sock"


def _temporary() -> Path:
    import tempfile  # 5 ms that a launched driver, which has no address, does not pay

    return Path(tempfile.gettempdir(), f"nnburst-{os.getuid()}")


def directory(*, create: bool = False) -> Path:
    """The directory of this user's drivers.

    `$XDG_RUNTIME_DIR/nnburst`, or `nnburst-UID` in the directory for temporary files.

    Args:
        create: make it (mode 0700) if it is missing.

    Raises:
        DeviceUnavailable: it is not a directory that only this user can enter.
    """
    runtime = os.environ.get("XDG_RUNTIME_DIR")
    path = Path(runtime, "nnburst") if runtime else _temporary()
    if create:
        path.mkdir(mode=0o700, parents=True, exist_ok=True)
    if path.is_symlink() or path.exists():
        info = path.lstat()
        if not stat.S_ISDIR(info.st_mode) or info.st_uid != os.getuid() or info.st_mode & 0o077:
            raise DeviceUnavailable(f"{path} must be a directory of mode 0700 that you own")
    return path


def socket_path(name: str, *, create: bool = False) -> Path:
    """Path of the socket of driver `name`.

    Args:
        name: letters, digits, '.', '_' and '-', at most 64, beginning with a letter or digit.
        create: make the directory if it is missing.

    Raises:
        InvalidArgument: not such a name, or the path is longer than a socket's may be.
    """
    if not _NAME.fullmatch(name):
        raise InvalidArgument(
            f"name: {name!r} must be 1 to 64 letters, digits, '.', '_' or '-',"
            " beginning with a letter or digit"
        )
    return check_length(directory(create=create) / (name + SUFFIX))


def check_length(path: Path) -> Path:
    """`path` itself, if a socket may have it.

    Raises:
        InvalidArgument: it is too long.
    """
    if len(os.fsencode(path)) > _MAX_PATH_BYTES:
        raise InvalidArgument(
            f"address: {path} is longer than the {_MAX_PATH_BYTES} bytes of a socket"
        )
    return path
