"""An activation by itself becomes part of the operator before it only where that gives the same results."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest

from executor.litert.networks import F32, Array, needs_engine
from executor.litert.test_lowering import operators
from executor.onnxruntime.networks import computed
from nnburst.executor.built_in import litert
from nnburst.executor.reference.executor import ReferenceExecutor
from nnburst.hal.enums import OperandType, OperationType
from nnburst.hal.model import DTYPES, Model
from nnburst.hal.model_builder import ModelBuilder

pytestmark = needs_engine

_T = OperandType
_O = OperationType

#: Each type, its step and its zero point. Those of L2_NORMALIZATION's results are given by NNAPI.
JOINED = (
    (F32, 0.0, 0),
    (_T.TENSOR_QUANT8_ASYMM, 0.1, 120),
    (_T.TENSOR_QUANT8_ASYMM_SIGNED, 0.1, -7),
)
NORMALISED = (
    (F32, 0.0, 0), (_T.TENSOR_QUANT8_ASYMM, 1 / 128, 128), (_T.TENSOR_QUANT8_ASYMM_SIGNED, 1 / 128, 0),
)  # fmt: skip
CLAMPS = pytest.mark.parametrize("clamp", [_O.RELU, _O.RELU1, _O.RELU6], ids=lambda o: o.name)


def by_type(types: Sequence[tuple[OperandType, float, int]]) -> pytest.MarkDecorator:
    return pytest.mark.parametrize("meta", types, ids=lambda meta: meta[0].name)


def elements(kind: OperandType, shape: tuple[int, ...], seed: int) -> Array:
    """Some below -1, some between -1 and 1, some above 6."""
    random = np.random.default_rng(seed)
    if kind == F32:
        return random.uniform(-10, 10, shape).astype(np.float32)
    return random.integers(0, 256, shape).astype(np.uint8).view(DTYPES[kind])


def same(model: Model, *inputs: Array) -> None:
    """Both executors compute the same, a step of 8 bits apart at most."""
    expected = computed(ReferenceExecutor(), model, inputs)
    for ours, theirs in zip(computed(litert(), model, inputs), expected, strict=True):
        apart = 1e-5 if theirs.dtype == np.float32 else 1
        np.testing.assert_allclose(ours.astype(np.float64), theirs, rtol=0, atol=apart)


@CLAMPS
@by_type(JOINED)
@pytest.mark.parametrize("count", [1, 2, 6])
def test_joined_tensors_are_clamped(
    count: int, meta: tuple[OperandType, float, int], clamp: OperationType
) -> None:
    kind, scale, zero_point = meta
    net = ModelBuilder()
    parts = [net.input(kind, (2, 3), scale, zero_point) for _ in range(count)]
    joined = net.temporary(kind, (2, 3 * count), scale, zero_point)
    net.operation(_O.CONCATENATION, [*parts, net.scalar(1)], [joined])
    net.operation(clamp, [joined], [net.output(kind, (2, 3 * count), scale, zero_point)])
    same(net.build(), *(elements(kind, (2, 3), seed) for seed in range(count)))


@CLAMPS
@by_type(NORMALISED)
def test_normalised_vectors_are_clamped(
    meta: tuple[OperandType, float, int], clamp: OperationType
) -> None:
    kind, scale, zero_point = meta
    net = ModelBuilder()
    x = net.input(kind, (4, 5), scale / 4, zero_point)
    y = net.temporary(kind, (4, 5), scale, zero_point)
    net.operation(_O.L2_NORMALIZATION, [x], [y])
    net.operation(clamp, [y], [net.output(kind, (4, 5), scale, zero_point)])
    same(net.build(), elements(kind, (4, 5), 0))


class Seen(ModelBuilder):
    """x + x, or a product of it and a matrix, and the same numbers seen by an operation that moves none."""

    def __init__(self, first: OperationType, seen_by: OperationType, last: bool) -> None:
        super().__init__()
        made = self.output if last else self.temporary
        x, self.first, self.seen = (
            self.input(F32, (3, 3)), made(F32, (3, 3)), self.temporary(F32, (3, 3)),
        )  # fmt: skip
        if first == _O.ADD:
            self.operation(_O.ADD, [x, x, self.scalar(0)], [self.first])
        else:
            bias = self.constant(F32, np.ones(3))
            weights = self.constant(F32, np.arange(9).reshape(3, 3) - 4)
            self.operation(first, [x, weights, bias, self.scalar(0)], [self.first])
        steering = {_O.RESHAPE: (3, 3), _O.TRANSPOSE: (0, 1), _O.TILE: (1, 1)}[seen_by]
        order = self.constant(_T.TENSOR_INT32, np.array(steering, np.int32))
        self.operation(seen_by, [self.first, order], [self.seen])


SEEN_BY = pytest.mark.parametrize(
    "seen_by", [_O.RESHAPE, _O.TRANSPOSE, _O.TILE], ids=lambda o: o.name
)


@SEEN_BY
@pytest.mark.parametrize("last", [True, False], ids=["an output", "read by another"])
def test_numbers_that_are_seen_elsewhere_are_not_clamped(
    seen_by: OperationType, last: bool
) -> None:
    net = Seen(_O.ADD, seen_by, last)
    net.operation(_O.RELU, [net.seen], [net.output(F32, (3, 3))])
    if not last:
        net.operation(_O.ABS, [net.first], [net.output(F32, (3, 3))])
    same(net.build(), elements(F32, (3, 3), 0))


@SEEN_BY
@pytest.mark.parametrize("kind", [_O.ADD, _O.MUL], ids=lambda o: o.name)
@pytest.mark.parametrize("last", [True, False], ids=["an output", "read by another"])
def test_weights_of_numbers_that_are_seen_elsewhere_stay(
    seen_by: OperationType, kind: OperationType, last: bool
) -> None:
    net = Seen(_O.FULLY_CONNECTED, seen_by, last)
    more = net.constant(F32, np.array([2, 3, 4], np.float32))
    net.operation(kind, [net.seen, more, net.scalar(0)], [net.output(F32, (3, 3))])
    if not last:
        net.operation(_O.ABS, [net.first], [net.output(F32, (3, 3))])
    same(net.build(), elements(F32, (3, 3), 0))


@pytest.mark.parametrize("seen_by", [_O.RESHAPE, _O.TRANSPOSE], ids=lambda o: o.name)
def test_a_clamp_of_what_nothing_else_sees_joins_the_operator_two_before_it(
    seen_by: OperationType,
) -> None:
    net = Seen(_O.ADD, seen_by, last=False)
    net.operation(_O.RELU, [net.seen], [net.output(F32, (3, 3))])
    model = net.build()
    assert operators(model) == ["ADD"]
    same(model, elements(F32, (3, 3), 0))


@CLAMPS
@pytest.mark.parametrize("kind", [_O.ADD, _O.SUB, _O.MUL], ids=lambda o: o.name)
@pytest.mark.parametrize("fused", [True, False], ids=["fused", "of its own"])
def test_axes_that_only_a_constant_of_one_element_has_stay(
    clamp: OperationType, kind: OperationType, fused: bool
) -> None:
    net = ModelBuilder()
    quantised = (_T.TENSOR_QUANT8_ASYMM, 0.1, 100)
    activation = {_O.RELU: 1, _O.RELU1: 2, _O.RELU6: 3}[clamp]
    x, c = net.input(quantised[0], (4, 5), *quantised[1:]), np.full((1, 1, 1), 130, np.uint8)
    one = net.constant(quantised[0], c, *quantised[1:])
    y = net.temporary(quantised[0], (1, 4, 5), *quantised[1:])
    net.operation(kind, [x, one, net.scalar(activation if fused else 0)], [y])
    if not fused:
        y, before = net.temporary(quantised[0], (1, 4, 5), *quantised[1:]), y
        net.operation(clamp, [before], [y])
    none = net.constant(_T.TENSOR_INT32, np.zeros((3, 2), np.int32))
    out = net.output(quantised[0], (1, 4, 5), *quantised[1:])
    net.operation(_O.MIRROR_PAD, [y, none, net.scalar(0)], [out])
    same(net.build(), elements(quantised[0], (4, 5), 0))


@by_type(JOINED)
@pytest.mark.parametrize("pool", [_O.AVERAGE_POOL_2D, _O.MAX_POOL_2D], ids=lambda o: o.name)
def test_pool_of_single_pixels_behind_two_clamps_is_the_image(
    pool: OperationType, meta: tuple[OperandType, float, int]
) -> None:
    kind, scale, zero_point = meta
    shape = (1, 2, 3, 2)
    builder = ModelBuilder()
    x = builder.input(kind, shape, scale, zero_point)
    first, second = (builder.temporary(kind, shape, scale, zero_point) for _ in range(2))
    y = builder.output(kind, shape, scale, zero_point)
    builder.operation(_O.RELU1, [x], [first])
    builder.operation(_O.RELU6, [first], [second])
    # No padding, strides and filters of 1, no activation.
    settings = [builder.scalar(n) for n in (0, 0, 0, 0, 1, 1, 1, 1, 0)]
    builder.operation(pool, [second, *settings], [y])
    same(builder.build(), elements(kind, shape, 3))
