"""How a driver's process ended, for the message of DeadObject."""

from __future__ import annotations

import fcntl
import os
import select
import signal
import struct
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final

from nnburst.hal.errors import DeadObject

#: Seconds that a message waits for the kernel to have taken a dead process apart.
PATIENCE: Final = 0.2
#: linux/pidfd.h: PIDFD_GET_INFO, PIDFD_INFO_EXIT, and where struct pidfd_info has the exit code.
_GET_INFO: Final = 0xC040FF0B
_INFO_EXIT: Final = 1 << 3
_INFO_BYTES: Final = 64
_EXIT_CODE_OFFSET: Final = 60
_STEP: Final = 0.002


class DriverDied(DeadObject):
    """DeadObject that finds out how the driver ended when its message is read.

    It is raised at once; the kernel may still be taking a large process apart then.
    """

    def __init__(self, how: Callable[[], str]) -> None:
        """`how` gives the message."""
        super().__init__("the driver has died")
        self._how = how

    def __str__(self) -> str:
        return self._how()


def describe(code: int) -> str:
    """An exit code as `subprocess` has it, in words."""
    if code >= 0:
        return f"ended with exit status {code}"
    try:
        return f"was killed by {signal.Signals(-code).name}"
    except ValueError:
        return f"was killed by signal {-code}"


def how_it_ended(pidfd: int, patience: float = PATIENCE) -> str:
    """How the process behind a pidfd ended, be it nobody's child here; waits up to `patience` seconds.

    The exit code is known once the parent has reaped it, from Linux 6.15 on.
    """
    if not _is_pidfd(pidfd):
        return "has closed the connection or died"
    deadline = time.monotonic() + patience
    poller = select.poll()
    poller.register(pidfd, select.POLLIN)
    if not poller.poll(patience * 1000):
        return "has closed the connection"
    while (code := _exit_code(pidfd)) is None:
        if time.monotonic() >= deadline:
            return "has died"
        time.sleep(_STEP)
    return describe(code)


def _is_pidfd(fd: int) -> bool:
    """Whether a descriptor that a driver sent is what it shall be: others must not see its ioctl."""
    try:
        return "\nPid:" in Path(f"/proc/self/fdinfo/{fd}").read_text(encoding="ascii")
    except OSError:
        return False


def _exit_code(pidfd: int) -> int | None:
    info = bytearray(_INFO_BYTES)
    struct.pack_into("=Q", info, 0, _INFO_EXIT)
    try:
        fcntl.ioctl(pidfd, _GET_INFO, info)
    except OSError:
        return None  # an older kernel, or not reaped yet
    if not struct.unpack_from("=Q", info)[0] & _INFO_EXIT:
        return None
    return os.waitstatus_to_exitcode(struct.unpack_from("=i", info, _EXIT_CODE_OFFSET)[0])
