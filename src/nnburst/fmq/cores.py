"""Which cores this process may use, and so whether spinning helps anybody."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterable
from pathlib import Path


def allowed_cores() -> tuple[int, ...]:
    """Cores that the calling thread may run on, ascending."""
    return tuple(sorted(os.sched_getaffinity(0)))


def cpu_quota() -> float:
    """Cores' worth of time that the cgroup grants; infinite without a limit."""
    quota = float("inf")
    for directory in _cgroups():
        try:
            limit, period = (directory / "cpu.max").read_text().split()
            if limit != "max":
                quota = min(quota, int(limit) / int(period))
        except (OSError, ValueError, ZeroDivisionError):
            continue
    return quota


def thread_budget() -> int:
    """Threads that can run at once here, at least 1: the allowed cores, or less by the quota."""
    return max(1, int(min(float(len(allowed_cores())), cpu_quota())))


def _cgroups() -> Iterable[Path]:
    """The directories of this process's cgroup and of those above it."""
    root = Path("/sys/fs/cgroup")
    try:
        lines = Path("/proc/self/cgroup").read_text().splitlines()
    except OSError:
        return
    unified = next((line[3:] for line in lines if line.startswith("0::")), None)
    if unified is not None:
        directory = root / unified.lstrip("/")
        yield directory
        yield from (parent for parent in directory.parents if parent.is_relative_to(root))


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
