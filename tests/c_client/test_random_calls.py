"""Functions of the client in C in random order with whatever arguments, under the sanitizers."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from c_client.conftest import NETWORKS
from client.service import Service
from nnburst.hal.environment import RANDOM_CALLS

SCRIPT = Path(__file__).resolve().parents[2] / "csrc" / "tests" / "run.sh"

pytestmark = [
    pytest.mark.campaign,
    pytest.mark.skipif(
        not SCRIPT.exists() or shutil.which("gcc") is None,
        reason="needs gcc and the C sources beside the tests",
    ),
]


@pytest.mark.parametrize("sanitizer", ["address", "thread"])
def test_random_calls_do_no_harm_under_the_sanitizers(sanitizer: str) -> None:
    seed = str(os.getpid())
    calls = str(RANDOM_CALLS.read() // 4)  # each is a message or two
    with Service(*NETWORKS, executor="reference") as service:
        done = subprocess.run(
            [str(SCRIPT), sanitizer, "client_calls", service.address, seed, calls],
            capture_output=True, text=True, check=False, timeout=600,
        )  # fmt: skip
    assert done.returncode == 0, f"seed {seed}: {done.stderr[-4000:]}"
    assert done.stderr == ""
    assert done.stdout.startswith(f"{calls} calls: NO_ERROR ")


def test_random_calls_of_queues_do_no_harm_under_the_sanitizers() -> None:
    seed, calls = str(os.getpid()), str(4 * RANDOM_CALLS.read())
    done = subprocess.run(
        [str(SCRIPT), "address", "queue_calls", seed, calls],
        capture_output=True, text=True, check=False, timeout=600,
    )  # fmt: skip
    assert done.returncode == 0, f"seed {seed}: {done.stderr[-4000:]}"
    assert done.stderr == ""
    assert done.stdout.startswith(f"{calls} calls: NO_ERROR ")
