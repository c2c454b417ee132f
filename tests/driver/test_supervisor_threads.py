"""A supervisor that would fork with a second thread refuses, and names it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from nnburst.client.launch import driver_environment

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
