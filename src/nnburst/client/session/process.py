"""Starts, watches and ends a driver process, and reports how it ended."""

from __future__ import annotations

import collections
import contextlib
import ctypes
import fcntl
import io
import os
import re
import select
import signal
import struct
import subprocess
import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import IO, Any, Final

from nnburst._native import ffi, lib
from nnburst.hal import vlog
from nnburst.hal.errors import DeadObject
from nnburst.hal.utils import Closing, polled, start_thread

#: Seconds that a message about a driver's end waits until the kernel reports it.
PATIENCE: Final = 0.2
#: linux/pidfd.h: PIDFD_GET_INFO, PIDFD_INFO_EXIT, and the offset of the exit code in struct pidfd_info.
_GET_INFO: Final = 0xC040FF0B
_INFO_EXIT: Final = 1 << 3
_INFO_BYTES: Final = 64
_EXIT_CODE_OFFSET: Final = 60
#: proc(5): the fields of flags and exit code in /proc/PID/stat, counted after the name; linux/sched.h.
_FLAGS: Final = 6
_STAT_EXIT_CODE: Final = 49
_PF_EXITING: Final = 4
_STEP: Final = 0.002


class DriverDied(DeadObject):
    """A DeadObject that determines how the driver ended only when its message is read.

    So it can be raised at once, while the kernel may still be freeing the memory of a large process.
    """

    def __init__(self, how: Callable[[], str]) -> None:
        """Create the error; `how` returns the message."""
        super().__init__("the driver has died")
        self._how: Callable[[], str] | None = how

    def __str__(self) -> str:
        return super().__str__() if self._how is None else self._how()

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle the message as it is now: another process cannot determine more."""
        restore, (kind, _, state) = super().__reduce__()
        return restore, (kind, (str(self),), {**state, "_how": None})


def describe(code: int) -> str:
    """Describe an exit code of `subprocess` in words."""
    if code >= 0:
        return f"ended with exit status {code}"
    try:
        return f"was killed by {signal.Signals(-code).name}"
    except ValueError:
        return f"was killed by signal {-code}"


def how_it_ended(pidfd: int, patience: float = PATIENCE) -> str:
    """Describe how the process behind a pidfd ended, whether or not it is a child of this one.

    Waits up to `patience` seconds if the kernel does not report it yet.
    """
    pid = _pid_of(pidfd)
    if pid is None:
        return "has closed the connection or died"
    deadline = time.monotonic() + patience
    while (code := _exit_code(pidfd, pid)) is None:
        if time.monotonic() >= deadline:
            poller = select.poll()
            poller.register(pidfd, select.POLLIN)
            return "has died" if polled(poller, 0) else "has closed the connection"
        time.sleep(_STEP)
    return describe(code)


def dying_exit_code(pid: int) -> int | None:
    """Exit code of a dying process or one that waits for its parent; None if unknown.

    Freeing the memory of a large process takes long. The kernel also reports 0 if the caller may not read the
    exit code, so 0 counts as unknown.
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
    if code is not None and _pid_of(pidfd) == pid:  # so the number was still this process's
        return code
    return _reaped_exit_code(pidfd)


def _pid_of(fd: int) -> int | None:
    """The process of a pidfd, -1 once reaped; None if the driver sent another kind of descriptor."""
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


#: Lines and bytes of a driver's log that are kept.
_LAST_LINES: Final = 20
_LINE_BYTES: Final = 512
#: Seconds that a process has to end after its socket was closed, and again after SIGTERM.
_GRACE: Final = 2.0
#: Most seconds to wait until the last lines of an ended process are read.
_LAST_WORDS: Final = 0.1


class Pipe(Closing):
    """A pipe whose ends cannot get lost. The kernel writes their numbers into memory of this object.

    `os.pipe` returns them: a signal handler that raises before they are stored leaves both open.
    """

    def __init__(self) -> None:
        """Create the pipe; its ends are closed in a new program.

        Raises:
            OSError: there are no more descriptors.
        """
        self._ends: Final = (ctypes.c_int * 2)(-1, -1)
        if ctypes.CDLL(None, use_errno=True).pipe2(self._ends, os.O_CLOEXEC):
            failed = ctypes.get_errno()
            raise OSError(failed, os.strerror(failed))

    @property
    def write(self) -> int:
        """The end for writing; borrowed."""
        return self._ends[1]

    def reader(self) -> IO[bytes]:
        """The end for reading, which is the caller's from here on."""
        read, self._ends[0] = self._ends[0], -1
        return io.BufferedReader(io.FileIO(read))

    def close(self) -> None:
        """Close the ends that are this object's."""
        for at in range(2):
            end, self._ends[at] = self._ends[at], -1
            if end >= 0:
                os.close(end)

    def __del__(self) -> None:
        if hasattr(self, "_ends"):  # its constructor may have been interrupted
            self.close()


class Child:
    """A started child process, with the interface of `subprocess.Popen`. Thread-safe.

    `Popen` holds the interpreter's lock until the new process runs its program: 0.3 ms on an idle machine,
    and on a busy one until the process gets a core. This class releases the lock meanwhile.

    A signal handler may raise anywhere: `close` ends the process even if `start` was interrupted behind its
    beginning.
    """

    def __init__(self) -> None:
        """Start no process yet."""
        self._spawn: Any = None
        self._code: int | None = None
        self._is_reaped = False
        # Reentrant: a signal handler may close the device while its thread is in here.
        self._reaping: Final = threading.RLock()

    @property
    def pid(self) -> int:
        """Number of the process; 0 before its start."""
        return int(self._spawn.pid) if self._spawn is not None else 0

    def start(
        self, command: Sequence[str], fds: Mapping[int, int], environment: Mapping[str, str]
    ) -> None:
        """Start the process.

        Args:
            command: path of the program, and its arguments.
            fds: number of each descriptor in the new process to the descriptor here; it gets no others
                below the limit of descriptors.
            environment: the whole environment of the new process.

        Raises:
            OSError: the process cannot be started.
        """
        words = [ffi.new("char[]", os.fsencode(word)) for word in command]
        variables = [
            ffi.new("char[]", os.fsencode(f"{name}={value}")) for name, value in environment.items()
        ]
        inherited = [fd for fd in _inheritable_fds() if fd not in fds]
        above = max(fds, default=2) + 1
        with ExitStack() as stack:
            sources = []  # above the targets: no source may be a target
            for fd in fds.values():
                sources.append(fcntl.fcntl(fd, fcntl.F_DUPFD_CLOEXEC, above))
                stack.callback(os.close, sources[-1])
            arrays = {
                "arguments": ffi.new("char *[]", [*words, ffi.NULL]),
                "environment": ffi.new("char *[]", [*variables, ffi.NULL]),
                "source": ffi.new("int32_t[]", sources),
                "target": ffi.new("int32_t[]", list(fds)),
                "close": ffi.new("int32_t[]", inherited),
            }
            counts = {"count": len(fds), "close_count": len(inherited)}
            spawn = ffi.new("struct nnb_spawn *", {"path": words[0], **arrays, **counts})
            self._spawn = spawn
            failed = lib.nnb_spawn_unlocked(spawn)
        if failed:
            self._spawn = None
            raise OSError(failed, os.strerror(failed), command[0])

    def poll(self) -> int | None:
        """The exit code as in `subprocess`; None while the process runs."""
        with self._reaping:
            if not self._is_reaped:
                try:
                    if self._code is None:
                        # The kernel keeps the status until it is stored: a signal handler may raise between.
                        how = os.WEXITED | os.WNOWAIT | os.WNOHANG
                        ended = os.waitid(os.P_PID, self.pid, how)
                        if ended is None:
                            return None
                        was_killed = ended.si_code != os.CLD_EXITED
                        self._code = -ended.si_status if was_killed else ended.si_status
                    os.waitpid(self.pid, os.WNOHANG)
                except ChildProcessError:  # reaped here, or by another part of the program
                    self._code = self._code or 0
                self._is_reaped = True
            return self._code

    def wait(self, timeout: float) -> int:
        """Wait for the process to end, and return its exit code.

        Raises:
            TimeoutExpired: that takes longer than `timeout` seconds.
        """
        if self.poll() is None:
            try:
                pidfd = os.pidfd_open(self.pid)
            except OSError:
                pidfd = -1  # it has just been reaped, or there are no more descriptors
            try:
                _await_end(self, pidfd, time.monotonic() + timeout)
            finally:
                if pidfd >= 0:
                    os.close(pidfd)
        code = self.poll()
        if code is None:
            raise subprocess.TimeoutExpired("the driver", timeout)
        return code

    def send_signal(self, number: int) -> None:
        """Send a signal to the process, unless it has ended."""
        with self._reaping:
            if self.poll() is None:  # asked anew: its number may belong to another process by now
                os.kill(self.pid, number)

    def kill(self) -> None:
        """Kill the process."""
        self.send_signal(signal.SIGKILL)

    def close(self) -> None:
        """Kill the process, if there is one, and wait for its end."""
        if self.pid > 0:
            self.kill()
            self.wait(_GRACE)


def _await_end(child: Child, pidfd: int, deadline: float) -> None:
    poller = select.poll()
    if pidfd >= 0:
        poller.register(pidfd, select.POLLIN)
    while child.poll() is None and (left := deadline - time.monotonic()) > 0:
        polled(poller, (left if pidfd >= 0 else min(left, _STEP)) * 1000)


def _inheritable_fds() -> list[int]:
    """Descriptors that a new process would inherit: other libraries may open some.

    Those at or beyond the limit of descriptors are left out: the process was started with a higher limit.
    posix_spawn refuses to close them, so the driver does (driver/service/main.py).
    """
    found, limit = [], os.sysconf("SC_OPEN_MAX")
    try:
        names: Iterable[str | int] = os.listdir("/proc/self/fd")  # noqa: PTH208 - names alone, and quicker
    except OSError:  # no /proc, or no descriptor to list it by
        names = range(limit)
    for name in names:
        with contextlib.suppress(OSError):  # the one of the folder
            if 2 < int(name) < limit and os.get_inheritable(int(name)):
                found.append(int(name))
    return found


class DriverProcess:
    """The process of a started driver, and the end of its log. Thread-safe."""

    def __init__(self, process: Child | subprocess.Popen[bytes], log: IO[bytes]) -> None:
        """Own `process` and, once its reader runs, `log`, a pipe from its stderr.

        Raises:
            ResourceExhausted: this process may have no more threads.
        """
        self._process = process
        self._owner = os.getpid()
        self._lines: collections.deque[str] = collections.deque(maxlen=_LAST_LINES)
        self._reader = threading.Thread(
            target=self._read, args=(log,), name="nnburst driver log", daemon=True
        )
        start_thread(self._reader, log)

    @property
    def pid(self) -> int:
        """Number of the process."""
        return self._process.pid

    def _read(self, stderr: IO[bytes]) -> None:
        with stderr:
            while line := stderr.readline(_LINE_BYTES):
                text = line.decode(errors="replace").rstrip()
                if text.startswith(vlog.MARK):
                    vlog.write_line(text)  # the user asked for these lines; they are no error
                else:
                    self._lines.append(text)

    @property
    def last_lines(self) -> list[str]:
        """The last lines of its log."""
        return list(self._lines)

    def ending(self, patience: float = PATIENCE) -> str:
        """Describe how it ended, with the end of its log; wait up to `patience` seconds for that."""
        code = self._exit_code(patience)
        if code is not None:  # a process that it started may still hold its stderr open
            self._reader.join(_LAST_WORDS)
        how = "has closed its connection" if code is None else describe(code)
        lines = "".join(f"\n  {line}" for line in self.last_lines)
        return f"the driver (pid {self.pid}) {how}" + (f"; its last lines:{lines}" if lines else "")

    def _exit_code(self, patience: float) -> int | None:
        """The exit code of the process, which may still be ending; None if it is not known in time."""
        deadline = time.monotonic() + patience
        while True:
            code = self._process.poll()
            if code is None:
                code = dying_exit_code(self.pid)
            if code is not None or time.monotonic() >= deadline:
                return code
            time.sleep(_STEP)

    def close(self) -> None:
        """Wait for the process to end after its socket was closed; terminate it if it does not."""
        if os.getpid() != self._owner:
            return  # a forked child has no children of this process
        for nudge in (None, signal.SIGTERM, signal.SIGKILL):
            if nudge is not None:
                self._process.send_signal(nudge)
            try:
                self._process.wait(_GRACE)
                break
            except subprocess.TimeoutExpired:
                continue
        self._reader.join(_GRACE)

    def kill(self) -> None:
        """Kill the process at once, and wait for its end."""
        self._process.kill()
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(_GRACE)
