"""The order of axes: transpositions of a model move nothing by themselves, and few are left."""

from __future__ import annotations

from importlib import import_module
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

pytest.importorskip("onnxruntime", reason="the executor's engine")
pytest.importorskip("onnx", reason="reads what the engine has made of a graph")

from executor.onnxruntime.networks import (
    F32,
    I32,
    Array,
    Chain,
    computed,
    operators,
    optimised,
)
from nnburst.executor.built_in import onnxruntime, reference
from nnburst.executor.graph.tensor import TensorType
from nnburst.executor.onnxruntime.graph import OnnxGraph, StoredValue
from nnburst.hal.enums import OperationType
from nnburst.hal.model import Model


def nchw_network() -> Chain:
    """As the importer writes a network whose images are NCHW at its border."""
    chain = Chain((1, 3, 8, 8))
    chain.transpose(0, 2, 3, 1)
    chain.convolution(8)
    chain.convolution(8)
    chain.transpose(0, 3, 1, 2, last=True)
    return chain


def same_as_the_reference(model: Model, seed: int = 1) -> None:
    shape = model.main.operands[model.main.input_indexes[0]].dimensions
    x = np.random.default_rng(seed).standard_normal(shape).astype(np.float32)
    found, wanted = (computed(e, model, [x])[0] for e in (onnxruntime(), reference()))
    np.testing.assert_allclose(found, wanted, rtol=1e-4, atol=1e-4)


def test_images_that_are_nchw_at_the_border_are_never_transposed() -> None:
    model = nchw_network().build()
    assert operators(model) == {"Conv": 2, "Relu": 2}
    same_as_the_reference(model)


def test_images_that_are_nhwc_at_the_border_are_transposed_there_alone() -> None:
    chain = Chain((1, 8, 8, 3))
    chain.convolution(8)
    chain.convolution(8, last=True)
    model = chain.build()
    assert operators(model) == {"Conv": 2, "Relu": 2, "Transpose": 2}
    same_as_the_reference(model)


def test_operators_between_convolutions_take_images_as_they_are_stored() -> None:
    chain = Chain((1, 3, 8, 8))
    chain.transpose(0, 2, 3, 1)
    first = chain.convolution(8)
    builder, zero, last_axis = chain.builder, chain.builder.scalar(0), chain.builder.scalar(3)
    chain.then(OperationType.MUL, chain.shape, chain.weights(8), zero)
    chain.then(OperationType.ADD, chain.shape, first, zero)
    chain.then(OperationType.LOGISTIC, chain.shape)
    chain.then(OperationType.CONCATENATION, (1, 8, 8, 16), first, last_axis)
    pads = builder.constant(I32, np.array([[0, 0], [1, 0], [0, 1], [0, 0]], np.int32))
    chain.then(OperationType.PAD, (1, 9, 9, 16), pads)
    begin, size = chain.integers(0, 1, 0, 4), chain.integers(1, 8, 8, 8)
    chain.then(OperationType.SLICE, (1, 8, 8, 8), begin, size)
    chain.then(OperationType.MEAN, (1, 1, 1, 8), chain.integers(1, 2), builder.scalar(1))
    chain.reshape(1, 8, 1, 1, last=True)
    found = operators(chain.build())
    assert "Transpose" not in found
    assert "Reshape" not in found
    same_as_the_reference(chain.build())


def test_pixels_joined_to_rows_keep_the_order_of_the_image() -> None:
    """As a recogniser of lines hands its image to products of matrices, and back."""
    chain = Chain((1, 3, 8, 8))
    chain.transpose(0, 2, 3, 1)
    chain.convolution(8)
    chain.reshape(1, 64, 8)
    chain.then(OperationType.LOGISTIC, chain.shape)
    chain.reshape(1, 8, 8, 8)
    chain.convolution(4)
    chain.transpose(0, 3, 1, 2, last=True)
    assert operators(chain.build())["Transpose"] == 0
    same_as_the_reference(chain.build())


def test_channels_that_are_shuffled_move_once() -> None:
    chain = Chain((1, 3, 8, 8))
    chain.transpose(0, 2, 3, 1)
    chain.convolution(8)
    chain.reshape(64, 2, 4)
    chain.transpose(0, 2, 1)
    chain.reshape(1, 8, 8, 8)
    chain.convolution(4)
    chain.transpose(0, 3, 1, 2, last=True)
    assert operators(chain.build())["Transpose"] == 1
    same_as_the_reference(chain.build())


def test_the_engine_makes_blocked_convolutions_with_their_activations_of_it(
    tmp_path: Path,
) -> None:
    chain = Chain((1, 16, 16, 16))
    chain.transpose(0, 2, 3, 1)
    first = chain.convolution(16)
    chain.convolution(16, activation=0)
    chain.then(OperationType.MUL, chain.shape, chain.weights(16), chain.builder.scalar(0))
    chain.then(OperationType.ADD, chain.shape, first, chain.builder.scalar(1))
    chain.convolution(16)
    chain.transpose(0, 3, 1, 2, last=True)
    found = optimised(chain.build(), tmp_path / "optimised.onnx")
    blocked = found["com.microsoft.nchwc:Conv"]
    if not blocked:
        pytest.skip("the engine has no blocked convolutions on this processor")
    assert blocked == 3
    assert sum(count for name, count in found.items() if "Relu" in name) == 0
    assert found[":Mul"] == 0
    assert found[":Transpose"] == 0


_AXES = st.lists(st.sampled_from([1, 1, 2, 3, 4]), min_size=1, max_size=4)


@st.composite
def walks(draw: st.DrawFn) -> tuple[tuple[int, ...], list[tuple[str, tuple[int, ...]]]]:
    """Extents to begin with, then transpositions and other extents of as many elements."""
    shape = tuple(draw(_AXES))
    now, steps = shape, []
    for _ in range(draw(st.integers(1, 6))):
        if draw(st.booleans()):
            order = tuple(draw(st.permutations(range(len(now)))))
            steps.append(("transpose", order))
            now = tuple(now[axis] for axis in order)
        else:
            now = draw(st.sampled_from(_factored(int(np.prod(now)))))
            steps.append(("reshape", now))
    return shape, steps


def _factored(count: int) -> list[tuple[int, ...]]:
    """Extents of so many elements."""
    found: set[tuple[int, ...]] = {(count,), (1, count), (count, 1), (1, count, 1)}
    for first in (d for d in range(2, count) if count % d == 0):
        rest = count // first
        found |= {(first, rest), (first, 1, rest)}
        found |= {
            (first, second, rest // second) for second in range(2, rest) if rest % second == 0
        }
    return sorted(found)


@settings(max_examples=60, deadline=None)
@given(walks(), st.booleans())
def test_any_walk_of_transpositions_and_extents_gives_the_same_elements(
    walk: tuple[tuple[int, ...], list[tuple[str, tuple[int, ...]]]], constant: bool
) -> None:
    shape, steps = walk
    start: Array = np.arange(np.prod(shape), dtype=np.float32).reshape(shape)
    writer, wanted = OnnxGraph(whole=True), start
    meta = TensorType(F32, shape)
    fed = writer.input(meta)
    value = writer.constant(lambda: start, meta) if constant else fed
    for kind, numbers in steps:
        if kind == "reshape":
            value, wanted = writer.reshaped(value, numbers), wanted.reshape(numbers)
            continue
        order = tuple(numbers.index(axis) for axis in value.order)
        wanted = wanted.transpose(numbers)
        value = StoredValue(value.name, TensorType(F32, wanted.shape), order)
    written = writer.finish([value])
    ort = import_module("onnxruntime")
    session = ort.InferenceSession(written.content, providers=["CPUExecutionProvider"])
    (found,) = session.run(None, {session.get_inputs()[0].name: start})
    np.testing.assert_array_equal(found, wanted)
