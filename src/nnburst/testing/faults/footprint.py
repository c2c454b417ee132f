"""Reads the resources of a process from /proc, to compare them before and after a fault."""

from __future__ import annotations

import re
import time
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from nnburst.driver.counters import PAGE_NAME
from nnburst.hal.environment import STRICT_TIMING

_MAPPED_FILE: Final = re.compile(rb"(?:/memfd:|/dev/|socket:)\S*")
#: The process names of a supervisor and of spare workers; a new fork still has its parent's name.
_SUPERVISOR: Final = "nnburst driver"
_WAITING: Final = (_SUPERVISOR, "nnburst spare")
#: Number of a supervisor's descriptors for each spare worker.
_OF_A_SPARE: Final = ("socket:", f"/memfd:{PAGE_NAME}")
_STEP: Final = 0.001
#: Seconds until a process must have released unneeded resources: the documented time is one second, which
#: holds only on a quiet machine.
SETTLED: Final = 1.0 if STRICT_TIMING.read() else 20.0


@dataclass(frozen=True)
class Footprint:
    """The resources of a process. Two footprints of one process are equal if nothing leaked in between.

    Attributes:
        fds: number of descriptors by kind.
        memfds: number of descriptors of shared memory.
        maps: number of mappings of shared memory.
        threads: number of threads.
        children: pids of child processes, zombies included, spare workers excluded.

    Spare workers, their socket pairs and their pages of counters are not counted: a spare worker may become a
    client's worker at any time, and another one then takes its place.
    """

    fds: dict[str, int]
    memfds: int
    maps: int
    threads: int
    children: frozenset[int]

    def excess(self, baseline: Footprint) -> str:
        """The resources beyond `baseline`, in words; empty if there are not any."""
        found = {
            "fds": sum(self.fds.values()) - sum(baseline.fds.values()),
            "memfds": self.memfds - baseline.memfds,
            "maps": self.maps - baseline.maps,
            "threads": self.threads - baseline.threads,
            "children": len(self.children - baseline.children),
        }
        more = [f"{count} {what}" for what, count in found.items() if count > 0]
        kinds = Counter(self.fds) - Counter(baseline.fds)
        return f"{', '.join(more)} more ({dict(kinds)})" if more else ""


def footprint(pid: int) -> Footprint:
    """The present resources of process `pid`.

    Raises:
        FileNotFoundError: there is no such process.
    """
    process = Path(f"/proc/{pid}")
    spare = len(spares(pid))
    fds = Counter(_kinds(process / "fd"))
    for kind in _OF_A_SPARE:
        fds[kind] -= spare
    return Footprint(
        fds=dict(+fds),
        memfds=sum(count for kind, count in fds.items() if kind.startswith("/memfd:")),
        maps=len(_MAPPED_FILE.findall((process / "maps").read_bytes())),
        threads=len(list((process / "task").iterdir())),
        children=frozenset(children(pid)),
    )


def children(pid: int) -> list[int]:
    """The child processes of `pid`, zombies included, but for spare workers."""
    found, waiting = _all_children(pid), spares(pid)
    return [child for child in found if child not in waiting]


def spares(pid: int) -> list[int]:
    """The workers of supervisor `pid` that have no client yet."""
    if _name(pid) != _SUPERVISOR:
        return []
    return [child for child in _all_children(pid) if _name(child) in _WAITING]


def _all_children(pid: int) -> list[int]:
    return [int(child) for line in _of_threads(pid, "children") for child in line.split()]


def command_line(pid: int) -> list[bytes]:
    """The arguments that `pid` was started with; empty if it has ended."""
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
    except (FileNotFoundError, ProcessLookupError):
        return []


def _name(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/comm").read_text().strip()
    except (FileNotFoundError, ProcessLookupError):
        return ""


def proportional_bytes(pid: int) -> int:
    """Resident memory of `pid`; memory that n processes share counts 1/n in each (Pss).

    Raises:
        FileNotFoundError: there is no such process.
    """
    return _kibibytes(Path(f"/proc/{pid}/smaps_rollup"), "Pss") * 1024


def resident_bytes(pid: int) -> int:
    """Resident memory of `pid`, shared or not, without pages of files; 0 for a zombie.

    The kernel may reclaim pages of files at any time, which would hide growth of the rest.
    """
    status = Path(f"/proc/{pid}/status")
    return (_kibibytes(status, "RssAnon") + _kibibytes(status, "RssShmem")) * 1024


def _kibibytes(file: Path, name: str) -> int:
    found = re.search(rf"^{name}:\s+(\d+) kB", file.read_text(), re.MULTILINE)
    return int(found[1]) if found else 0


def is_running(pid: int) -> bool:
    """Whether process `pid` exists and is not a zombie."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):
        return False


def thread_states(pid: int) -> set[str]:
    """The states of the threads of `pid`: R running, S asleep, T stopped, ..."""
    return {stat.rpartition(")")[2].split()[0] for stat in _of_threads(pid, "stat")}


def settle(pid: int, baseline: Footprint, seconds: float = SETTLED) -> float:
    """Wait until process `pid` holds no more than `baseline`.

    Args:
        pid: pid of a process that keeps running.
        baseline: its earlier resources.
        seconds: time limit.

    Returns:
        The time that this took, in seconds.

    Raises:
        AssertionError: the process holds more after that time; the message names the difference.
    """
    began = time.monotonic()
    while excess := footprint(pid).excess(baseline):
        waited = time.monotonic() - began
        if waited > seconds:
            raise AssertionError(f"process {pid} holds {excess} after {waited:.2f} s")
        time.sleep(_STEP)
    return time.monotonic() - began


def _of_threads(pid: int, name: str) -> list[str]:
    """The contents of /proc file `name` for every thread of `pid`, except threads that have just ended."""
    texts = []
    for task in Path(f"/proc/{pid}/task").iterdir():
        try:
            texts.append((task / name).read_text())
        except (FileNotFoundError, ProcessLookupError):
            continue
    return texts


def _kinds(folder: Path) -> list[str]:
    """The kind of each descriptor, possibly with the one that reads the folder."""
    kinds = []
    for link in folder.iterdir():
        try:
            kinds.append(re.sub(r"\[\d+\]| \(deleted\)", "", str(link.readlink())))
        except FileNotFoundError:
            continue
    return [kind for kind in kinds if kind != str(folder)]
