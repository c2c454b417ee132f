"""A client cannot make its worker take the whole machine."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import nnburst
from nnburst.driver.quotas import memory_quota

ALLOCATE = """
import mmap, numpy
from nnburst.driver.quotas import limit_this_process, memory_quota
limit_this_process()
limit_this_process()  # twice is fine
numpy.empty(1 << 20, "u1")
mmap.mmap(-1, memory_quota() + 1)  # shared memory does not count
try:
    numpy.empty(memory_quota() + (1 << 20), "u1")
except MemoryError:
    print("refused")
"""


def test_memory_beyond_the_quota_is_a_memory_error() -> None:
    command = [sys.executable, "-c", ALLOCATE]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout == "refused\n"


def test_worker_is_limited() -> None:
    with nnburst.launch("null") as device:
        limits = Path(f"/proc/{device.pid}/limits").read_text().splitlines()
    (data,) = (line for line in limits if line.startswith("Max data size"))
    assert int(data.split()[3]) < 2 * memory_quota()
