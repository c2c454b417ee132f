"""What has passed its trial run is not tried again before the machine starts anew.

A trial is a process that is forked from a driver while it imports; that and the pages which both then copy
take 4 ms of each start. So it is noted beside Python's compiled files what passed, by all that the outcome
depends on: both libraries as they are, the start of the machine, and what a loader is told. A failure is
never noted. Trust is that in compiled files: who can write these can write that.
"""

from __future__ import annotations

import contextlib
import os
import sys
from pathlib import Path
from typing import Final

_BOOT: Final = Path("/proc/sys/kernel/random/boot_id")
#: What changes which libraries a loader takes.
_LOADER: Final = ("LD_LIBRARY_PATH", "LD_PRELOAD", "LD_BIND_NOW")


def facts(*files: str) -> str:
    """What the outcome of a trial depends on that uses `files`; empty if that cannot be read."""
    try:
        boot = _BOOT.read_text()
        return "\n".join([boot, *map(_about, files), *map(_variable, _LOADER)])
    except OSError:
        return ""


def _about(path: str) -> str:
    found = os.stat(path)  # noqa: PTH116 - of a text, as it is noted
    times = found.st_mtime_ns, found.st_ctime_ns
    return f"{path} {found.st_dev} {found.st_ino} {found.st_size} {times}"


def _variable(name: str) -> str:
    return f"{name}={os.environ.get(name, '')!r}"


def has_passed(now: str) -> bool:
    """Whether a trial with the facts `now` has passed."""
    with contextlib.suppress(OSError, ValueError):
        return bool(now) and place().read_text() == now
    return False


def note(now: str) -> None:
    """Note that a trial with the facts `now` has passed, unless Python may keep no compiled files."""
    if sys.dont_write_bytecode or not now:
        return
    with contextlib.suppress(OSError):
        temporary = place().with_suffix(f".{os.getpid()}")
        temporary.write_text(now)
        temporary.replace(place())


def place() -> Path:
    """Where it is noted."""
    cached = __spec__.cached if __spec__ is not None else None
    return Path(cached or __file__).with_suffix(".txt")
