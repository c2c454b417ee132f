"""Real networks: read, valid, and answering as LiteRT does."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import numpy as np
import pytest

from shared_drivers import connect_to

pytest.importorskip("ai_edge_litert", reason="ai-edge-litert is not installed (extra 'litert')")

import nnburst
from importer.tflite.running import Peer, Runner, random_values, single_operation

pytestmark = pytest.mark.shared

#: Operations of each network, and random inputs that it is tried on.
NETWORKS = {
    "kws_int8": (13, 20),
    "kws_float": (18, 20),
    "resnet8_int8": (16, 20),
    "resnet8_float": (16, 20),
    "vww_96_int8": (31, 10),
    "mobilenet_v1_0.25_128_uint8": (31, 10),
    "mobilenet_v2_1.0_224_uint8": (66, 1),
}


def test_every_network_of_the_folder_is_tried(shared_dir: Path) -> None:
    assert {path.stem for path in (shared_dir / "models").glob("*.tflite")} == NETWORKS.keys()


@pytest.mark.parametrize("name", NETWORKS)
def test_network_names_what_litert_names(name: str, shared_dir: Path) -> None:
    path = shared_dir / "models" / f"{name}.tflite"
    imported = nnburst.load(path)
    operations, rounds = NETWORKS[name]
    assert len(imported.model.main.operations) == operations
    # kws_float has int8 weights for real inputs, five of which DEQUANTIZE makes real. LiteRT's kernels
    # quantise the inputs as they come; its reference ones name other words for 3 of 200 random inputs.
    fast = name == "kws_float"
    runner, peer = Runner(imported), Peer(path.read_bytes(), fast=fast)
    random = np.random.default_rng(2)
    for _ in range(rounds):
        values = [random_values(array, random, spread=50) for array in runner.inputs]
        [found], [expected] = runner.run(values), peer.run(values)
        assert found.argmax() == expected.argmax()
        if found.dtype.kind == "f" and not fast:
            np.testing.assert_allclose(found, expected, atol=1e-5)


def test_kws_float_by_onnxruntime_is_what_litert_computes(shared_dir: Path) -> None:
    """Its activations are rounded to 8 bits where they meet 8-bit weights: real ones are 3e-3 away."""
    pytest.importorskip("onnxruntime", reason="onnxruntime is not installed (extra 'onnx')")
    path = shared_dir / "models" / "kws_float.tflite"
    peer, random = Peer(path.read_bytes(), fast=True), np.random.default_rng(5)
    with connect_to("onnxruntime") as device, device.prepare(nnburst.load(path)) as prepared:
        for _ in range(20):
            values = random.uniform(-1, 1, (1, 49, 10, 1)).astype("<f4")
            [found], [expected] = prepared.execute([values]).outputs, peer.run([values])
            assert abs(found - expected).max() <= 1e-3 * np.ptp(expected)


@pytest.mark.every_day("kws_int8", "resnet8_int8", "vww_96_int8", "mobilenet_v1_0.25_128_uint8")
@pytest.mark.parametrize("name", [name for name in NETWORKS if name.endswith("int8")])
def test_every_operation_is_within_a_step_of_litert(name: str, shared_dir: Path) -> None:
    path = shared_dir / "models" / f"{name}.tflite"
    imported, peer = nnburst.load(path), Peer(path.read_bytes(), keep=True)
    random, steps = np.random.default_rng(3), Counter[int]()
    values = [random_values(array, random) for array in Runner(imported).inputs]
    for number, (given, expected) in enumerate(peer.steps(values)):
        runner = Runner(single_operation(imported, number))
        computed = given[: len(runner.inputs)]  # weights and biases come after
        for ours, theirs in zip(runner.run(computed), expected, strict=True):
            steps.update((ours.astype(int) - theirs).ravel().tolist())
    print(f"{name}: differences in steps {dict(steps)}")
    assert steps[0] > 1000
    assert set(steps) <= {-1, 0, 1}
