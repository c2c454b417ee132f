"""Processes that a benchmark has started end with it, even if it is killed."""

from __future__ import annotations

import contextlib
import os
import select
import signal
import subprocess
import sys

import pytest

from nnburst.testing.faults.footprint import children

_PROGRAM = """
import sys
from contextlib import ExitStack
from nnburst.bench import burst_cases
with ExitStack() as stack:
    kept = getattr(burst_cases, sys.argv[1])(stack, int(sys.argv[2]))
    print("started", flush=True)
    input()
"""


@pytest.mark.parametrize("cases", ["opening_cases", "open_rivals"])
def test_processes_of_a_killed_benchmark_end(cases: str) -> None:
    core = min(os.sched_getaffinity(0))
    with subprocess.Popen(
        [sys.executable, "-c", _PROGRAM, cases, str(core)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as program:
        assert program.stdout is not None
        assert program.stdout.readline() == "started\n"
        started = [os.pidfd_open(pid) for pid in children(program.pid)]
        program.kill()
    assert started
    try:
        for process in started:
            assert select.select([process], [], [], 60)[0], "a process goes on"
    finally:
        for process in started:
            with contextlib.suppress(ProcessLookupError):
                signal.pidfd_send_signal(process, signal.SIGTERM)
            os.close(process)
