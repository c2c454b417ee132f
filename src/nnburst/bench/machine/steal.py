"""How much of the cores' time the host of a virtual machine gave to others (proc(5): /proc/stat)."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Final

_STAT: Final = Path("/proc/stat")
#: Columns of a line: its name, then user, nice, system, idle, iowait, irq, softirq, steal.
_STEAL: Final = 8


def stolen_seconds() -> float:
    """Seconds that were stolen from all cores together since boot; mostly in steps of a hundredth."""
    return stolen_ticks(_STAT.read_text(encoding="ascii")) / os.sysconf("SC_CLK_TCK")


def stolen_ticks(stat: str) -> int:
    """The same in ticks, from what /proc/stat has; 0 for a kernel that does not count steal."""
    first = stat.partition("\n")[0].split()
    return int(first[_STEAL]) if len(first) > _STEAL and first[0] == "cpu" else 0
