"""How a driver's process ended, for the message of DeadObject."""

from __future__ import annotations

import fcntl
import os
import re
import select
import signal
import struct
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

from nnburst.hal.errors import DeadObject

#: Seconds that a message waits for what it is about to be known.
PATIENCE: Final = 0.2
#: linux/pidfd.h: PIDFD_GET_INFO, PIDFD_INFO_EXIT, and where struct pidfd_info has the exit code.
_GET_INFO: Final = 0xC040FF0B
_INFO_EXIT: Final = 1 << 3
_INFO_BYTES: Final = 64
_EXIT_CODE_OFFSET: Final = 60
#: proc(5): where /proc/PID/stat has the flags and the exit code, counted after the name; linux/sched.h.
_FLAGS: Final = 6
_STAT_EXIT_CODE: Final = 49
_PF_EXITING: Final = 4
_STEP: Final = 0.002


class DriverDied(DeadObject):
    """DeadObject that finds out how the driver ended when its message is read.

    It is raised at once; the kernel may still be taking a large process apart then.
    """

    def __init__(self, how: Callable[[], str]) -> None:
        """`how` gives the message."""
        super().__init__("the driver has died")
        self._how: Callable[[], str] | None = how

    def __str__(self) -> str:
        return super().__str__() if self._how is None else self._how()

    def __reduce__(self) -> tuple[Any, ...]:
        """The message as it is now: another process cannot find out more."""
        restore, (kind, _, state) = super().__reduce__()
        return restore, (kind, (str(self),), {**state, "_how": None})


def describe(code: int) -> str:
    """An exit code as `subprocess` has it, in words."""
    if code >= 0:
        return f"ended with exit status {code}"
    try:
        return f"was killed by {signal.Signals(-code).name}"
    except ValueError:
        return f"was killed by signal {-code}"


def how_it_ended(pidfd: int, patience: float = PATIENCE) -> str:
    """How the process behind a pidfd ended, whether or not it is a child of this one.

    Waits up to `patience` seconds if it cannot be known yet.
    """
    pid = _pid_of(pidfd)
    if pid is None:
        return "has closed the connection or died"
    deadline = time.monotonic() + patience
    while (code := _exit_code(pidfd, pid)) is None:
        if time.monotonic() >= deadline:
            poller = select.poll()
            poller.register(pidfd, select.POLLIN)
            return "has died" if poller.poll(0) else "has closed the connection"
        time.sleep(_STEP)
    return describe(code)


def dying_exit_code(pid: int) -> int | None:
    """Exit code of a process that is being taken apart or waits for its parent; None if unknown.

    That takes a large process long after its death is decided. The kernel also answers 0 to those
    who may not read it, so it counts as unknown.
    """
    try:
        fields = Path(f"/proc/{pid}/stat").read_text(encoding="ascii").rpartition(")")[2].split()
    except (OSError, UnicodeError):
        return None
    if not int(fields[_FLAGS]) & _PF_EXITING:
        return None
    return os.waitstatus_to_exitcode(int(fields[_STAT_EXIT_CODE])) or None


def _exit_code(pidfd: int, pid: int) -> int | None:
    code = dying_exit_code(pid) if pid > 0 else None
    if code is not None and _pid_of(pidfd) == pid:  # so the number still meant this process
        return code
    return _reaped_exit_code(pidfd)


def _pid_of(fd: int) -> int | None:
    """The process of a pidfd, -1 once reaped; None if a driver sent something else."""
    try:
        info = Path(f"/proc/self/fdinfo/{fd}").read_text(encoding="ascii")
    except OSError:
        return None
    found = re.search(r"^Pid:\s*(-?\d+)$", info, re.MULTILINE)
    return int(found[1]) if found else None


def _reaped_exit_code(pidfd: int) -> int | None:
    """Exit code of a process that its parent has reaped, from Linux 6.15 on."""
    info = bytearray(_INFO_BYTES)
    struct.pack_into("=Q", info, 0, _INFO_EXIT)
    try:
        fcntl.ioctl(pidfd, _GET_INFO, info)
    except OSError:
        return None
    if not struct.unpack_from("=Q", info)[0] & _INFO_EXIT:
        return None
    return os.waitstatus_to_exitcode(struct.unpack_from("=i", info, _EXIT_CODE_OFFSET)[0])
