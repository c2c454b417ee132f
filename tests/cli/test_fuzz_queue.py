"""`nnburst fuzz queue` as it is typed."""

from __future__ import annotations

import json
import multiprocessing
import os
import signal
from pathlib import Path

import pytest

from nnburst.cli import main
from nnburst.testing.fuzzing.packet_fuzzer import fuzz_queues


def test_calls_are_counted_by_what_became_of_them(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    target = tmp_path / "fuzz.json"
    assert main(["fuzz", "queue", "--queues", "12", "--seed", "5", "--json", str(target)]) == 0
    figures = json.loads(target.read_text())
    assert figures["passed"]
    assert figures["queues"] == 12
    assert figures["outcomes"]["QueueCorrupted"] > 0
    assert "QueueCorrupted" in capsys.readouterr().out


def test_process_that_uses_the_queues_ignores_ctrl_c_which_ends_the_command() -> None:
    others = multiprocessing.active_children()

    def interrupt(_done: int) -> None:
        for process in multiprocessing.active_children():
            if process not in others:
                os.kill(process.pid or 0, signal.SIGINT)

    report = fuzz_queues(4, 5, interrupt)
    assert (report.queues, report.failures) == (4, [])
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
