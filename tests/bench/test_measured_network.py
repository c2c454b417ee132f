"""List files: networks, their truth, and golden sequences that begin with the initial states."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("ai_edge_litert", reason="ai-edge-litert is not installed (extra 'litert')")

from importer.onnx.graphs import model, node, value
from nnburst.bench.model.networks import read_list
from nnburst.hal.errors import InvalidArgument


@pytest.fixture
def counting(tmp_path: Path) -> Path:
    """y = h + x, which is the next h; two elements."""
    made = model(
        [node("Add", "x h", "g"), node("Identity", "g", "y")],
        [value("x", "f4", (1, 2)), value("h", "f4", (1, 2))],
        [value("y", "f4", (1, 2)), value("g", "f4", (1, 2))],
    )
    (tmp_path / "counting.onnx").write_bytes(made.SerializeToString())
    return tmp_path


def write(folder: Path, **more: object) -> Path:
    path = folder / "list.json"
    entry = {"file": "counting.onnx", "name": "sum", "states": {"h": "g"}, **more}
    path.write_text(json.dumps([entry]))
    return path


class Adding:
    """The network in numpy."""

    def __init__(self) -> None:
        self.sum = np.zeros((1, 2), np.float32)
        self.resets = 0

    def frame(self, example: tuple[Any, ...]) -> list[Any]:
        self.sum = self.sum + example[0]
        return [self.sum]

    def reset(self) -> None:
        self.sum = np.zeros((1, 2), np.float32)
        self.resets += 1


def test_states_are_reset_before_each_sequence_and_never_inside(counting: Path) -> None:
    np.save(counting / "x.npy", np.ones((3, 2), np.float32))
    np.save(counting / "y.npy", np.cumsum(np.ones((3, 2), np.float32), axis=0))
    one = {"inputs": ["x.npy"], "outputs": ["y.npy"]}
    (workload,) = read_list(write(counting, group="sums", sequences=[one, one], largest=0.0))
    adding = Adding()
    (found,) = workload.evaluate(adding.frame, adding.reset)
    assert (workload.network.name, workload.group) == ("sum", "sums")
    assert adding.resets == 2
    assert found.figures["largest"] == 0
    assert list(found.failures) == []
    broken = workload.evaluate(adding.frame, lambda: None)[0]
    assert broken.figures["largest"] > 0
    assert broken.failures


def test_truth_is_labels_by_number_or_name_or_values(counting: Path) -> None:
    np.save(counting / "x.npy", np.array([[1, 0], [0, 1], [1, 0]], np.float32))
    (counting / "labels.txt").write_text("cat\n1\ndog\n")
    (counting / "classes.txt").write_text("cat\ndog\n")
    truth = [
        {
            "inputs": ["x.npy"],
            "labels": "labels.txt",
            "classes": "classes.txt",
            "expected_top1": 0.9,
        },
        {"inputs": ["x.npy"], "values": ["x.npy"], "largest": 0.0},
    ]
    (workload,) = read_list(write(counting, truth=truth))
    adding = Adding()
    top, values = workload.evaluate(adding.frame, adding.reset)
    assert top.figures["top1"] == pytest.approx(2 / 3)
    assert top.failures
    assert values.figures["largest"] == 0


def test_truth_is_text_or_the_class_of_many_frames(counting: Path) -> None:
    np.save(counting / "x.npy", np.array([[1, 0], [0, 1]], np.float32))
    (counting / "texts.txt").write_text("\na\n")
    (counting / "alphabet.txt").write_text("a\n")
    (counting / "labels.txt").write_text("0\n1\n")
    texts = {"inputs": ["x.npy"], "texts": "texts.txt", "alphabet": "alphabet.txt", "largest": 0.0}
    frames = {"inputs": ["x.npy"], "labels": "labels.txt", "by_frame": True, "output": "y"}
    (workload,) = read_list(write(counting, truth=[texts, frames], comparable="sums of others"))
    adding = Adding()
    read, played = workload.evaluate(adding.frame, adding.reset)
    assert (read.evaluator, read.figures["lines"]) == ("characters", 1)
    assert (played.evaluator, played.figures["top1"]) == ("top_k", 1)


def test_truth_of_an_output_that_is_not_there_is_refused(counting: Path) -> None:
    np.save(counting / "x.npy", np.ones((1, 2), np.float32))
    (counting / "labels.txt").write_text("0\n")
    truth = [{"inputs": ["x.npy"], "labels": "labels.txt", "output": "z"}]
    (workload,) = read_list(write(counting, truth=truth))
    adding = Adding()
    with pytest.raises(InvalidArgument, match="output: 'z', the network has"):
        workload.evaluate(adding.frame, adding.reset)


@pytest.mark.parametrize(
    ("more", "message"),
    [
        ({"fil": "x"}, "unknown field"),
        ({"evaluator": "best"}, "evaluator"),
        ({"sequences": [{"inputs": [], "outputs": []}]}, "inputs: 0 files, the network has 1"),
        ({"sequences": [{"inputs": ["list.json"], "outputs": []}]}, "is not a .npy file"),
        ({"sequences": [{"inputs": ["odd.npy"], "outputs": []}]}, "expected frames of"),
    ],
)
def test_list_that_does_not_fit_is_refused(
    counting: Path, more: dict[str, object], message: str
) -> None:
    np.save(counting / "odd.npy", np.ones((3, 5), np.float32))
    with pytest.raises(InvalidArgument, match=message):
        read_list(write(counting, **more))


def test_list_that_is_not_utf_8_is_refused_by_its_name(tmp_path: Path) -> None:
    path = tmp_path / "list.json"
    path.write_bytes(b'[{"file": "\xff"}]')
    with pytest.raises(InvalidArgument, match=f"(?i)--list {re.escape(str(path))}: .*utf-8"):
        read_list(path)


def test_relaxed_network_has_a_relaxed_model(counting: Path) -> None:
    (workload,) = read_list(write(counting, relaxed=True))
    assert workload.network.imported.model.relax_computation_float32_to_float16
