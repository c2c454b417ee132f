"""A supervisor that would fork with a second thread refuses, and names it."""

from __future__ import annotations

import subprocess
import sys
import threading
from pathlib import Path

import pytest

from nnburst._native import lib
from nnburst.client.launch import driver_environment
from nnburst.driver.service.supervisor import _other_threads

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
    done = subprocess.run(
        [sys.executable, "-c", WITH_A_THREAD, tmp_path / "driver.sock"],
        env=driver_environment() | {"NNBURST_EMULATED": emulated, "OPENBLAS_NUM_THREADS": "1"},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    assert expected in done.stdout + done.stderr
    assert (done.returncode == 0) == (emulated == "1")


def test_threads_that_end_while_their_names_are_read_are_left_out() -> None:
    named, stop = threading.Event(), threading.Event()

    def stay() -> None:
        lib.nnb_set_thread_name(b"stays")
        named.set()
        stop.wait()

    def end_one_by_one() -> None:
        while not stop.is_set():
            brief = threading.Thread(target=stop.is_set)
            brief.start()
            brief.join()

    threads = [threading.Thread(target=stay, daemon=True)]
    threads += [threading.Thread(target=end_one_by_one, daemon=True) for _ in range(2)]
    try:
        threads[0].start()
        assert named.wait(60)
        for thread in threads[1:]:
            thread.start()
        found = [_other_threads() for _ in range(2000)]
    finally:
        stop.set()
    for thread in threads:
        thread.join()
    assert all("stays" in names for names in found)
