"""All extras in one environment: their requirements agree, and what they bring works side by side."""

from __future__ import annotations

import subprocess
import tomllib
import venv
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
#: What shares libraries with each other: protobuf, flatbuffers, grpc, numpy.
MODULES = (
    "onnx",
    "onnxruntime",
    "tritonclient.grpc",
    "ai_edge_litert.interpreter",
    "google.protobuf",
)


def requirements() -> list[str]:
    """Of the core and of every extra."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    extras = project["optional-dependencies"].values()
    return [*project["dependencies"], *(line for extra in extras for line in extra)]


def succeeds(*words: object) -> None:
    done = subprocess.run([str(word) for word in words], capture_output=True, text=True)
    if "No matching distribution" in done.stderr or "Connection" in done.stderr:
        pytest.skip(f"no package index that has them: {done.stderr[-300:]}")
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-2000:]


@pytest.mark.campaign
def test_all_extras_are_installed_at_once_and_are_used_in_one_process(tmp_path: Path) -> None:
    venv.create(tmp_path / "venv", with_pip=True)
    python = tmp_path / "venv" / "bin" / "python"
    succeeds(python, "-m", "pip", "install", "-qq", "--only-binary", ":all:", *requirements())
    succeeds(python, "-m", "pip", "check")
    succeeds(python, "-W", "ignore", "-c", f"import {', '.join(MODULES)}")
