"""Reads the resources of a process from /proc, for comparing them before a fault and after it."""

from __future__ import annotations

import re
import time
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from nnburst.driver.counters import PAGE_NAME
from nnburst.hal.environment import STRICT_TIMING

_MAPPED_FILE: Final = re.compile(r"(?:/memfd:|/dev/|socket:)\S*")
#: The names of a supervisor, and of workers that wait for a client: a fork has its parent's name at first.
_SUPERVISOR: Final = "nnburst driver"
_WAITING: Final = (_SUPERVISOR, "nnburst spare")
#: A supervisor's descriptors for each spare worker.
_OF_A_SPARE: Final = ("socket:", f"/memfd:{PAGE_NAME}")
_STEP: Final = 0.001
#: Seconds until a process must have given back what it does not need: promised is one, which only a quiet
#: machine keeps.
SETTLED: Final = 1.0 if STRICT_TIMING.read() else 20.0


@dataclass(frozen=True)
class Footprint:
    """The resources of a process. Two of one process are equal if nothing was leaked between them.

    Attributes:
        fds: descriptors, counted by kind.
        memfds: those of them that are shared memory.
        maps: mappings of shared memory.
        threads: of the process.
        children: pids, zombies included, of others than spare workers.

    A spare worker, the supervisor's end of the pair that leads to it and its page of counters are counted
    in none: it may become a client's worker at any time, and others take its place.
    """

    fds: dict[str, int]
    memfds: int
    maps: int
    threads: int
    children: frozenset[int]

    def excess(self, baseline: Footprint) -> str:
        """The resources beyond `baseline`, in words; empty if there are no more."""
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
        maps=len(_MAPPED_FILE.findall((process / "maps").read_text())),
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
    """The words that `pid` was started with; none if it has ended."""
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

    The kernel takes a file's pages back when it likes, which would hide that the rest has grown.
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
    """The states that the threads of `pid` are in: R running, S asleep, T stopped, ..."""
    return {stat.rpartition(")")[2].split()[0] for stat in _of_threads(pid, "stat")}


def settle(pid: int, baseline: Footprint, seconds: float = SETTLED) -> float:
    """Wait until process `pid` holds no more than `baseline`.

    Args:
        pid: of a process that goes on.
        baseline: its resources before.
        seconds: until then.

    Returns:
        Seconds that it took.

    Raises:
        AssertionError: it holds more after that time; the message names the difference.
    """
    began = time.monotonic()
    while excess := footprint(pid).excess(baseline):
        waited = time.monotonic() - began
        if waited > seconds:
            raise AssertionError(f"process {pid} holds {excess} after {waited:.2f} s")
        time.sleep(_STEP)
    return time.monotonic() - began


def _of_threads(pid: int, name: str) -> list[str]:
    """File `name` of every thread of `pid`; one that has just ended has none."""
    texts = []
    for task in Path(f"/proc/{pid}/task").iterdir():
        try:
            texts.append((task / name).read_text())
        except (FileNotFoundError, ProcessLookupError):
            continue
    return texts


def _kinds(folder: Path) -> list[str]:
    """The kind of each descriptor; the one that reads the folder may be among them."""
    kinds = []
    for link in folder.iterdir():
        try:
            kinds.append(re.sub(r"\[\d+\]| \(deleted\)", "", str(link.readlink())))
        except FileNotFoundError:
            continue
    return [kind for kind in kinds if kind != str(folder)]
