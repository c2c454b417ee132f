"""Runs one road under a resource limit, and writes its outcome to a file.

    python -m faults.under_limits ROAD FILE [LIMIT=VALUE]

A limit is set after all imports; the caller sets limits that are needed earlier. The file gets an empty line
for a right result, else the error's type and message.
"""

from __future__ import annotations

import faulthandler
import os
import resource
import subprocess
import sys
import time
import warnings
from pathlib import Path

import numpy as np

import nnburst
from faults.roads import ROADS, Kept
from nnburst.testing.faults.activities import check_sum, sum_model, summands

#: Seconds that a road may take.
GUARD = 60


def serve() -> None:
    """A service with a name of its own, and a client of it."""
    name = f"limits-{os.getpid()}"
    command = [sys.executable, "-m", "nnburst", "serve", name, "--executor", "reference"]
    quiet = {
        "stdin": subprocess.DEVNULL,
        "stdout": subprocess.DEVNULL,
        "stderr": subprocess.DEVNULL,
    }
    service = subprocess.Popen(command, **quiet)  # type: ignore[call-overload]
    try:
        with _connected(name, service) as device, device.prepare(sum_model()) as prepared:
            check_sum(prepared.execute(summands(8)).outputs[0], 8)
    finally:
        service.terminate()
        service.wait(20)


def _connected(name: str, service: subprocess.Popen[bytes]) -> nnburst.Device:
    """A device of the service, which may not listen yet."""
    deadline = time.monotonic() + 20
    while True:
        try:
            return nnburst.connect(name, timeout=20)
        except nnburst.DeviceUnavailable:
            if service.poll() is not None or time.monotonic() > deadline:
                raise
            time.sleep(0.01)  # of another process, which does not notify anyone


def compile_model() -> None:
    """A model on the devices that the framework finds, with files that it keeps."""
    with nnburst.compile(sum_model(), timeout=30) as compiled:
        check_sum(compiled.execute(summands(9)).outputs[0], 9)


def drive(name: str) -> None:
    """Run one of the roads in `roads.py`."""
    around = ROADS[name]()
    road = next(around)
    kept = Kept()
    road(kept)
    kept.close()
    for _ in around:
        raise AssertionError("a road is one")


def limit(what: str) -> None:
    """Set a limit of this process and its children."""
    name, _, text = what.partition("=")
    if name == "AS":
        pages = int(Path("/proc/self/statm").read_text().split()[0])
        value = pages * resource.getpagesize() + int(text)
    else:
        value = int(text)
    number = getattr(resource, f"RLIMIT_{name}")
    resource.setrlimit(number, (value, resource.getrlimit(number)[1]))


def main() -> None:
    """Run the command; see the module."""
    stuck = Path(sys.argv[2] + ".stuck").open("w")  # noqa: SIM115 - to the end
    faulthandler.dump_traceback_later(GUARD, exit=True, file=stuck)
    warnings.simplefilter("ignore")
    road, place = sys.argv[1:3]
    np.zeros(1)
    # This imports it: without memory, CPython's import ends with a SystemError or a crash.
    _ = nnburst.compile
    out = os.open(place, os.O_WRONLY | os.O_CREAT)
    for what in sys.argv[3:]:
        limit(what)
    try:
        {"serve": serve, "compile": compile_model}.get(road, lambda: drive(road))()
        found = ""
    except BaseException as error:
        ours = isinstance(error, (nnburst.NnburstError, MemoryError))
        found = f"{'' if ours else 'not ours: '}{type(error).__name__}: {error}"
    resource.setrlimit(resource.RLIMIT_FSIZE, (resource.getrlimit(resource.RLIMIT_FSIZE)[1],) * 2)
    os.write(out, (found + "\n").encode())


if __name__ == "__main__":
    main()
