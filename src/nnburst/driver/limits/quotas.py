"""What one client's worker may use up of the machine; counts are in `nnburst.control.limits`.

A worker serves one client, so what a client may have is what the process may have.
"""

from __future__ import annotations

import os
import resource
import threading
from pathlib import Path
from typing import Final

from nnburst.control.budget import CallBudget, Cost
from nnburst.control.limits import (
    MAX_CALL_BYTES,
    MAX_CALL_FDS,
    MAX_CALLS,
    MAX_HELD_FDS,
    MAX_POOLS,
)
from nnburst.hal.errors import ResourceExhausted

#: Share of the machine's memory that one worker may have for itself; pools, which it shares, do not count.
_MEMORY_SHARE: Final = 0.5


#: Descriptors that no quota counts by themselves: rings, fences that are signalled, what executors open.
_OTHER_FDS: Final = 3072


class Quota:
    """So much of something that the client may have at once. Thread-safe.

    Attributes:
        limit: how much.
    """

    def __init__(self, name: str, limit: int) -> None:
        """Allow `limit`; `name` is what messages call it."""
        self.limit = limit
        self._name = name
        # Reentrant: the garbage collector may give a charge back in the middle of taking another.
        self._lock = threading.RLock()
        self._taken = 0

    @property
    def taken(self) -> int:
        """How much is in use."""
        return self._taken

    def charge(self, amount: int = 1) -> Charge:
        """Take `amount` until the charge is closed, or it cannot be reached any more.

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
        """For `Charge`."""
        with self._lock:
            self._taken -= amount


class Charge:
    """Part of a quota that is in use.

    Attributes:
        amount: how much.
    """

    __slots__ = ("_quota", "amount")

    def __init__(self, quota: Quota) -> None:
        """Use `Quota.charge`."""
        self._quota = quota
        self.amount = 0

    def close(self) -> None:
        """Give it back; the second time does nothing."""
        amount, self.amount = self.amount, 0
        if amount:
            self._quota.release(amount)

    def __del__(self) -> None:
        self.close()


def machine_memory() -> int:
    """Bytes of memory that the machine has."""
    return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGESIZE")


#: Pools of which the driver holds the descriptor.
POOLS: Final = Quota("pools", MAX_POOLS)
#: Descriptors of fences and cache files that outlive the call which brought them.
HELD_FDS: Final = Quota("descriptors of fences and cache files", MAX_HELD_FDS)
#: Bytes mapped of pools, rings and buffers: as much as the machine has, over all charges.
SHARED_BYTES: Final = Quota("bytes of pools, rings and buffers", machine_memory())


def call_budget() -> CallBudget:
    """What the client's calls in progress may take."""
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return CallBudget(Cost(MAX_CALLS, min(MAX_CALL_FDS, _spare(soft)), MAX_CALL_BYTES))


def _spare(files: int) -> int:
    """Descriptors for each of three quotas, if the process may have `files`."""
    return max(64, (files - _OTHER_FDS) // 3)


def memory_quota() -> int:
    """Bytes of private memory that a worker may take beyond what it starts with."""
    return int(machine_memory() * _MEMORY_SHARE)


def _in_use() -> int:
    """Bytes that count against the limit already: a sanitizer's are more than any machine has."""
    # No regular expression: compiling one touches a hundred pages of a process that has just been forked.
    _, found, rest = Path("/proc/self/status").read_text().partition("\nVmData:")
    return int(rest.split(None, 1)[0]) * 1024 if found else 0


def limit_this_process() -> None:
    """Keep this process and its threads within the quotas; a lower limit that is in force stays.

    What goes beyond is a MemoryError there, and RESOURCE_EXHAUSTED for the client.
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
