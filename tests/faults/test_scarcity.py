"""Too few descriptors, threads or addresses: typed errors, no leaks, and the next call works."""

from __future__ import annotations

import json
from typing import Any

import pytest

from programs import run_program

#: Calls `road` with ever more descriptors or threads free, until it works, and prints what came of each call.
_PROGRAM = """
import contextlib, gc, json, os, resource, threading, warnings
from pathlib import Path
import numpy as np
import nnburst
import nnburst.hal
from interrupting import threads_that_start
from nnburst.testing.faults.activities import check_sum, sum_model, summands

warnings.simplefilter("error")

def launch():
    nnburst.launch("null").close()

def open_burst():
    prepared.open_burst().close()

def fence():
    fence, signaller = nnburst.hal.SyncFence.create()
    fence.close()
    signaller.close()

def open_descriptors():
    gc.collect()
    found = []
    for fd in map(int, os.listdir("/proc/self/fd")):
        try:
            os.fstat(fd)
        except OSError:
            continue  # the listing's own
        found.append(fd)
    return sorted(found)

def hog(free):
    taken = []
    try:
        while True:
            taken.append(os.open("/dev/null", os.O_RDONLY))
    except OSError:
        pass
    for fd in taken[len(taken) - free:]:
        os.close(fd)
    return taken[:len(taken) - free]

def limited(free):
    if scarce == "descriptors":
        taken = hog(free)
        try:
            roads[road]()
        finally:
            for fd in taken:
                os.close(fd)
    else:
        with threads_that_start(free):
            roads[road]()

def children():
    found = []
    for stat in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(FileNotFoundError, ProcessLookupError):  # it has just ended
            found.append(stat.read_text().rpartition(")")[2].split())
    return sum(int(fields[1]) == os.getpid() for fields in found)

roads = {"launch": launch, "open_burst": open_burst, "fence": fence}
resource.setrlimit(resource.RLIMIT_NOFILE, (256, resource.getrlimit(resource.RLIMIT_NOFILE)[1]))
outcomes = []
with nnburst.launch("reference") as device, device.prepare(sum_model()) as prepared:
    roads[road]()
    before = open_descriptors(), children(), threading.active_count()
    for free in range(60):
        try:
            limited(free)
        except BaseException as error:
            outcomes.append(type(error).__name__)
            del error
        else:
            outcomes.append("")
        assert (open_descriptors(), children(), threading.active_count()) == before, (
            free, outcomes, before, open_descriptors(), children(), threading.enumerate())
        if outcomes[-1] == "":
            break
    roads[road]()
print(json.dumps(outcomes))
"""


def outcomes(road: str, scarce: str) -> list[str]:
    printed = run_program(f"road, scarce = {road!r}, {scarce!r}\n{_PROGRAM}")
    lines = printed.strip().splitlines()
    assert lines, "the program printed nothing"
    assert lines[-1].startswith("["), printed
    found: Any = json.loads(lines[-1])
    return [str(one) for one in found]


@pytest.mark.every_day("fence-descriptors")
@pytest.mark.parametrize(
    ("road", "scarce"),
    [
        ("launch", "descriptors"),
        ("launch", "threads"),
        ("open_burst", "descriptors"),
        ("fence", "descriptors"),
    ],
)
def test_a_call_that_lacks_something_is_refused_and_leaks_nothing(road: str, scarce: str) -> None:
    found = outcomes(road, scarce)
    assert found[-1] == "", "it works once there is enough"
    assert len(found) > 2
    assert set(found[:-1]) == {"ResourceExhausted"}


def test_a_burst_that_may_have_no_thread_leaves_the_model_usable() -> None:
    printed = run_program(
        """
import threading
import nnburst
from nnburst.testing.faults.activities import check_sum, sum_model, summands

with nnburst.launch("reference") as device, device.prepare(sum_model()) as prepared:
    for _ in range(3):
        before = threading.stack_size(1 << 47)
        try:
            prepared.open_burst()
        except nnburst.ResourceExhausted as error:
            print(error)
        threading.stack_size(before)
    with prepared.open_burst() as burst:
        check_sum(burst.execute(summands(5)).outputs[0], 5)
"""
    )
    assert printed.count("cannot start the thread") == 3, printed
    assert "Traceback" not in printed


@pytest.mark.campaign
def test_little_address_space_is_resource_exhausted() -> None:
    printed = run_program(
        """
import resource
from pathlib import Path
import nnburst
from nnburst.testing.faults.activities import sum_model

kinds = set()
with nnburst.launch("reference") as device, device.prepare(sum_model()) as prepared:
    prepared.open_burst().close()
    used = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    most = resource.getrlimit(resource.RLIMIT_AS)[1]
    for road in (prepared.open_burst, lambda: nnburst.launch("null", env={"NNBURST_TEST": ""})):
        for more in (1 << 21, 1 << 22):
            resource.setrlimit(resource.RLIMIT_AS, (used + more, most))
            try:
                road().close()
            except (nnburst.NnburstError, MemoryError) as error:
                kinds.add(type(error).__name__)
            finally:
                resource.setrlimit(resource.RLIMIT_AS, (most, most))
    prepared.open_burst().close()
    nnburst.launch("null").close()
print("kinds", sorted(kinds))
"""
    )
    assert "Traceback" not in printed, printed
    assert "ResourceExhausted" in printed.splitlines()[-1]
