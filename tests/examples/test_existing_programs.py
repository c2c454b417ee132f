"""Programs that exist run on a driver by two lines, and compute the same."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from capi.test_pytorch import folders, python  # noqa: F401 - a fixture
from nnburst.capi import installed
from nnburst.testing.models.tflite_builder import TfliteBuilder

PAGE = Path(__file__).resolve().parents[2] / "docs" / "how_to" / "existing_programs.md"
if not PAGE.is_file():
    pytest.skip("the pages are not part of what is installed", allow_module_level=True)
PROGRAMS = dict(
    re.findall(r"^## (.+?)\n.*?^```diff\n(.*?)^```$", PAGE.read_text(), re.MULTILINE | re.DOTALL)
)


def lines_of(title: str, mark: str) -> list[str]:
    """A program's lines that begin with these marks."""
    return [line[1:] for line in PROGRAMS[title].splitlines() if line[:1] in ("", " ", mark)]


def outputs(title: str, folder: Path, command: list[str], **environment: str) -> list[str]:
    """The output of a program before and after."""
    found = []
    for mark in "-+":
        source = folder / f"program{'-+'.index(mark)}.py"
        source.write_text("\n".join(lines_of(title, mark)) + "\n")
        done = subprocess.run(
            [*command[:1], str(source), *command[1:]],
            cwd=folder,
            env={**os.environ, **environment},
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        assert "nnburst" not in done.stderr
        found.append(done.stdout)
    return found


def image_network() -> bytes:
    """y = softmax(mean of an image's rows)."""
    b = TfliteBuilder()
    x = b.input("FLOAT32", (1, 4, 4))
    h = b.tensor("FLOAT32", (1, 4))
    b.operator("MEAN", [x, b.constant("INT32", np.int32([1]))], [h], "ReducerOptions", keepDims=0)
    weights = b.constant("FLOAT32", np.random.default_rng(1).standard_normal((4, 4), np.float32))
    y = b.tensor("FLOAT32", (1, 4))
    b.operator("FULLY_CONNECTED", [h, weights, -1], [y], "FullyConnectedOptions")
    b.operator("SOFTMAX", [y], [b.output("FLOAT32", (1, 4))], "SoftmaxOptions", beta=1.0)
    return b.finish()


def detector_network() -> bytes:
    """Boxes and scores of the places of a small image, where it is bright."""
    b = TfliteBuilder()
    x = b.input("UINT8", (1, 8, 8, 3))
    floats, places = b.tensor("FLOAT32", (1, 8, 8, 3)), b.tensor("FLOAT32", (1, 64))
    b.operator("CAST", [x], [floats], "CastOptions", inDataType=3, outDataType=0)
    axes = b.constant("INT32", np.int32([3]))
    bright = b.tensor("FLOAT32", (1, 8, 8))
    b.operator("MEAN", [floats, axes], [bright], "ReducerOptions", keepDims=0)
    b.operator(
        "RESHAPE", [bright, b.constant("INT32", np.int32([1, 64]))], [places], "ReshapeOptions"
    )
    grid = (
        np.stack(np.meshgrid(np.arange(8), np.arange(8), indexing="ij"), -1)
        .reshape(1, 64, 2)
        .astype(np.float32)
    )
    corners = b.constant("FLOAT32", np.concatenate((grid, grid + 2), -1) / np.float32(8))
    wide = b.tensor("FLOAT32", (1, 64, 1))
    b.operator(
        "RESHAPE", [places, b.constant("INT32", np.int32([1, 64, 1]))], [wide], "ReshapeOptions"
    )
    nothing = b.tensor("FLOAT32", (1, 64, 1))
    b.operator("SUB", [wide, wide], [nothing], "SubOptions")
    b.operator("ADD", [corners, nothing], [b.output("FLOAT32", (1, 64, 4))], "AddOptions")
    b.operator("LOGISTIC", [places], [b.output("FLOAT32", (1, 64))])
    return b.finish()


@pytest.mark.parametrize("title", PROGRAMS)
def test_two_lines_differ(title: str) -> None:
    marks = [line[0] for line in PROGRAMS[title].splitlines() if line[:1] in ("-", "+")]
    assert marks.count("+") == 2
    assert marks.count("-") <= 2


def test_program_of_litert_computes_the_same(tmp_path: Path) -> None:
    pytest.importorskip("ai_edge_litert")
    (tmp_path / "network.tflite").write_bytes(image_network())
    before, after = outputs("LiteRT", tmp_path, [sys.executable])
    assert before == after
    assert len(before.splitlines()) == 3


@pytest.mark.campaign
def test_program_of_onnxruntime_computes_the_same(tmp_path: Path) -> None:
    pytest.importorskip("onnxruntime")
    networks = pytest.importorskip("onnxruntime_ep.networks", reason="needs onnx")
    network, _ = networks.layers()
    (tmp_path / "network.onnx").write_bytes(network)
    before, after = outputs("onnxruntime", tmp_path, [sys.executable])
    assert before == after
    assert len(before.splitlines()) == 3


def test_detector_of_a_recorder_finds_the_same(tmp_path: Path) -> None:
    pytest.importorskip("ai_edge_litert")
    (tmp_path / "detector.tflite").write_bytes(detector_network())
    title = "A detector of a camera's recorder"
    before, after = outputs(title, tmp_path, [sys.executable])
    assert before == after
    assert [line.split("[")[1] for line in before.splitlines()] == [
        f"{n / 8}, {n / 8}, {(n + 2) / 8}, {(n + 2) / 8}]" for n in range(4)
    ]


@pytest.mark.campaign
def test_program_of_pytorch_computes_the_same(python: Path, tmp_path: Path) -> None:  # noqa: F811
    environment = {
        "LD_LIBRARY_PATH": str(installed.LIBRARY.parent),
        "NNBURST_CPUONLY": "1",
        "PYTHONPATH": "",
    }
    program = f"import sys; sys.path += {folders()!r}"
    (tmp_path / "sitecustomize.py").write_text(program)
    environment["PYTHONPATH"] = str(tmp_path)
    before, after = outputs("PyTorch", tmp_path, [str(python)], **environment)
    assert before == after
    assert len(before.splitlines()) == 3


def test_loop_in_cpp_computes_the_same(tmp_path: Path) -> None:
    if shutil.which("g++") is None or not installed.LIBRARY.is_file():
        pytest.skip("no g++, or this nnburst was built without its C interface")
    environment = {"NNBURST_PYTHON": sys.executable, "NNBURST_DEVICES": "own=reference"}
    for mark in "-+":
        source = tmp_path / f"loop{ord(mark)}.cpp"
        source.write_text("\n".join(lines_of("A loop in C++", mark)) + "\n")
        words = [
            "g++",
            "-std=c++11",
            installed.cflags(),
            str(source),
            "-o",
            str(source.with_suffix("")),
        ]
        subprocess.run([*words, *installed.libs().split()], check=True, timeout=120)
        done = subprocess.run(
            [source.with_suffix("")],
            env={**os.environ, **environment},
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )
        assert (done.returncode, done.stdout, done.stderr) == (0, "10 20 30 40\n", "")
