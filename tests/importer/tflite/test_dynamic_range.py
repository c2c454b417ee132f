"""Networks with 8-bit weights and real activations: the weights stay so, both arithmetics are right."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

pytest.importorskip("ai_edge_litert", reason="ai-edge-litert is not installed (extra 'litert')")

import nnburst
from importer.tflite.dynamic_range_network import dynamic_range_network
from importer.tflite.running import Array, Peer, Runner
from nnburst.executor.base import Argument, Executor
from nnburst.executor.built_in import litert, onnxruntime
from nnburst.hal.enums import ErrorStatus, OperandLifeTime, OperationType
from nnburst.hal.model import DTYPES
from nnburst.importer.imported_model import ImportedModel
from nnburst.testing.models.tflite_builder import TfliteBuilder
from nnburst.testing.models.tflite_networks import bias_tensor, weights

#: Operators with the shapes of what they read, of their weights, and of what they write.
OPERATORS = {
    "CONV_2D": ("Conv2DOptions", (2, 5, 6, 4), (8, 3, 3, 4), (2, 5, 6, 8), 0),
    "DEPTHWISE_CONV_2D": ("DepthwiseConv2DOptions", (2, 5, 6, 4), (1, 3, 3, 8), (2, 5, 6, 8), 3),
    "FULLY_CONNECTED": ("FullyConnectedOptions", (3, 64), (40, 64), (3, 40), 0),
}
#: The same of operators whose weights a file has otherwise.
MORE = {
    "one pixel": ("Conv2DOptions", (2, 5, 6, 4), (8, 1, 1, 4), (2, 5, 6, 8), 0),
    "strides": ("Conv2DOptions", (2, 6, 6, 4), (8, 1, 1, 4), (2, 3, 3, 8), 0),
}
STRIDES = {"strideW": 1, "strideH": 1}
FIELDS = {
    "CONV_2D": STRIDES,
    "DEPTHWISE_CONV_2D": {**STRIDES, "depthMultiplier": 2},
    "FULLY_CONNECTED": {"asymmetricQuantizeInputs": True},
    "one pixel": STRIDES,
    "strides": {"strideW": 2, "strideH": 2},
}
KINDS = dict.fromkeys(MORE, "CONV_2D")
ROUNDS = 5


def network(operator: str, *, by_channel: bool) -> bytes:
    """One operator with weights of 8 bits."""
    options, given, shape, made, axis = {**OPERATORS, **MORE}[operator]
    b = TfliteBuilder()
    x, y = b.input("FLOAT32", given), b.output("FLOAT32", made)
    scale = [2.0**-8 * (1 + i) for i in range(shape[axis])] if by_channel else 2.0**-7
    stored = b.constant("INT8", weights(shape), scale=scale, axis=axis if by_channel else 0)
    inputs = [x, stored, bias_tensor(b, "FLOAT32", made[-1])]
    b.operator(KINDS.get(operator, operator), inputs, [y], options, **FIELDS[operator])
    return b.finish()


def by_engine(
    imported: ImportedModel, executor: Executor | None = None
) -> Callable[..., list[Array]]:
    """An executor in this process, litert unless given."""
    main = imported.model.main
    every = [
        [np.zeros(main.operands[i].dimensions, DTYPES[main.operands[i].type]) for i in side]
        for side in (main.input_indexes, main.output_indexes)
    ]
    prepared = (executor or litert()).prepare(imported.model, list(imported.pools))
    arguments = [
        [Argument(a.reshape(-1).view(np.uint8), a.shape) for a in arrays] for arrays in every
    ]
    bound = prepared.bind(*arguments)

    def run(*values: Array) -> list[Array]:
        for array, value in zip(every[0], values, strict=True):
            array[...] = value
        assert bound.run().status == ErrorStatus.NONE
        return [array.copy() for array in every[1]]

    return run


def samples(shape: tuple[int, ...]) -> list[Array]:
    random = np.random.default_rng(7)
    return [random.normal(0, 1 + at, shape).astype("<f4") for at in range(ROUNDS)]


@pytest.mark.parametrize("by_channel", [False, True])
@pytest.mark.parametrize("operator", OPERATORS)
def test_weights_stay_eight_bits_behind_dequantize(operator: str, by_channel: bool) -> None:
    imported = nnburst.load(network(operator, by_channel=by_channel))
    main = imported.model.main
    assert [o.type for o in main.operations] == [
        OperationType.DEQUANTIZE,
        OperationType[operator],
    ]
    stored = main.operands[main.operations[0].inputs[0]]
    assert stored.lifetime in (OperandLifeTime.CONSTANT_REFERENCE, OperandLifeTime.CONSTANT_COPY)
    assert stored.location.length == np.prod(OPERATORS[operator][2])
    assert imported.model.relax_computation_float32_to_float16


@pytest.mark.parametrize(
    ("operator", "by_channel"),
    [(o, c) for o in OPERATORS for c in (False, True) if (o, c) != ("DEPTHWISE_CONV_2D", False)],
)
def test_engine_computes_to_the_bit_what_litert_does(operator: str, by_channel: bool) -> None:
    content = network(operator, by_channel=by_channel)
    ours, peer = by_engine(nnburst.load(content)), Peer(content, fast=True)
    exact = by_engine(nnburst.load(content, exact=True))
    differs = False
    for values in samples(OPERATORS[operator][1]):
        [expected] = peer.run([values])
        [found] = ours(values)
        np.testing.assert_array_equal(found, expected)
        differs |= bool(np.any(found != exact(values)[0]))
    assert differs, "the engine did not use its 8-bit kernel"


@pytest.mark.parametrize(
    ("operator", "by_channel"),
    [
        (o, c)
        for o in (*OPERATORS, *MORE)
        for c in (False, True)
        if (o, c) != ("DEPTHWISE_CONV_2D", False)
    ],
)
def test_onnxruntime_rounds_activations_as_litert_does(operator: str, by_channel: bool) -> None:
    """Float32 arithmetic is up to 5e-3 of the range away from the file's own engine."""
    pytest.importorskip("onnxruntime", reason="onnxruntime is not installed (extra 'onnx')")
    content = network(operator, by_channel=by_channel)
    ours, peer = by_engine(nnburst.load(content), onnxruntime()), Peer(content, fast=True)
    exact = by_engine(nnburst.load(content, exact=True), onnxruntime())
    given, furthest = {**OPERATORS, **MORE}[operator][1], 0.0
    for values in (*samples(given), np.zeros(given, "<f4"), np.ones(given, "<f4")):
        [expected] = peer.run([values])
        assert abs(ours(values)[0] - expected).max() <= 1e-6 * max(np.ptp(expected), 1)
        furthest = max(furthest, abs(exact(values)[0] - expected).max() / max(np.ptp(expected), 1))
    assert furthest > 1e-3, "the network is none that rounding shows at"


def test_depthwise_weights_of_one_scale_are_near_the_real_result() -> None:
    """LiteRT 2.1.6 itself reads one scale as if there were one for each channel: here each has its own."""
    content = network("DEPTHWISE_CONV_2D", by_channel=False)
    ours, real = by_engine(nnburst.load(content)), Runner(nnburst.load(content))
    for values in samples(OPERATORS["DEPTHWISE_CONV_2D"][1]):
        [expected] = real.run([values])
        assert abs(ours(values)[0] - expected).max() <= 0.02 * np.ptp(expected)


@pytest.mark.parametrize("by_channel", [False, True])
@pytest.mark.parametrize("operator", OPERATORS)
def test_exact_is_float32_arithmetic_on_both_executors(operator: str, by_channel: bool) -> None:
    content = network(operator, by_channel=by_channel)
    exact = nnburst.load(content, exact=True)
    assert not exact.model.relax_computation_float32_to_float16
    engine, reference = by_engine(exact), Runner(exact)
    relaxed = Runner(nnburst.load(content))
    for values in samples(OPERATORS[operator][1]):
        [expected] = reference.run([values])
        assert abs(engine(values)[0] - expected).max() <= 1e-5 * np.ptp(expected)
        np.testing.assert_array_equal(relaxed.run([values])[0], expected)  # exact in any case


def test_weights_that_dequantize_makes_real_in_the_file_are_computed_exactly() -> None:
    """A file with DEQUANTIZE of its own asks for float32 arithmetic, and LiteRT computes so."""
    b = TfliteBuilder()
    x, y = b.input("FLOAT32", (3, 64)), b.output("FLOAT32", (3, 40))
    stored = b.constant("INT8", weights((40, 64)), scale=0.01)
    real = b.tensor("FLOAT32", (40, 64))
    b.operator("DEQUANTIZE", [stored], [real])
    inputs = [x, real, bias_tensor(b, "FLOAT32", 40)]
    b.operator("FULLY_CONNECTED", inputs, [y], "FullyConnectedOptions")
    content = b.finish()
    imported = nnburst.load(content)
    assert not imported.model.relax_computation_float32_to_float16
    ours, peer = by_engine(imported), Peer(content, fast=True)
    for values in samples((3, 64)):
        [expected] = peer.run([values])
        assert abs(ours(values)[0] - expected).max() <= 1e-5 * np.ptp(expected)


def test_weights_shared_by_the_engine_and_the_rest_go_with_both() -> None:
    """One part of the network the engine cannot run reads the same weights."""
    b = TfliteBuilder()
    x, n = b.input("FLOAT32", (64, 64)), b.input("INT32", (64, 64))
    y, z = b.output("FLOAT32", (64, 64)), b.output("FLOAT32", (64, 64))
    stored = b.constant("INT8", weights((64, 64)), scale=0.01)
    halves, whole = b.tensor("FLOAT32", (64, 64)), b.tensor("INT32", (64, 64))
    b.operator("FULLY_CONNECTED", [x, stored, -1], [y], "FullyConnectedOptions")
    places, count = b.tensor("INT32", (64, 64)), b.constant("INT32", np.array(64, "<i4"))
    b.operator("TOPK_V2", [n, count], [whole, places])  # its ties: the reference executor
    b.operator("CAST", [whole], [halves], "CastOptions")
    b.operator("ADD", [halves, stored], [z], "AddOptions")
    imported = nnburst.load(b.finish())
    kinds = [o.type for o in imported.model.main.operations]
    assert kinds.count(OperationType.DEQUANTIZE) == 1
    given = np.ones((64, 64), "<f4"), np.full((64, 64), 3, "<i4")
    product, total = by_engine(imported)(*given)
    real = weights((64, 64)).astype("<f4") * np.float32(0.01)
    wanted = given[0] @ real.T
    assert abs(product - wanted).max() <= 0.02 * np.ptp(wanted)
    np.testing.assert_allclose(total, 3 + real, rtol=1e-6)


def test_network_with_convolutions_keeps_the_bytes_of_its_file() -> None:
    content = dynamic_range_network()
    imported = nnburst.load(content)
    assert sum(pool.nbytes for pool in imported.pools) <= 1.1 * len(content)
    ours, peer = by_engine(imported), Peer(content, fast=True)
    shape = imported.model.main.operands[imported.model.main.input_indexes[0]].dimensions
    for values in samples(shape)[:2]:
        np.testing.assert_array_equal(ours(values)[0], peer.run([values])[0])
