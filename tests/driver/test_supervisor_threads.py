"""A supervisor that would fork with a second thread refuses, and names it."""

from __future__ import annotations

import subprocess
import sys
import threading
from pathlib import Path

import pytest

from nnburst._native import lib
from nnburst.driver.service.supervisor import _other_threads
from nnburst.hal.utils import driver_environment
from waiting import wait_for

#: A driver with a second thread, as profilers and emulators start one.
WITH_A_THREAD = """
import sys, threading
from nnburst._native import lib
from nnburst.driver.service.main import main

begun, stay = threading.Event(), threading.Event()
def work():
    lib.nnb_set_thread_name(b"profiler")
    begun.set()
    stay.wait()
threading.Thread(target=work, daemon=True).start()
begun.wait()
words = ["--executor", "reference", "--serve", sys.argv[1], "--until-stdin-ends"]
sys.exit(main([*words, "--share-weights", "off"]))
"""


@pytest.mark.parametrize(("emulated", "expected"), [("0", "profiler"), ("1", "listens at")])
def test_second_thread_is_named_or_let_be_on_an_emulator(
    emulated: str, expected: str, tmp_path: Path
) -> None:
    with subprocess.Popen(
        [sys.executable, "-c", WITH_A_THREAD, tmp_path / "driver.sock"],
        env=driver_environment() | {"NNBURST_EMULATED": emulated, "OPENBLAS_NUM_THREADS": "1"},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdout is not None
        first = process.stdout.readline()  # at the end of a process that refuses, too
        _, errors = process.communicate(timeout=120)
    assert expected in first + errors
    assert (process.returncode == 0) == (emulated == "1")


def test_threads_that_end_while_their_names_are_read_are_left_out(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    named, stop = threading.Barrier(3), {name: threading.Event() for name in ("stays", "ends")}

    def work(name: str) -> None:
        lib.nnb_set_thread_name(name.encode())
        named.wait(60)
        stop[name].wait()

    threads = {name: threading.Thread(target=work, args=[name], daemon=True) for name in stop}
    list_tasks = Path.iterdir

    def list_then_end_one(folder: Path) -> list[Path]:
        tasks = list(list_tasks(folder))
        own = Path(f"/proc/self/task/{threads['ends'].native_id}")
        assert own in tasks
        stop["ends"].set()
        wait_for(lambda: own not in list_tasks(folder))
        return tasks

    for thread in threads.values():
        thread.start()
    named.wait(60)
    try:
        with monkeypatch.context() as meanwhile:
            meanwhile.setattr(Path, "iterdir", list_then_end_one)
            found = _other_threads()
    finally:
        for event in stop.values():
            event.set()
    assert "stays" in found
    assert "ends" not in found
