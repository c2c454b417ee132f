"""Limits the resources and the rights of workers to those that serving a client and executing needs.

A worker serves one client, so the limits of the process are the limits of the client; limits of counts are in
`nnburst.control.channel`. A driver's administrator may also let workers run before other programs, and lock
their memory (`nnburst serve --realtime`, `--lock-memory`).

Before a worker reads from its client it enters a sandbox, so a client that takes it over gains little. The
worker keeps the rights that executors need: memory, threads, clocks, reading files. It loses new privileges
and, if the kernel has Landlock and seccomp, the right to write and create files (except the key of the
compilation caches, until it exists), to run other programs, to access other processes' memory, sockets, and
kernel interfaces that no computation needs. It can still open device nodes that the administrator has named
for writing, and send them ioctls. Descriptors that are open already, such as cache files, stay usable.
"""

from __future__ import annotations

import logging
import os
import resource
import threading
from collections.abc import Sequence
from enum import IntFlag
from pathlib import Path
from typing import Final

from nnburst._native import ffi, lib
from nnburst.control.channel import (
    MAX_CALL_BYTES,
    MAX_CALL_FDS,
    MAX_CALLS,
    MAX_HELD_FDS,
    MAX_POOLS,
    CallBudget,
    Cost,
)
from nnburst.hal.environment import SANDBOX
from nnburst.hal.errors import GeneralFailure, InvalidArgument, ResourceExhausted

logger = logging.getLogger(__name__)

#: NNBURST_SANDBOX=0 switches the sandbox off, for executors that need more rights (such as a GPU's driver).
_IS_WANTED: Final = SANDBOX.read()
#: Device nodes that workers may open for writing; set once, before this process forks.
_nodes: list[str] = []
#: Share of the machine's memory that one worker may use privately; pools, which it shares, do not count.
_MEMORY_SHARE: Final = 0.5
#: Time without runs after which a burst or a reusable request frees its memory in the executor (D21 in
#: docs/features.md).
IDLE_NS: Final = 10_000_000_000
#: Descriptors that no quota counts one by one: rings, signalled fences, files that executors open.
_OTHER_FDS: Final = 3072


class Quota:
    """A limit on the amount of a resource that the client may have at once. Thread-safe.

    Attributes:
        limit: the largest amount.
    """

    def __init__(self, name: str, limit: int) -> None:
        """Allow `limit`; `name` names the resource in error messages."""
        self.limit = limit
        self._name = name
        # Reentrant: the garbage collector may return a charge in the middle of taking another one.
        self._lock = threading.RLock()
        self._taken = 0

    @property
    def taken(self) -> int:
        """The amount in use."""
        return self._taken

    def charge(self, amount: int = 1) -> Charge:
        """Take `amount` until the charge is closed or garbage-collected.

        Raises:
            ResourceExhausted: the client has too much already.
        """
        charge = Charge(self)
        with self._lock:
            taken = self._taken
            if taken + amount <= self.limit:
                self._taken += amount
                charge.amount = amount
                return charge
        raise ResourceExhausted(
            f"{amount} more {self._name}: the client has {taken} of {self.limit}"
        )

    def release(self, amount: int) -> None:
        """Return `amount`; called by `Charge` only."""
        with self._lock:
            self._taken -= amount


class Charge:
    """Part of a quota that is in use.

    Attributes:
        amount: the amount in use.
    """

    __slots__ = ("_quota", "amount")

    def __init__(self, quota: Quota) -> None:
        """Use `Quota.charge`."""
        self._quota = quota
        self.amount = 0

    def close(self) -> None:
        """Return the amount; a second call does nothing."""
        amount, self.amount = self.amount, 0
        if amount:
            self._quota.release(amount)

    def __del__(self) -> None:
        if hasattr(self, "amount"):  # its constructor may have been interrupted
            self.close()


def machine_memory() -> int:
    """Bytes of the machine's memory."""
    return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGESIZE")


#: Quota for pools whose descriptor the driver keeps.
POOLS: Final = Quota("pools", MAX_POOLS)
#: Quota for descriptors of fences and cache files that are kept after their call.
HELD_FDS: Final = Quota("descriptors of fences and cache files", MAX_HELD_FDS)
#: Quota for mapped bytes of pools, rings and buffers: all charges together at most the machine's memory.
SHARED_BYTES: Final = Quota("bytes of pools, rings and buffers", machine_memory())


def call_budget() -> CallBudget:
    """The memory that the client's calls in progress may take."""
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return CallBudget(Cost(MAX_CALLS, min(MAX_CALL_FDS, _spare(soft)), MAX_CALL_BYTES))


def _spare(files: int) -> int:
    """Descriptors for each of three quotas, if the process may open `files` descriptors."""
    return max(64, (files - _OTHER_FDS) // 3)


def memory_quota() -> int:
    """Bytes of private memory that a worker may allocate after its start."""
    return int(machine_memory() * _MEMORY_SHARE)


def _in_use() -> int:
    """Bytes that already count against the limit; a sanitizer maps more than any machine has."""
    # No regular expression: compiling one touches a hundred pages of a process that has just been forked.
    _, found, rest = Path("/proc/self/status").read_text().partition("\nVmData:")
    return int(rest.split(None, 1)[0]) * 1024 if found else 0


def limit_this_process() -> None:
    """Set the resource limits of this process; a lower limit that is already set stays.

    An allocation beyond them raises MemoryError here, and the client gets RESOURCE_EXHAUSTED.
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_DATA)
    limits = [limit for limit in (soft, hard) if limit != resource.RLIM_INFINITY]
    quota = min([_in_use() + memory_quota(), *limits])
    resource.setrlimit(resource.RLIMIT_DATA, (quota, quota))
    _, files = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (files, files))
    POOLS.limit = min(MAX_POOLS, _spare(files))
    HELD_FDS.limit = min(MAX_HELD_FDS, _spare(files))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))  # a client must not fill the disk with crashes


# -- workers for real-time loops -------------------------------------------------------------------

#: Bit of CapEff: the process may lock more memory than RLIMIT_MEMLOCK.
_IPC_LOCK: Final = 1 << 14
#: Priority under SCHED_FIFO of workers that serve a client (0 for none), and whether their memory is locked;
#: set once, before this process forks.
_realtime: list[int] = [0, 0]


def ask_for_realtime(priority: int | None, lock_memory: bool) -> None:
    """Set realtime scheduling and memory locking for the workers that this process forks.

    They take effect when a worker has a client. Both are tried here and undone, so that a driver that may not
    use them does not start.

    Args:
        priority: priority under SCHED_FIFO, 1 to 99; None leaves the scheduling as it is.
        lock_memory: whether pages stay in memory from their first use on.

    Raises:
        InvalidArgument: there is no such priority.
        GeneralFailure: the system does not permit it; the message names the limit to raise.
    """
    lowest, highest = (
        of(os.SCHED_FIFO) for of in (os.sched_get_priority_min, os.sched_get_priority_max)
    )
    if priority is not None and not lowest <= priority <= highest:
        raise InvalidArgument(f"realtime: {priority}, expected {lowest} to {highest}")
    if priority is not None:
        before, its = os.sched_getscheduler(0), os.sched_getparam(0)
        try:
            os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(priority))
        except OSError as error:
            limit, _ = resource.getrlimit(resource.RLIMIT_RTPRIO)
            raise GeneralFailure(
                f"realtime: {priority}: the system refuses SCHED_FIFO ({error.strerror}); RLIMIT_RTPRIO is"
                f" {limit}, expected {priority} or more (LimitRTPRIO=), or CAP_SYS_NICE"
            ) from None
        os.sched_setscheduler(0, before, its)
    if lock_memory:
        limit, _ = resource.getrlimit(resource.RLIMIT_MEMLOCK)
        if limit != resource.RLIM_INFINITY and not _may_lock_all():
            raise GeneralFailure(
                f"lock-memory: RLIMIT_MEMLOCK is {limit >> 10} KiB, expected no limit"
                " (LimitMEMLOCK=infinity), or CAP_IPC_LOCK"
            )
        _locked(1)
        _locked(0)
    _realtime[:] = [priority or 0, int(lock_memory)]


def _may_lock_all() -> bool:
    _, _, rest = Path("/proc/self/status").read_text().partition("\nCapEff:")
    return bool(int(rest.split(None, 1)[0], 16) & _IPC_LOCK) if rest else False


def _locked(on: int) -> None:
    failed = lib.nnb_lock_memory(on)
    if failed:
        raise GeneralFailure(f"lock-memory: the system refuses it ({os.strerror(failed)})")


def begin_realtime() -> None:
    """Apply `ask_for_realtime` to every thread that this process has and will start.

    Not called in a spare worker before it has a client: its rehearsal must not run before other programs.

    Raises:
        OSError, GeneralFailure: the system no longer permits it.
    """
    priority, lock_memory = _realtime
    if priority:
        for thread in Path("/proc/self/task").iterdir():
            os.sched_setscheduler(int(thread.name), os.SCHED_FIFO, os.sched_param(priority))
    if lock_memory:
        _locked(1)


def admit_nodes(paths: Sequence[str]) -> None:
    """Allow this process and the workers that it forks to open device nodes for writing and send them ioctls.

    Raises:
        InvalidArgument: a path does not exist, or is a directory.
    """
    for path in paths:
        if not Path(path).exists() or Path(path).is_dir():
            raise InvalidArgument(f"device node: {path!r}, expected the path of a node or a file")
        _nodes.append(str(Path(path).resolve()))


class Sandbox(IntFlag):
    """The steps of the sandbox that are in force (csrc/sandbox.h)."""

    NO_NEW_PRIVILEGES = 1
    LANDLOCK = 2
    SECCOMP = 4


def enter_sandbox(writable: Path | None = None) -> Sandbox:
    """Put this process into the sandbox for good. Call it before a second thread starts.

    Args:
        writable: directory below which files may still be written; made if it is missing.

    Returns:
        The steps that this kernel supports.

    Raises:
        GeneralFailure: the kernel supports a step and refuses it.
    """
    if not _IS_WANTED:
        return Sandbox(0)
    folder = b""
    if writable is not None:
        try:
            writable.mkdir(mode=0o700, parents=True, exist_ok=True)
            folder = os.fsencode(writable)
        except OSError as error:  # what would be remembered there is not, and that is all
            logger.info("%s cannot be made, so workers cannot write there: %s", writable, error)
    names = [ffi.new("char[]", os.fsencode(node)) for node in _nodes]
    nodes = ffi.new("const char *[]", [*names, ffi.NULL])
    entered = lib.nnb_sandbox_enter(folder or ffi.NULL, nodes)
    if entered < 0:
        raise GeneralFailure(f"the worker cannot enter its sandbox: {os.strerror(-entered)}")
    return Sandbox(entered)
