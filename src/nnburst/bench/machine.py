"""Records the load and the lost time of a machine while something else is measured."""

from __future__ import annotations

import os
import time
from collections import Counter
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final

_STAT: Final = Path("/proc/stat")
#: Columns of a line: its name, then user, nice, system, idle, iowait, irq, softirq, steal.
_STEAL: Final = 8


def stolen_seconds() -> float:
    """Seconds that were stolen from all cores together since boot; mostly in steps of a hundredth."""
    return stolen_ticks(_STAT.read_text(encoding="ascii")) / os.sysconf("SC_CLK_TCK")


def stolen_ticks(stat: str) -> int:
    """The same in ticks, from /proc/stat; 0 for a kernel that does not count steal."""
    first = stat.partition("\n")[0].split()
    return int(first[_STEAL]) if len(first) > _STEAL and first[0] == "cpu" else 0


#: Shares of one core above which figures are doubted.
_STOLEN: Final = 0.02
_OTHERS: Final = 0.10
#: Clock sources that a process reads without a system call.
_QUICK_CLOCKS: Final = ("tsc", "arch_sys_counter")
#: The name of a governor that keeps the frequency.
_STEADY: Final = "performance"
UNKNOWN: Final = "unknown"


@dataclass(frozen=True, slots=True)
class Conditions:
    """The state of a machine during a measurement.

    Attributes:
        load_before: the load average over a minute when it began.
        load_after: when it ended.
        stolen_share: of one core, that the host took.
        others_share: of one core, that processes of others took.
        clock_source: of the kernel.
        governor: of the cores' frequency, "unknown" if the kernel does not say.
    """

    load_before: float
    load_after: float
    stolen_share: float
    others_share: float
    clock_source: str
    governor: str

    @property
    def doubts(self) -> tuple[str, ...]:
        """Why figures should not be trusted; empty if there is no reason."""
        found = []
        if self.stolen_share > _STOLEN:
            found.append(f"the host took {self.stolen_share:.0%} of a core")
        if self.others_share > _OTHERS:
            found.append(f"other processes took {self.others_share:.0%} of a core")
        if self.clock_source not in (*_QUICK_CLOCKS, UNKNOWN):
            found.append(f"the clock source {self.clock_source} is slow to read")
        if self.governor not in (_STEADY, UNKNOWN):
            found.append(f"the governor {self.governor} changes the cores' frequency")
        return tuple(found)

    def as_json(self) -> dict[str, Any]:
        """As `--json` writes it."""
        return {**asdict(self), "doubts": list(self.doubts)}

    def __str__(self) -> str:
        """One line for people, and one for each doubt."""
        line = (
            f"machine: load {self.load_before:.2f} before and {self.load_after:.2f} after,"
            f" {self.stolen_share:.1%} of a core stolen, {self.others_share:.1%} by other processes,"
            f" clock source {self.clock_source}, governor {self.governor}"
        )
        return "\n".join([line, *(f"  not quiet: {doubt}" for doubt in self.doubts)])


class Watch:
    """Looks at the machine from when it is made."""

    def __init__(self) -> None:
        self._load = os.getloadavg()[0]
        self._began = time.perf_counter()
        self._stolen = stolen_seconds()
        self._busy = _busy_seconds()
        self._own = _own_seconds()

    def conditions(self) -> Conditions:
        """The conditions until now. Children count as this process's own once they have ended."""
        wall = max(time.perf_counter() - self._began, 1e-3)
        busy = _busy_seconds() - self._busy - (_own_seconds() - self._own)
        return Conditions(
            load_before=self._load,
            load_after=os.getloadavg()[0],
            stolen_share=max(0.0, (stolen_seconds() - self._stolen) / wall),
            others_share=max(0.0, busy / wall),
            clock_source=_text("/sys/devices/system/clocksource/clocksource0/current_clocksource"),
            governor=_governor(),
        )


def _own_seconds() -> float:
    times = os.times()
    return times.user + times.system + times.children_user + times.children_system


def _busy_seconds() -> float:
    """Seconds that all cores were busy since boot (proc(5): user, nice, system, irq, softirq)."""
    words = _STAT.read_text(encoding="ascii").partition("\n")[0].split()
    if words[0] != "cpu" or len(words) < 8:
        return 0.0
    ticks = [int(word) for word in words[1:8]]
    return sum(ticks[n] for n in (0, 1, 2, 5, 6)) / os.sysconf("SC_CLK_TCK")


def _governor() -> str:
    found = Counter(
        _text(str(path))
        for path in Path("/sys/devices/system/cpu").glob("cpu[0-9]*/cpufreq/scaling_governor")
    )
    return ", ".join(sorted(found)) or UNKNOWN


def _text(path: str) -> str:
    try:
        return Path(path).read_text(encoding="ascii").strip() or UNKNOWN
    except OSError:
        return UNKNOWN
