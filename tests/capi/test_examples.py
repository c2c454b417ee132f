"""The examples in C and C++ build without a warning and compute what they promise, with each compiler."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from capi.conftest import Compile, Run

EXAMPLES = Path(__file__).resolve().parents[2] / "examples" / "c"


@pytest.mark.every_day("clang")
@pytest.mark.parametrize("compiler", ["gcc", "clang"])
def test_first_network_computes(compile_program: Compile, run_compiled: Run, compiler: str) -> None:
    text = (EXAMPLES / "first_network.c").read_text()
    done = run_compiled(compile_program(text, compiler=compiler))
    assert done.returncode == 0, done.stderr
    *devices, numbers = done.stdout.splitlines()
    assert devices[-1].endswith(": nnapi-reference")
    assert numbers == "1.5 2.5 3.5 4.5"
    assert done.stderr == "", "silent unless asked"


def test_executions_are_counted_by_device_if_that_is_wanted(
    compile_program: Compile, run_compiled: Run, tmp_path: Path
) -> None:
    program = compile_program((EXAMPLES / "first_network.c").read_text())
    counts = tmp_path / "counts"
    counts.mkdir()
    assert run_compiled(program, NNBURST_EXECUTION_COUNTS=str(counts)).returncode == 0
    assert [json.loads(path.read_text()) for path in counts.iterdir()] == [
        {"by_device": {"nnapi-reference": 1}, "supported_by_drivers": 0, "on_drivers": 0}
    ]


@pytest.mark.every_day("g++")
@pytest.mark.parametrize("compiler", ["g++", "clang++"])
def test_burst_loop_keeps_its_sum(
    compile_program: Compile, run_compiled: Run, compiler: str
) -> None:
    text = (EXAMPLES / "burst_loop.cpp").read_text()
    done = run_compiled(compile_program(text, compiler=compiler), "50")
    assert done.returncode == 0, done.stderr
    assert done.stdout == "50 after 50 steps\n"
