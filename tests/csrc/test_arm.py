"""The C tests compiled for Arm and run by an emulator, which cannot show the order of memory."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from csrc.test_c_programs import SCRIPT

COMPILER = "aarch64-linux-gnu-gcc"
LIBRARIES = Path("/usr/aarch64-linux-gnu")
EMULATOR = shutil.which("qemu-aarch64") or shutil.which("qemu-aarch64-static")
#: What the emulator cannot do is reported by the program itself.
SKIPPED = 77

pytestmark = pytest.mark.skipif(
    not SCRIPT.exists() or shutil.which(COMPILER) is None or EMULATOR is None,
    reason=f"needs {COMPILER} and qemu-aarch64",
)

#: Everyday numbers; `campaign` has a hundred times as many.
PROGRAMS = {
    "hostile_counters": (20_000, "hostile counter pairs"),
    "ring_stress": (1_000, "none torn or lost"),
    "burst_stress": (200, "each the one asked for"),
    "steps_stress": (200, "each step behind the one before"),
    "wakeup_stress": (200, "none lost"),
    "hostile_peer": (200, "executions"),
    "restless_flag": (10, "ended at their deadlines"),
    "attention_at_trap": (None, "the stop was seen"),
    "late_results": (None, "the time was the time for all"),
    "changed_after_look": (None, "changes changed nothing"),
    "death_at_traps": (1, "packets taken by survivors"),
}


@pytest.fixture(scope="module")
def objects(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("objects")


def check(program: str, rounds: int | None, words: str, processor: str, objects: Path) -> None:
    command = [str(SCRIPT), "none", program, *([str(rounds)] if rounds else [])]
    environment = {
        **os.environ,
        "CC": COMPILER,
        "RUNNER": f"{EMULATOR} -L {LIBRARIES}",
        "QEMU_CPU": processor,
        "OBJECTS": str(objects),
    }
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    if done.returncode == SKIPPED:
        pytest.skip(done.stdout.strip())
    assert done.returncode == 0, done.stdout + done.stderr
    assert words in done.stdout


@pytest.mark.campaign
@pytest.mark.parametrize("program", PROGRAMS)
def test_program_holds_on_arm(program: str, objects: Path) -> None:
    rounds, words = PROGRAMS[program]
    check(program, rounds, words, "cortex-a53", objects)


@pytest.mark.campaign
@pytest.mark.parametrize("program", PROGRAMS)
def test_program_holds_on_arm_for_long(program: str, objects: Path) -> None:
    rounds, words = PROGRAMS[program]
    check(program, rounds and rounds * 100, words, "cortex-a76", objects)
