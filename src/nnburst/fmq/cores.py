"""Finds the cores that this process may and should use, and decides whether spinning helps."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterable
from typing import Final

#: A string, since pathlib takes ten times as long as the kernel: each opening of a burst reads these files.
_ROOT: Final = "/sys/fs/cgroup"
_LONGEST: Final = 65_536

_CPUS: Final = "/sys/devices/system/cpu"
#: Share of the fastest core's capacity: cores below it are the slow ones of big.LITTLE.
_FAST_SHARE: Final = 0.5


def allowed_cores() -> tuple[int, ...]:
    """Cores that the calling thread may run on, ascending."""
    return tuple(sorted(os.sched_getaffinity(0)))


def performance_cores() -> tuple[int, ...]:
    """The allowed cores without those that are less than half as fast as the fastest of them.

    All allowed cores if the kernel reports no capacities (`cpu_capacity`, on Arm). A computation whose
    threads wait for each other is as slow as its slowest core.
    """
    capacities = {core: _capacity(core) for core in allowed_cores()}
    least = _FAST_SHARE * max(capacities.values())
    return tuple(core for core, capacity in capacities.items() if capacity >= least)


def prefer_performance_cores() -> None:
    """Restrict the calling thread, and threads that it starts, to the performance cores."""
    fast = performance_cores()
    if len(fast) < len(allowed_cores()):
        os.sched_setaffinity(0, fast)


def _capacity(core: int) -> int:
    """The speed of a core as the kernel reports it; 1024, that of the fastest core, if it reports none."""
    try:
        return int(_read(f"{_CPUS}/cpu{core}/cpu_capacity"))
    except (OSError, ValueError):
        return 1024


def cpu_quota() -> float:
    """The number of cores whose time the cgroup grants; infinite without a limit."""
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
    """The best number of computing threads, at least 1: the performance cores, or fewer by the quota."""
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
    """Read a small file of the kernel."""
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        return os.read(fd, _LONGEST).decode(errors="replace")
    finally:
        os.close(fd)


def may_spin(peer_cores: Iterable[int]) -> bool:
    """Whether this side and a peer on `peer_cores` can run at the same time.

    If both share one core, a spinning side only delays the other's answer.
    """
    together = len({*peer_cores, *allowed_cores()})
    return min(float(together), cpu_quota()) >= 2


def each_may_spin(peers: Iterable[int]) -> bool:
    """Whether this process and all its peers can run at the same time.

    Args:
        peers: the process ids of the peers.
    """
    pids = set(peers)
    together = set(allowed_cores())
    for pid in pids:
        with contextlib.suppress(OSError):  # it has ended, or is in another namespace
            together |= os.sched_getaffinity(pid)
    return min(float(len(together)), cpu_quota()) > len(pids)
