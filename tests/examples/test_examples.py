"""The examples run, and do what they promise."""

from __future__ import annotations

import importlib.util
import re
import subprocess
import sys
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"


def run(name: str, *words: str, cwd: Path) -> list[str]:
    """Lines that an example prints."""
    done = subprocess.run(
        [sys.executable, "-W", "error", str(EXAMPLES / name), *words],
        cwd=cwd,
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stderr == ""
    return done.stdout.splitlines()


@pytest.mark.every_day("litert")
@pytest.mark.parametrize("executor", ["reference", "litert"])
def test_every_frame_of_the_camera_is_understood_where_it_lies(
    executor: str, tmp_path: Path
) -> None:
    if executor == "litert" and importlib.util.find_spec("ai_edge_litert") is None:
        pytest.skip("ai-edge-litert is not installed")
    *frames, summary = run("camera_frames.py", executor, cwd=tmp_path)
    found = [tuple(map(int, re.findall(r"\d+", line))) for line in frames]
    assert [number for number, *_ in found] == list(range(40))
    assert {place for _, place, *_ in found} == {0, 1, 2, 3}
    assert all((r, c) == (n * 5 % 12, n * 3 % 16) for n, _, r, c in found)
    assert summary.endswith(", 0 wrong")


def test_every_example_is_named_in_the_documentation() -> None:
    text = (EXAMPLES.parent / "README.md").read_text()
    for example in EXAMPLES.glob("*.py"):
        assert f"examples/{example.name}" in text
