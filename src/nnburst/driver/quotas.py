"""What one client's worker may use up of the machine; counts are in `nnburst.control.limits`."""

from __future__ import annotations

import os
import re
import resource
from pathlib import Path
from typing import Final

#: Share of the machine's memory that one worker may have for itself; pools, which it shares, do not count.
_MEMORY_SHARE: Final = 0.5


def memory_quota() -> int:
    """Bytes of private memory that a worker may take beyond what it starts with."""
    machine = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGESIZE")
    return int(machine * _MEMORY_SHARE)


def _in_use() -> int:
    """Bytes that count against the limit already: a sanitizer's are more than any machine has."""
    found = re.search(r"^VmData:\s+(\d+) kB", Path("/proc/self/status").read_text(), re.MULTILINE)
    return int(found[1]) * 1024 if found else 0


def limit_this_process() -> None:
    """Keep this process and its threads within the quotas; a lower limit that is in force stays.

    What goes beyond is a MemoryError there, and RESOURCE_EXHAUSTED for the client.
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_DATA)
    limits = [limit for limit in (soft, hard) if limit != resource.RLIM_INFINITY]
    quota = min([_in_use() + memory_quota(), *limits])
    resource.setrlimit(resource.RLIMIT_DATA, (quota, quota))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))  # a client must not fill the disk with crashes
