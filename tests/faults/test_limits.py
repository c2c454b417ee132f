"""Resource limits: each road gives a right result or a typed error in time, whatever is lacking."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from faults.under_limits import GUARD
from nnburst.hal.environment import EXAMPLES
from programs import environ_of_tests

#: The road of the everyday tests, which finds devices, keeps files and launches a driver; and further ones.
ROADS = ("compile",)
EVERY = (*ROADS, "launch", "serve", "submit", "await", "plan", "fence", "queue", "c")
FOLDERS = (
    "HOME",
    "TMPDIR",
    "XDG_RUNTIME_DIR",
    "XDG_STATE_HOME",
    "XDG_CACHE_HOME",
    "XDG_CONFIG_HOME",
)
#: Those that count only if no XDG folder is given.
HOMES = FOLDERS[:2]


def taken(
    road: str,
    tmp_path: Path,
    *limits: str,
    prefix: tuple[str, ...] = (),
    without: tuple[str, ...] = (),
    **environment: str,
) -> str:
    """Run a road without some environment variables: "" for a right result, else the error."""
    place = tmp_path / "outcome"
    command = [*prefix, sys.executable, "-m", "faults.under_limits", road, str(place), *limits]
    inherited = {name: value for name, value in environ_of_tests().items() if name not in without}
    process = subprocess.Popen(
        command,
        env={**inherited, **environment},
        cwd=tmp_path,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    try:
        process.wait(3 * GUARD)
    finally:  # a road without memory may have been unable to end its service
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
    stuck = Path(f"{place}.stuck")
    assert process.returncode == 0, (
        process.returncode,
        stuck.read_text() if stuck.exists() else "",
    )
    (line,) = place.read_text().splitlines()[:1]
    return line


def is_fine(outcome: str) -> bool:
    return not outcome.startswith("not ours")


@pytest.fixture(params=[*ROADS, *(pytest.param(r, marks=pytest.mark.campaign) for r in EVERY[1:])])
def road(request: pytest.FixtureRequest) -> str:
    if request.param in EVERY[3:] and EXAMPLES.read() < 1000:
        pytest.skip("a night's campaign takes this road: NNBURST_EXAMPLES=1000")
    return str(request.param)


LIMITS = [
    "NOFILE=16",
    *(pytest.param(f"NOFILE={n}", marks=pytest.mark.campaign) for n in (24, 32, 48, 64)),
    *(pytest.param(f"AS={n << 20}", marks=pytest.mark.campaign) for n in (0, 1, 4, 16, 64)),
    "FSIZE=0",
    pytest.param("FSIZE=4096", marks=pytest.mark.campaign),
]


@pytest.mark.every_day("compile-NOFILE=16")
@pytest.mark.parametrize("limit", LIMITS)
def test_a_limit_of_the_kernel_is_an_error_of_ours(road: str, limit: str, tmp_path: Path) -> None:
    outcome = taken(road, tmp_path, limit)
    assert is_fine(outcome), outcome


def _file(path: Path) -> None:
    path.write_text("no folder")


def _missing(path: Path) -> None:
    del path


def _read_only(path: Path) -> None:
    path.mkdir(mode=0o500)


def _others(path: Path) -> None:
    if os.getuid() != 0:
        pytest.skip("only root makes folders of others")
    path.mkdir(mode=0o700)
    os.chown(path, 65534, 65534)


def _link_to_itself(path: Path) -> None:
    path.symlink_to(path)


KINDS: dict[str, Callable[[Path], None]] = {
    "a file": _file,
    "a FIFO": lambda path: os.mkfifo(path),
    "missing": _missing,
    "read-only": _read_only,
    "another user's": _others,
    "a link to itself": _link_to_itself,
}


@pytest.mark.campaign
@pytest.mark.parametrize("kind", KINDS)
def test_odd_folders_of_the_user_are_no_obstacle(road: str, kind: str, tmp_path: Path) -> None:
    place = tmp_path / "odd"
    KINDS[kind](place)
    outcome = taken(road, tmp_path, **dict.fromkeys(FOLDERS, str(place)))
    assert is_fine(outcome), outcome


@pytest.mark.campaign
@pytest.mark.parametrize("kind", KINDS)
def test_odd_homes_of_users_without_xdg_folders_are_no_obstacle(
    road: str, kind: str, tmp_path: Path
) -> None:
    place = tmp_path / "odd"
    KINDS[kind](place)
    given = dict.fromkeys(HOMES, str(place))
    outcome = taken(road, tmp_path, without=FOLDERS, **given)
    assert is_fine(outcome), outcome


@pytest.mark.campaign
@pytest.mark.parametrize(
    "value", ["", "relative/folder", "/" + "x" * 4000, "/proc/self/mem", "/dev/null"]
)
def test_odd_names_of_folders_are_no_obstacle(road: str, value: str, tmp_path: Path) -> None:
    outcome = taken(road, tmp_path, **dict.fromkeys(FOLDERS, value))
    assert is_fine(outcome), outcome


@pytest.mark.campaign
def test_closed_standard_streams_are_no_obstacle(road: str, tmp_path: Path) -> None:
    closed = ("sh", "-c", 'exec "$@" <&- >&- 2>&-', "sh")
    outcome = taken(road, tmp_path, prefix=closed)
    assert outcome == "", outcome


def _unshared(tmp_path: Path, *mounts: str) -> tuple[str, ...]:
    """Words before a command that run it in mounts of its own."""
    if shutil.which("unshare") is None:
        pytest.skip("unshare is not installed")
    words = ("unshare", "-rm", "sh", "-c")
    script = " && ".join([*mounts, 'exec "$@"'])
    probe = subprocess.run(
        [*words, " && ".join([*mounts, "true"])], capture_output=True, check=False
    )
    if probe.returncode:
        pytest.skip(f"mounts are not permitted here: {probe.stderr.decode().strip()}")
    del tmp_path
    return (*words, script, "sh")


@pytest.mark.campaign
def test_a_full_dev_shm_is_no_obstacle(road: str, tmp_path: Path) -> None:
    mounts = (
        "mount -t tmpfs -o size=4k none /dev/shm",
        "cat /dev/zero > /dev/shm/full 2>/dev/null || true",
    )
    outcome = taken(road, tmp_path, prefix=_unshared(tmp_path, *mounts))
    assert is_fine(outcome), outcome


#: Makes a queue of 8 MiB by name from Python and from C, and fills each with a first MiB if it could.
_QUEUES = """
import ctypes
import sys

from nnburst.capi.installed import CLIENT_LIBRARY
from nnburst.fmq import create_named_queue
from nnburst.hal.errors import ResourceExhausted

try:
    create_named_queue("/nnburst-big", "u1", 8 << 20)
except ResourceExhausted as error:
    print(error)
library = ctypes.CDLL(str(CLIENT_LIBRARY))
library.nnburst_error_message.restype = ctypes.c_char_p
size, queue = ctypes.c_size_t, ctypes.c_void_p()
given = (b"/nnburst-big", 1, size(1), size(8 << 20), None, size(0), ctypes.byref(queue))
print(library.nnburst_create_queue(*given), library.nnburst_error_message().decode())
"""


def test_queue_by_name_for_which_dev_shm_has_no_room_is_refused_when_it_is_made(
    tmp_path: Path,
) -> None:
    prefix = _unshared(tmp_path, "mount -t tmpfs -o size=4m none /dev/shm")
    program = [*prefix, sys.executable, "-c", _QUEUES]
    done = subprocess.run(program, capture_output=True, text=True, timeout=GUARD, check=True)
    python, c = done.stdout.splitlines()
    assert "No space left" in python
    assert c.startswith("1 ")
    assert "No space left" in c


@pytest.mark.campaign
def test_a_missing_proc_is_an_error_of_ours_or_no_obstacle(road: str, tmp_path: Path) -> None:
    outcome = taken(road, tmp_path, prefix=_unshared(tmp_path, "mount -t tmpfs none /proc"))
    assert is_fine(outcome), outcome


@pytest.mark.campaign
def test_too_many_processes_are_an_error_of_ours(road: str, tmp_path: Path) -> None:
    if os.getuid() == 0:
        pytest.skip("the kernel does not count root's processes")
    outcome = taken(road, tmp_path, "NPROC=1")
    assert is_fine(outcome), outcome
