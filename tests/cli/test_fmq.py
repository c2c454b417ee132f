"""`nnburst fmq` as it is typed."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import uuid
from pathlib import Path

import pytest

pytest.importorskip("posix_ipc", reason="there is no posix_ipc for this Python")

from nnburst.cli import main
from nnburst.fmq import create_named_queue

KILLED = """
import os, signal, sys
from nnburst.fmq import create_named_queue
queue = create_named_queue(sys.argv[1], bytes, 4096)
os.kill(os.getpid(), signal.SIGKILL)
"""


def test_queues_in_use_and_stale_names_are_listed_and_only_those_are_removed(
    capsys: pytest.CaptureFixture[str],
) -> None:
    prefix = f"/nnburst-test-{uuid.uuid4().hex[:8]}"
    stale, used = f"{prefix}-a", f"{prefix}-b"
    subprocess.run([sys.executable, "-c", KILLED, stale], check=False, timeout=60)
    with create_named_queue(used, "<u4", 16):
        assert main(["fmq", prefix, "--json", "-"]) == 0
        captured = capsys.readouterr()
        found = {queue["name"]: queue for queue in json.loads(captured.out)["queues"]}
        assert (found[stale]["is_stale"], found[stale]["quantum"]) == (True, 1)
        assert (found[used]["is_stale"], found[used]["pid"]) == (False, os.getpid())
        assert "stale" in captured.err
        assert "in use" in captured.err
        assert main(["fmq", prefix, "--remove", "--json", "-"]) == 0
        removed = [queue["name"] for queue in json.loads(capsys.readouterr().out)["removed"]]
        assert stale in removed
        assert used not in removed
        assert Path(f"/dev/shm{used}").exists()
    assert not Path(f"/dev/shm{stale}").exists()
    assert not Path(f"/dev/shm{used}").exists()
