"""tools/arm64: what counts as a failure on the emulator."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from tools.arm64.__main__ import same_results
from tools.arm64.emulator import Root
from tools.arm64.networks import LAYER, compare, rounded

ROOT = Path(__file__).resolve().parents[2]
#: A program in a "root" that is this machine's own; it says when it runs, and does not end by itself.
ENDLESS = """
from pathlib import Path
from tools.arm64.emulator import Root

root = object.__new__(Root)  # the constructor makes a root of Debian
root.folder = Path("/")
root.run("sh", "-c", "echo runs; sleep 1000; true", processor="cortex-a53")
"""

HERE = {
    "litert net": np.array([[0.0, 1.0, 2.0]]),
    "engine net": np.array([[0.0, 1.0, 2.0]]),
    "reference net": np.array([[0, 100, 200]]),
}
ROUNDED = {
    "litert net": np.array([[0.0, 1.01]]),
    "litert net, hybrid kernels": np.array([[0.0, 1.0]]),
    "engine net": np.array([[0.0, 1.0]]),
}


def emulator(folder: Path, exit_code: int) -> Root:
    """A root in which every program ends so."""

    class Ending(Root):
        def run(self, *words: str, **_: str) -> subprocess.CompletedProcess[str]:  # type: ignore[override]
            return subprocess.CompletedProcess(words, exit_code)

    (folder / "project").mkdir()
    (folder / "made").touch()
    return Ending(folder)


def test_root_is_made_in_a_folder_that_is_not_there_yet(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    maker = tmp_path / "mmdebstrap"  # which makes its target, and nothing above it
    maker.write_text('#!/bin/sh\nwhile shift; [ $# -gt 1 ]; do :; done\nexec mkdir "$1"\n')
    maker.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    root = Root(tmp_path / "build" / "arm64" / "root")
    assert (root.folder / "made").exists()


@pytest.mark.parametrize(("exit_code", "failed"), [(0, []), (1, ["networks on cortex-a76"])])
def test_networks_that_did_not_run_are_a_failure_whatever_ran_before(
    tmp_path: Path, exit_code: int, failed: list[str]
) -> None:
    root = emulator(tmp_path, exit_code)
    np.savez(tmp_path / "project" / "found.npz", **HERE)  # of the processor before
    assert same_results(root, HERE, "cortex-a76") == failed


@pytest.mark.parametrize(
    ("name", "values", "wrong"),
    [
        ("litert net", [0.0, 1.0, 2.0], 0),
        ("litert net", [0.0, 1.0, 2.0 + 1e-9], 1),  # close enough to here, not to the engine there
        ("engine net", [0.0, 1.0, 2.1], 1),
        ("reference net", [0, 100, 201], 1),
    ],
)
def test_differences_from_here_and_from_the_engine_there_are_found(
    name: str, values: list[float], wrong: int
) -> None:
    lines = compare(HERE, {**HERE, name: np.array([values])})
    assert len(lines) == 2
    assert sum(line.startswith("WRONG") for line in lines) == wrong


UINT8 = "mobilenet_v1_0.25_128_uint8"


@pytest.mark.parametrize(
    ("executor", "there", "engine_here", "wrong"),
    [
        ("litert", [0, 101], [0, 100], False),
        ("litert", [0, 102], [0, 100], True),  # further than the engine is known to be
        ("litert", [0, 101], [0, 101], True),  # here nnburst's result is not the engine's
        ("reference", [0, 101], [0, 100], True),
    ],
)
def test_difference_is_excused_only_if_it_is_the_engines_own_and_known(
    executor: str, there: list[int], engine_here: list[int], wrong: bool
) -> None:
    here = {f"{executor} {UINT8}": np.array([[0, 100]]), f"engine {UINT8}": np.array([engine_here])}
    found = {f"{executor} {UINT8}": np.array([there]), f"engine {UINT8}": np.array([there])}
    (line,) = compare(here, found)
    assert line.startswith("WRONG") == wrong
    assert ("1 values of 2" in line) == (executor == "litert")


def test_layer_of_uint8_is_held_to_how_ties_are_rounded_on_either_side() -> None:
    here, there = {f"litert {LAYER}": rounded(False)}, {f"litert {LAYER}": rounded(True)}
    assert compare(here, there) == [f"{LAYER}: 42 values of 10000 differ, which are ties"]
    off = there[f"litert {LAYER}"].copy()
    off.flat[0] ^= 1
    assert compare(here, {f"litert {LAYER}": off}) == [f"WRONG {LAYER}: not rounded there up"]
    assert compare(there, there) == [f"WRONG {LAYER}: not rounded here to even"]


def test_hybrid_kernels_differ_no_more_than_rounding_takes_them_from_exact_ones() -> None:
    for found, wrong in ((1.009, 0), (1.011, 1)):
        there = {**ROUNDED, "litert net, hybrid kernels": np.array([[0.0, found]])}
        there["engine net"] = there["litert net, hybrid kernels"]
        lines = compare(ROUNDED, there)
        assert [line.startswith("WRONG") for line in lines] == [False, bool(wrong)]


def test_file_with_hybrid_kernels_is_held_to_the_limit_of_all_in_exact_arithmetic() -> None:
    there = {**ROUNDED, "litert net": np.array([[0.0, 1.01 + 1e-5]])}
    there["engine net"] = ROUNDED["litert net, hybrid kernels"]
    assert [line.startswith("WRONG") for line in compare(ROUNDED, there)] == [True, False]


def test_hybrid_kernels_that_are_not_the_engines_are_found() -> None:
    there = {**ROUNDED, "engine net": np.array([[0.0, 1.0 + 1e-9]])}
    assert [line.startswith("WRONG") for line in compare(ROUNDED, there)] == [False, True]


@pytest.mark.skipif(os.getuid() != 0, reason="wants root")
@pytest.mark.skipif(not shutil.which("setpriv"), reason="wants setpriv, of util-linux")
def test_programs_in_the_root_end_when_the_tool_is_killed() -> None:
    probe = ["unshare", "--mount", "--pid", "--fork", "true"]
    if subprocess.run(probe, capture_output=True, check=False).returncode:
        pytest.skip("namespaces of its own are refused here")
    command = [sys.executable, "-c", ENDLESS]
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True) as tool:
        assert tool.stdout is not None
        try:
            assert tool.stdout.readline() == "runs\n"
        finally:
            tool.kill()
        assert tool.communicate(timeout=60)[0] == ""  # by the end of all that can write there
