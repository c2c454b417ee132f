"""Kills at the named points of csrc/trap.h, in a build that has them: between claim, copy, commit and wake.

If a client dies, its worker ends and other clients are not affected; if a driver dies, its client gets
DeadObject. Until then every result is right: no process ever reads part of a packet.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from random import Random

import pytest

import nnburst
from faults.processes import HANG, KILLS, Client, Ending, Supervisor, goes_on, wait_until_gone
from nnburst import DeadObject
from nnburst.hal.utils import driver_environment
from nnburst.testing.faults.activities import ACTIVITIES

ROOT = Path(__file__).parents[2]

pytestmark = [
    pytest.mark.campaign,
    pytest.mark.skipif(
        not (ROOT / "csrc" / "trap.h").exists() or shutil.which("gcc") is None,
        reason="needs gcc and the C sources beside the tests",
    ),
]

#: Each point, and the last time at which a process dies there: a packet wraps once in some 150 executions.
POINTS = {
    "ring.write.claimed": 200,
    "ring.write.half": 3,
    "ring.write.copied": 200,
    "ring.write.committed": 200,
    "ring.read.copied": 200,
    "ring.read.released": 200,
}
ROUNDS = max(1, KILLS // len(POINTS))


@pytest.fixture(scope="module")
def trapped(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with this package, built with traps."""
    folder = tmp_path_factory.mktemp("trapped")
    ignore = shutil.ignore_patterns("*.so", "__pycache__")
    shutil.copytree(ROOT / "src" / "nnburst", folder / "nnburst", ignore=ignore)
    command = [sys.executable, "-W", "ignore", "setup.py", "-q", "build_ext"]
    done = subprocess.run(
        [*command, "--build-lib", folder, "--build-temp", folder / "build"],
        cwd=ROOT,
        env={**os.environ, "NNBURST_TRAPS": "1"},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return folder


def trap(folder: Path, point: str, chance: Random) -> dict[str, str]:
    """Environment of a process that dies at `point`."""
    return {
        "PYTHONPATH": str(folder),
        "NNBURST_TRAP": f"{point}:{chance.randint(1, POINTS[point])}",
    }


# A result of two elements never wraps in a ring of 1024: csrc/tests/death_at_traps.c has that.
@pytest.mark.parametrize("point", sorted(POINTS.keys() - {"ring.write.half"}))
def test_driver_that_dies_at_a_trap_point_is_a_dead_object_after_right_results(
    point: str, trapped: Path, chance: Random
) -> None:
    for _ in range(ROUNDS):
        environment = trap(trapped, point, chance)
        with nnburst.launch("reference", env=environment) as device:
            error = Ending(ACTIVITIES["burst_runs"](device)).wait()
        assert isinstance(error, DeadObject), f"{environment['NNBURST_TRAP']}: {error!r}"


@pytest.mark.parametrize("point", POINTS)
def test_client_that_dies_at_a_trap_point_takes_its_worker_along_and_disturbs_no_other(
    point: str,
    trapped: Path,
    chance: Random,
    serve: Callable[..., Supervisor],
    client: Callable[[str, str], Client],
) -> None:
    serve()
    bystander = client("cam", "stand_by")
    for _ in range(ROUNDS):
        command = [sys.executable, "-m", "nnburst.testing.faults.client", "cam", "burst_runs"]
        environment = driver_environment() | trap(trapped, point, chance)
        victim = subprocess.run(
            command, env=environment, capture_output=True, text=True, timeout=HANG * 3, check=False
        )
        died = time.monotonic()
        assert victim.returncode == -signal.SIGKILL, victim.stderr
        assert not bystander.lap()["error"]
        wait_until_gone(json.loads(victim.stdout)["worker"], died, HANG)
        goes_on(bystander)
    assert not bystander.finish()["error"]
