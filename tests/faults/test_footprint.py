"""The footprint of a process: the resources that it shows, and the ones that count as leaked."""

from __future__ import annotations

import os

import pytest

from faults.processes import wait_until_gone
from nnburst.testing.faults.footprint import footprint, is_running
from programs import run_program

#: In a process of its own: what earlier tests have left would go meanwhile, and hide as much.
_LEAK = """
import os

import numpy  # whose library has threads of its own, and which the first mapped array would import

from nnburst.fmq.shared_memory import SharedMemory
from nnburst.testing.faults.footprint import footprint, settle

before = footprint(os.getpid())
memory = SharedMemory.create(4096, "leak")
assert "1 fds, 1 memfds more ({'/memfd:leak': 1})" in footprint(os.getpid()).excess(before)
view = memory.map(writable=True)
memory.close()
assert footprint(os.getpid()).excess(before) == "1 maps more ({})"
try:
    settle(os.getpid(), before, 0.01)
except AssertionError as error:
    assert "holds 1 maps more" in str(error)
else:
    raise SystemExit("the mapping was not seen")
del view
assert settle(os.getpid(), before) < 1
"""


#: Likewise: a thread that an earlier test has left would end meanwhile.
_THREADS_AND_CHILDREN = """
import os
import signal
import subprocess
import threading

from nnburst.testing.faults.footprint import children, footprint, is_running, settle, thread_states

before, release = footprint(os.getpid()), threading.Event()
thread = threading.Thread(target=release.wait)
thread.start()
with subprocess.Popen(["sleep", "60"]) as child:
    assert child.pid in children(os.getpid())
    assert "1 threads, 1 children more" in footprint(os.getpid()).excess(before)
    child.send_signal(signal.SIGSTOP)
    os.waitid(os.P_PID, child.pid, os.WSTOPPED)
    assert thread_states(child.pid) == {"T"}
    child.kill()
    os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)
    assert not is_running(child.pid)  # a zombie
    assert child.pid in children(os.getpid())
release.set()
thread.join()
settle(os.getpid(), before)
"""


def test_descriptors_and_mappings_of_shared_memory_are_seen() -> None:
    assert run_program(_LEAK) == ""


def test_threads_and_children_are_seen_until_they_have_ended() -> None:
    assert run_program(_THREADS_AND_CHILDREN) == ""


def test_process_that_does_not_exist_is_not_running() -> None:
    assert not is_running(0)
    with pytest.raises(FileNotFoundError):
        footprint(0)
    with pytest.raises(AssertionError, match="is there after"):
        wait_until_gone(os.getpid(), 0.0)
