"""Finds the cores that this process may and should use, and so whether spinning helps."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterable
from typing import Final

#: Without pathlib, which takes ten times as long as the kernel: each burst that is opened asks.
_ROOT: Final = "/sys/fs/cgroup"
_LONGEST: Final = 65_536

_CPUS: Final = "/sys/devices/system/cpu"
#: Of the fastest core's capacity: cores below it are the slow ones of big.LITTLE.
_FAST_SHARE: Final = 0.5


def allowed_cores() -> tuple[int, ...]:
    """Cores that the calling thread may run on, ascending."""
    return tuple(sorted(os.sched_getaffinity(0)))


def performance_cores() -> tuple[int, ...]:
    """The allowed cores without those that are less than half as fast as the fastest of them.

    All of them if the kernel gives no differences (`cpu_capacity`, which Arm's has). A computation whose
    threads wait for each other takes as long as its slowest core.
    """
    capacities = {core: _capacity(core) for core in allowed_cores()}
    least = _FAST_SHARE * max(capacities.values())
    return tuple(core for core, capacity in capacities.items() if capacity >= least)


def prefer_performance_cores() -> None:
    """Keep the calling thread, and those that it starts, to the performance cores."""
    fast = performance_cores()
    if len(fast) < len(allowed_cores()):
        os.sched_setaffinity(0, fast)


def _capacity(core: int) -> int:
    """The speed that the kernel gives a core; 1024 is the fastest, and that of any core without a number."""
    try:
        return int(_read(f"{_CPUS}/cpu{core}/cpu_capacity"))
    except (OSError, ValueError):
        return 1024


def cpu_quota() -> float:
    """Cores' worth of time that the cgroup grants; infinite without a limit."""
    quota = float("inf")
    for directory in _cgroups():
        try:
            limit, period = _read(f"{directory}/cpu.max").split()
            if limit != "max":
                quota = min(quota, int(limit) / int(period))
        except (OSError, ValueError, ZeroDivisionError):
            continue
    return quota


def thread_budget() -> int:
    """Threads that compute best at once, at least 1: the performance cores, or less by the quota."""
    return max(1, int(min(float(len(performance_cores())), cpu_quota())))


def _cgroups() -> Iterable[str]:
    """The directories of this process's cgroup and of those above it."""
    try:
        lines = _read("/proc/self/cgroup").splitlines()
    except OSError:
        return
    unified = next((line[3:].strip("/") for line in lines if line.startswith("0::")), None)
    while unified:
        yield f"{_ROOT}/{unified}"
        unified = unified.rpartition("/")[0]
    if unified is not None:
        yield _ROOT


def _read(path: str) -> str:
    """The text of a small file of the kernel's."""
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        return os.read(fd, _LONGEST).decode(errors="replace")
    finally:
        os.close(fd)


def may_spin(peer_cores: Iterable[int]) -> bool:
    """Whether this side and a peer on `peer_cores` can run at the same moment.

    With fewer than two cores between them a spinner only keeps the other from answering.
    """
    together = len({*peer_cores, *allowed_cores()})
    return min(float(together), cpu_quota()) >= 2


def each_may_spin(peers: Iterable[int]) -> bool:
    """Whether this process and all these can run at the same moment.

    Args:
        peers: their process ids.
    """
    pids = set(peers)
    together = set(allowed_cores())
    for pid in pids:
        with contextlib.suppress(OSError):  # it has ended, or is of another namespace
            together |= os.sched_getaffinity(pid)
    return min(float(len(together)), cpu_quota()) > len(pids)
