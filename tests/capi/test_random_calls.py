"""Functions in random order with whatever arguments: nothing crashes, with and without sanitizers."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from c_interface.random_calls import program
from capi.conftest import Compile, Run
from nnburst.hal.environment import RANDOM_CALLS

ROOT = Path(__file__).resolve().parents[2]
SANITIZE = ("-fsanitize=address,undefined", "-fno-sanitize-recover=undefined", "-g")
CALLS = RANDOM_CALLS.read()

pytestmark = pytest.mark.counted


def test_random_calls_do_no_harm(compile_program: Compile, run_compiled: Run) -> None:
    seed = str(os.getpid())
    done = run_compiled(compile_program(program()), seed, str(CALLS), NNBURST_LOG="warning")
    assert done.returncode == 0, f"seed {seed}: {done.stderr[-2000:]}"
    assert done.stdout.startswith(f"{CALLS} calls:")
    assert "a fault in nnburst" not in done.stderr, f"seed {seed}: {done.stderr[-2000:]}"


@pytest.mark.campaign
def test_random_calls_do_no_harm_under_the_sanitizers(tmp_path: Path, run_compiled: Run) -> None:
    source = tmp_path / "random_calls.c"
    source.write_text(program())
    include = f"-I{ROOT / 'src' / 'nnburst' / 'capi' / 'include'}"
    library = sorted(str(path) for path in (ROOT / "csrc" / "capi").glob("*.c"))
    built = tmp_path / "random_calls"
    words = ["gcc", "-std=c11", "-O1", "-D_GNU_SOURCE", *SANITIZE, include, str(source), *library]
    try:
        done = subprocess.run(
            [*words, "-o", str(built), "-ldl", "-lpthread"],
            capture_output=True,
            text=True,
            check=False,
        )
    except FileNotFoundError:
        pytest.skip("no gcc")
    if done.returncode:
        pytest.skip(f"no sanitizers, or no sources: {done.stderr[-200:]}")
    seed = str(os.getpid())
    ran = run_compiled(built, seed, str(CALLS), ASAN_OPTIONS="detect_leaks=0")
    assert ran.returncode == 0, f"seed {seed}: {ran.stderr[-4000:]}"
    assert ran.stderr == ""
