"""Networks exported to ONNX compute what LiteRT computes."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("ai_edge_litert", reason="ai-edge-litert is not installed (extra 'litert')")
pytest.importorskip("onnx", reason="onnx is not installed (extra 'peers')")
pytest.importorskip("onnxruntime", reason="onnxruntime is not installed (extra 'peers')")

import nnburst
from importer.tflite.running import Peer
from nnburst.bench.network.networks import export, onnx_session, random_values
from nnburst.hal.enums import OperandType, OperationType
from nnburst.hal.model import DTYPES
from nnburst.hal.model_builder import ModelBuilder
from nnburst.testing.models.litert import interpreter, to_tflite

#: Random inputs that each network is tried on.
NETWORKS = {
    "kws_int8": 20,
    "kws_float": 20,
    "resnet8_int8": 20,
    "resnet8_float": 20,
    "vww_96_int8": 10,
    "mobilenet_v1_0.25_128_uint8": 10,
    "mobilenet_v2_1.0_224_uint8": 2,
}


@pytest.mark.shared
@pytest.mark.parametrize("name", NETWORKS)
def test_network_is_no_farther_from_litert_than_its_own_kernels_are(
    name: str, shared_dir: Path
) -> None:
    path = shared_dir / "models" / f"{name}.tflite"
    imported, content = nnburst.load(path), path.read_bytes()
    fast, plain = Peer(content, fast=True), Peer(content)
    session = onnx_session(export(imported.model, list(imported.pools)))
    main, random = imported.model.main, np.random.default_rng(5)
    operand = main.operands[main.input_indexes[0]]
    like = np.zeros(operand.dimensions, DTYPES[OperandType(operand.type)])
    ours, theirs = [], []
    for _ in range(NETWORKS[name]):
        value = random_values(like, random)
        [found], [expected] = session.run(None, {"i0": value}), fast.run([value])
        [other] = plain.run([value])
        assert found.dtype == expected.dtype
        ours.append(np.abs(found.astype(float) - expected).max())
        theirs.append(np.abs(other.astype(float) - expected).max())
    assert np.mean(ours) <= np.mean(theirs) + 1e-6


def windows(kind: OperandType, activation: int) -> nnburst.Model:
    """A padded convolution, a padded pool and a dense layer, none of which sees a square."""
    random = np.random.default_rng(1)
    quantised = kind is not OperandType.TENSOR_FLOAT32
    steps = {"scale": 0.05, "zero_point": 117} if quantised else {}

    def draw(shape: tuple[int, ...]) -> np.ndarray[tuple[int, ...], np.dtype[np.generic]]:
        if quantised:
            return random.integers(0, 256, shape).astype(np.uint8)
        return random.standard_normal(shape).astype(np.float32)

    b = ModelBuilder()
    whole = OperandType.TENSOR_INT32 if quantised else OperandType.TENSOR_FLOAT32
    bias_step = {"scale": 0.05 * 0.01} if quantised else {}
    filters = {"scale": 0.01, "zero_point": 131} if quantised else {}
    x = b.input(kind, (1, 7, 9, 3), **steps)
    w = b.constant(kind, draw((4, 3, 2, 3)), **filters)
    bias = b.constant(
        whole, np.arange(4).astype(np.int32 if quantised else np.float32), **bias_step
    )
    one, two, same = b.scalar(1), b.scalar(2), b.scalar(1)
    act = b.scalar(activation)
    convolved = b.temporary(kind, (1, 4, 5, 4), **steps)
    b.operation(OperationType.CONV_2D, [x, w, bias, same, two, two, act], [convolved])
    pooled = b.temporary(kind, (1, 4, 5, 4), **steps)
    pool = [convolved, same, one, one, two, b.scalar(3), b.scalar(0)]
    b.operation(OperationType.AVERAGE_POOL_2D, pool, [pooled])
    # Small weights: a step that one engine rounds up and the other down stays less than a step.
    dense = b.constant(kind, draw((5, 80)), **(filters | {"scale": 0.002} if quantised else {}))
    small = {"scale": 0.05 * 0.002} if quantised else {}
    bias5 = b.constant(whole, np.zeros(5, np.int32 if quantised else np.float32), **small)
    y = b.output(kind, (1, 5), **steps)
    b.operation(OperationType.FULLY_CONNECTED, [pooled, dense, bias5, b.scalar(0)], [y])
    return b.build()


@pytest.mark.parametrize("kind", [OperandType.TENSOR_FLOAT32, OperandType.TENSOR_QUANT8_ASYMM])
@pytest.mark.parametrize("activation", [0, 1, 2, 3])
def test_padding_strides_activations_and_the_order_of_elements_are_kept(
    kind: OperandType, activation: int
) -> None:
    model = windows(kind, activation)
    session, peer = onnx_session(export(model)), interpreter(to_tflite(model))
    dtype = np.float32 if kind is OperandType.TENSOR_FLOAT32 else np.uint8
    value = random_values(np.zeros((1, 7, 9, 3), dtype), np.random.default_rng(2))
    peer.set_tensor(peer.get_input_details()[0]["index"], value)
    peer.invoke()
    expected = peer.get_tensor(peer.get_output_details()[0]["index"])
    [found] = session.run(None, {"i0": value})
    steps = 1e-4 if dtype is np.float32 else 1
    assert np.ptp(expected) > 20 * steps
    np.testing.assert_allclose(found.astype(float), expected, atol=steps, rtol=0)


def test_what_is_not_translated_is_named() -> None:
    b = ModelBuilder()
    x, y = (make(OperandType.TENSOR_FLOAT32, (2, 2)) for make in (b.input, b.output))
    b.operation(OperationType.TANH, [x], [y])
    with pytest.raises(nnburst.InvalidArgument, match="TANH"):
        export(b.build())
