"""Workers of a service run before other programs and stay in memory if its owner asks for it."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

import nnburst
from nnburst.testing.raw_peer import PATIENCE

#: Lowers its limits, which for root count only without these capabilities, and becomes the command after it.
LOWERED = """
import ctypes, os, resource, sys
PR_CAPBSET_DROP, CAP_IPC_LOCK, CAP_SYS_NICE = 24, 14, 23
resource.setrlimit(resource.RLIMIT_RTPRIO, (0, 0))
resource.setrlimit(resource.RLIMIT_MEMLOCK, (1 << 16, 1 << 16))
for capability in (CAP_IPC_LOCK, CAP_SYS_NICE) if os.getuid() == 0 else ():
    assert ctypes.CDLL(None).prctl(PR_CAPBSET_DROP, capability) == 0
os.execv(sys.argv[1], sys.argv[1:])
"""


def permits_realtime() -> bool:
    try:
        before = os.sched_getscheduler(0)
        os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(1))
        os.sched_setscheduler(0, before, os.sched_param(0))
    except OSError:
        return False
    return True


@contextmanager
def serving(address: Path, *words: str, lowered: bool = False) -> Iterator[subprocess.Popen[str]]:
    command = [sys.executable, "-m", "nnburst", "serve", str(address), "--executor", "null", *words]
    if lowered:
        command = [sys.executable, "-I", "-c", LOWERED, *command]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        try:
            yield process
        finally:
            process.kill()


def locked_bytes(pid: int) -> int:
    found = re.search(r"^VmLck:\s+(\d+)", Path(f"/proc/{pid}/status").read_text(), re.MULTILINE)
    return int(found[1]) * 1024 if found else 0


@pytest.mark.skipif(not permits_realtime(), reason="SCHED_FIFO is not permitted here")
def test_every_thread_of_a_worker_with_a_client_is_realtime_and_its_memory_locked(
    tmp_path: Path,
) -> None:
    with serving(tmp_path / "driver", "--realtime", "7", "--lock-memory") as service:
        assert service.stdout is not None
        service.stdout.readline()
        with nnburst.connect(tmp_path / "driver") as device:
            threads = [int(name) for name in os.listdir(f"/proc/{device.pid}/task")]
            assert {os.sched_getscheduler(thread) for thread in threads} == {os.SCHED_FIFO}
            assert {os.sched_getparam(thread).sched_priority for thread in threads} == {7}
            assert locked_bytes(device.pid) > 1 << 20
            assert os.sched_getscheduler(service.pid) == os.SCHED_OTHER
            assert locked_bytes(service.pid) == 0


@pytest.mark.every_day("100")
@pytest.mark.parametrize("priority", ["100", "1000"])
def test_a_priority_that_does_not_exist_is_refused(priority: str, tmp_path: Path) -> None:
    with serving(tmp_path / "driver", f"--realtime={priority}") as service:
        _, shown = service.communicate(timeout=PATIENCE)
    assert service.returncode == 1
    assert f"realtime: {priority}, expected 1 to 99" in shown


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--realtime", "7"), r"realtime: 7: the system refuses SCHED_FIFO .* RLIMIT_RTPRIO is 0,"),
        (("--lock-memory",), r"lock-memory: RLIMIT_MEMLOCK is 64 KiB, expected no limit"),
    ],
)
def test_a_limit_in_the_way_is_named(words: tuple[str, ...], said: str, tmp_path: Path) -> None:
    with serving(tmp_path / "driver", *words, lowered=True) as service:
        _, shown = service.communicate(timeout=PATIENCE)
    assert service.returncode == 1
    assert re.search(said, shown), shown
    assert len(shown.strip().splitlines()) == 1
