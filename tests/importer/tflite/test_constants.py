"""Constants that are converted while they are read."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

pytest.importorskip("ai_edge_litert", reason="ai-edge-litert is not installed (extra 'litert')")

import nnburst
from importer.tflite.running import Runner
from nnburst.testing.models.tflite_builder import TfliteBuilder
from nnburst.testing.models.tflite_networks import (
    MATRIX,
    NETWORKS,
    dense_level,
    listed_level,
    sparsity,
    stored,
    vector,
)

Add = Callable[[TfliteBuilder], int]


def dequantized(constant: int, b: TfliteBuilder, shape: tuple[int, ...]) -> int:
    real = b.tensor("FLOAT32", shape)
    b.operator("DEQUANTIZE", [constant], [real])
    return real


def added(add: Add, shape: tuple[int, ...]) -> np.ndarray:
    """The real numbers that the constant adds to zeros."""
    b = TfliteBuilder()
    x, y = b.input("FLOAT32", shape), b.output("FLOAT32", shape)
    b.operator("ADD", [x, add(b)], [y], "AddOptions")
    return Runner(nnburst.load(b.finish())).run([np.zeros(shape, "<f4")])[0]


def test_dequantize_of_a_constant_gives_its_numbers() -> None:
    values = np.arange(-100, 100, dtype="i1").reshape(4, 50)

    def add(b: TfliteBuilder) -> int:
        constant = b.constant("INT8", values, scale=0.25, zero_point=-3)
        return dequantized(constant, b, (4, 50))

    np.testing.assert_array_equal(added(add, (4, 50)), (values.astype(float) + 3) * 0.25)


def test_dequantize_of_a_constant_with_a_scale_per_channel_gives_its_numbers() -> None:
    values = np.arange(12, dtype="i1").reshape(2, 3, 2)

    def add(b: TfliteBuilder) -> int:
        constant = b.constant("INT8", values, scale=[0.5, 1.0, 2.0], axis=1)
        return dequantized(constant, b, (2, 3, 2))

    np.testing.assert_array_equal(added(add, (2, 3, 2)), values * [[[0.5], [1.0], [2.0]]])


def test_half_precision_constant_is_widened() -> None:
    values = np.linspace(-2, 2, 100).astype("<f2").reshape(10, 10)

    def add(b: TfliteBuilder) -> int:
        return dequantized(b.constant("FLOAT16", values), b, (10, 10))

    np.testing.assert_array_equal(added(add, (10, 10)), values.astype("<f4"))


@pytest.mark.parametrize("blocks", [False, True])
def test_sparse_constant_is_made_dense(blocks: bool) -> None:
    def add(b: TfliteBuilder) -> int:
        values, sparsity = stored(blocks)
        sparse = b.constant("FLOAT32", values, shape=(4, 4), sparsity=sparsity)
        dense = b.tensor("FLOAT32", (4, 4))
        b.operator("DENSIFY", [sparse], [dense], "DensifyOptions")
        return dense

    np.testing.assert_array_equal(added(add, (4, 4)), MATRIX)


def test_sparse_constants_of_one_buffer_keep_their_own_trees() -> None:
    b, n = TfliteBuilder(), 8
    x, buffer = b.input("FLOAT32", (n, n)), b.buffer(np.ones(n, "<f4").tobytes())
    segments = vector("Uint8Vector", list(range(n + 1)))
    for column in (0, 5, 5):
        listed = listed_level(segments, vector("Uint8Vector", [column] * n))
        how = sparsity([0, 1], [], [dense_level(n), listed])
        sparse = b.tensor("FLOAT32", (n, n), buffer=buffer, sparsity=how)
        dense, y = b.tensor("FLOAT32", (n, n)), b.output("FLOAT32", (n, n))
        b.operator("DENSIFY", [sparse], [dense], "DensifyOptions")
        b.operator("ADD", [x, dense], [y], "AddOptions")
    found = Runner(nnburst.load(b.finish())).run([np.zeros((n, n), "<f4")])
    assert [np.flatnonzero(y.sum(axis=0)).tolist() for y in found] == [[0], [5], [5]]


def test_four_bit_weights_are_spread_over_bytes() -> None:
    def add(b: TfliteBuilder) -> int:
        packed = np.array([0x21, 0xF7, 0x08], "u1")  # 1 2 7 -1 -8 and half a byte of nothing
        constant = b.constant("INT4", packed, shape=(5,), scale=0.5)
        return dequantized(constant, b, (5,))

    np.testing.assert_array_equal(added(add, (5,)), [0.5, 1, 3.5, -0.5, -4])


def test_double_precision_constant_is_narrowed_whatever_it_holds() -> None:
    found = added(lambda b: b.constant("FLOAT64", np.array([1e300, -2.5], "<f8")), (2,))
    assert found[0] >= np.finfo("f4").max
    assert found[1] == -2.5


def reshaped(kind: str, values: np.ndarray) -> bytes:
    """A SLICE that begins at a constant of the given type."""
    b = TfliteBuilder()
    x, y = b.input("FLOAT32", (4, 4)), b.output("FLOAT32", (2, 2))
    size = b.constant("INT32", np.array([2, 2], "<i4"))
    b.operator("SLICE", [x, b.constant(kind, values), size], [y], "SliceOptions")
    return b.finish()


def test_constant_64_bit_integers_are_narrowed() -> None:
    x = np.arange(16, dtype="<f4").reshape(4, 4)
    [found] = Runner(nnburst.load(reshaped("INT64", np.array([1, 2], "<i8")))).run([x])
    np.testing.assert_array_equal(found, x[1:3, 2:4])


def test_constant_beyond_32_bits_is_refused() -> None:
    with pytest.raises(nnburst.InvalidArgument, match=r"tensor 3 \('tensor3'\): .*does not fit 32"):
        nnburst.load(reshaped("INT64", np.array([2**31, 0], "<i8")))


def test_weights_of_real_numbers_may_be_stored_in_bytes() -> None:
    """Dynamic range quantisation: DEQUANTIZE makes the weights real, as NNAPI wants them."""
    b = TfliteBuilder()
    x, y = b.input("FLOAT32", (1, 4)), b.output("FLOAT32", (1, 40))
    values = np.arange(-80, 80, dtype="i1").reshape(40, 4)
    weights = b.constant("INT8", values, scale=0.125)
    b.operator("FULLY_CONNECTED", [x, weights, -1], [y], "FullyConnectedOptions")
    given = np.array([[1, -2, 0.5, 4]], "<f4")
    [found] = Runner(nnburst.load(b.finish())).run([given])
    np.testing.assert_allclose(found, given @ (values * 0.125).T, rtol=1e-6)


def test_border_between_unsigned_and_signed_is_exact() -> None:
    loaded = nnburst.load(NETWORKS["QUANTIZE-border-INT8"]())
    x = np.arange(256, dtype="u1").reshape(4, 64)
    found, _ = Runner(loaded).run([x])
    np.testing.assert_array_equal(found, np.maximum(x, 123))
