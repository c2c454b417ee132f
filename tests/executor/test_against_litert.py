"""Quantised kernels beside LiteRT's reference kernels, relatives of the original's: bit for bit.

If the two form a multiplier differently, scales are chosen for which both come out the same (12
bits each, so that float32 products are exact). NNAPI multiplies scales in float32 and divides in
float64. LiteRT multiplies per-channel scales in float64 and divides MUL's in float32;
`test_mul_differs_...` shows what that does. LiteRT rescales FULLY_CONNECTED in a way of its own, which
its test states.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from executor.exact_integers import c_mbqm, c_multiplier
from executor.plain_windows import requantise
from nnburst.executor.base import Argument
from nnburst.executor.reference.executor import ReferenceExecutor
from nnburst.executor.reference.quantized import round_half_away
from nnburst.hal.enums import ErrorStatus, OperandType, OperationType
from nnburst.hal.model import DTYPES, QUANTIZED_RANGES, Model, SymmPerChannelQuantParams
from nnburst.hal.model_builder import ModelBuilder
from nnburst.testing.models.litert import interpreter, to_tflite

pytest.importorskip("ai_edge_litert", reason="ai-edge-litert is not installed (extra 'peers')")

Q8, Q8S = OperandType.TENSOR_QUANT8_ASYMM, OperandType.TENSOR_QUANT8_ASYMM_SIGNED
QPC, I32 = OperandType.TENSOR_QUANT8_SYMM_PER_CHANNEL, OperandType.TENSOR_INT32

#: Scales of two inputs and an output of MUL whose multiplier depends on where it is rounded.
MUL_SCALES = (0.037, 0.011, 0.008)

small = st.integers(1, 3)
activations = st.sampled_from([0, 1, 2, 3])
types = st.sampled_from([Q8, Q8S])


@st.composite
def scales(draw: st.DrawFn, low: int = -12, high: int = -6) -> float:
    """A scale with 12 bits."""
    return draw(st.integers(2048, 4095)) * 2.0 ** (draw(st.integers(low, high)) - 11)


@dataclass(frozen=True)
class Quantised:
    """Type, scale and zero point of a tensor."""

    type: OperandType
    scale: float
    zero_point: int

    @property
    def arguments(self) -> tuple[float, int]:
        return self.scale, self.zero_point


@st.composite
def quantisations(draw: st.DrawFn, kind: OperandType, **limits: int) -> Quantised:
    return Quantised(kind, draw(scales(**limits)), draw(st.integers(*QUANTIZED_RANGES[kind])))


def stored(random: np.random.Generator, kind: OperandType, shape: tuple[int, ...]) -> Any:
    low, high = QUANTIZED_RANGES[kind]
    return random.integers(low, high + 1, shape).astype(DTYPES[kind])


def run_reference(model: Model, inputs: list[Any]) -> Any:
    execution = ReferenceExecutor().prepare(model, [])
    operand = model.main.operands[model.main.output_indexes[0]]
    out = np.zeros(operand.dimensions, DTYPES[OperandType(operand.type)])
    arguments = [Argument(x.reshape(-1).view(np.uint8), x.shape) for x in inputs]
    bound = execution.bind(arguments, [Argument(out.reshape(-1).view(np.uint8), out.shape)])
    outcome = bound.run()
    assert outcome.status is ErrorStatus.NONE, outcome.message
    return out


def run_litert(model: Model, inputs: list[Any]) -> Any:
    peer = interpreter(to_tflite(model))
    for details, values in zip(peer.get_input_details(), inputs, strict=True):
        peer.set_tensor(details["index"], values)
    peer.invoke()
    return peer.get_tensor(peer.get_output_details()[0]["index"])


def assert_equal(model: Model, inputs: list[Any]) -> None:
    np.testing.assert_array_equal(run_reference(model, inputs), run_litert(model, inputs))


@dataclass(frozen=True)
class Windows:
    """A window with implicit padding over an image."""

    image: tuple[int, int, int, int]
    filter: tuple[int, int]
    stride: tuple[int, int]
    dilation: tuple[int, int]
    same: bool

    @property
    def output(self) -> tuple[int, int]:
        spans = [(f - 1) * d + 1 for f, d in zip(self.filter, self.dilation, strict=True)]
        sizes = [
            size if self.same else size - span + 1
            for size, span in zip(self.image[1:3], spans, strict=True)
        ]
        return tuple(-(-n // s) for n, s in zip(sizes, self.stride, strict=True))

    @property
    def scalars(self) -> list[int]:
        return [1 if self.same else 2, self.stride[1], self.stride[0]]


@st.composite
def windows(draw: st.DrawFn, dilates: bool = True) -> Windows:
    filters, strides = (draw(small), draw(small)), (draw(small), draw(small))
    # LiteRT's kernels do not combine strides with dilations in every case.
    dilation = (draw(small), draw(small)) if dilates and strides == (1, 1) else (1, 1)
    least = [(f - 1) * d + 1 for f, d in zip(filters, dilation, strict=True)]
    size = [draw(st.integers(n, n + 5)) for n in least]
    image = draw(small), *size, draw(small)
    return Windows(image, filters, strides, dilation, draw(st.booleans()))


@st.composite
def convolutions(draw: st.DrawFn, kind: OperationType) -> tuple[Model, list[Any]]:
    window, type_ = draw(windows()), draw(types)
    random = np.random.default_rng(draw(st.integers(0, 2**32)))
    source = draw(quantisations(type_))
    target = draw(quantisations(type_, low=-8, high=1))
    multiplier = draw(small)
    channels = window.image[3] * multiplier if kind is not OperationType.CONV_2D else draw(small)
    depthwise = kind is OperationType.DEPTHWISE_CONV_2D
    shape = (
        (1, *window.filter, channels) if depthwise else (channels, *window.filter, window.image[3])
    )
    builder = ModelBuilder()
    x = builder.input(type_, window.image, *source.arguments)
    operands = [x, *_filter(draw, builder, random, source, shape, 3 if depthwise else 0)]
    operands += [builder.scalar(n) for n in window.scalars]
    operands += [builder.scalar(multiplier)] if depthwise else []
    operands += [builder.scalar(draw(activations)), builder.scalar(False)]
    operands += [builder.scalar(window.dilation[1]), builder.scalar(window.dilation[0])]
    y = builder.output(type_, (window.image[0], *window.output, channels), *target.arguments)
    builder.operation(kind, operands, [y])
    return builder.build(), [stored(random, type_, window.image)]


def _filter(
    draw: st.DrawFn,
    builder: ModelBuilder,
    random: np.random.Generator,
    source: Quantised,
    shape: tuple[int, ...],
    dimension: int,
) -> list[int]:
    """Operands of a filter and its bias: per tensor for unsigned images, else per channel."""
    channels = shape[dimension]
    bias = random.integers(-5000, 5000, channels)
    if source.type is Q8:
        weights = draw(quantisations(Q8))
        unit = float(np.float32(source.scale) * np.float32(weights.scale))
        return [
            builder.constant(Q8, stored(random, Q8, shape), *weights.arguments),
            builder.constant(I32, bias, unit),
        ]
    found = tuple(draw(scales()) for _ in range(channels))
    # LiteRT looks at the bias scale if there is one channel only.
    unit = source.scale * found[0] if channels == 1 else 0.0
    params = SymmPerChannelQuantParams(found, dimension)
    values = random.integers(-127, 128, shape)
    return [
        builder.constant(QPC, values, extra_params=params),
        builder.constant(I32, bias, unit),
    ]


@given(convolutions(OperationType.CONV_2D))
def test_convolution_is_equal_to_that_of_litert(case: tuple[Model, list[Any]]) -> None:
    assert_equal(*case)


@given(convolutions(OperationType.DEPTHWISE_CONV_2D))
def test_depthwise_convolution_is_equal_to_that_of_litert(case: tuple[Model, list[Any]]) -> None:
    assert_equal(*case)


@given(types, st.data(), small, st.integers(1, 40), st.integers(1, 5))
def test_fully_connected_differs_only_by_the_second_rounding(
    kind: OperandType, data: st.DataObject, batch: int, inputs: int, units: int
) -> None:
    random = np.random.default_rng(data.draw(st.integers(0, 2**32)))
    source, target = data.draw(quantisations(kind)), data.draw(quantisations(kind, low=-8, high=1))
    weights = data.draw(quantisations(kind))
    if kind is Q8S:  # LiteRT takes symmetric signed weights only
        weights = Quantised(kind, weights.scale, 0)
    unit = float(np.float32(source.scale) * np.float32(weights.scale))
    rows, matrix = stored(random, kind, (batch, inputs)), stored(random, kind, (units, inputs))
    bias = random.integers(-5000, 5000, units)
    builder = ModelBuilder()
    x = builder.input(kind, rows.shape, *source.arguments)
    w = builder.constant(kind, matrix, *weights.arguments)
    y = builder.output(kind, (batch, units), *target.arguments)
    operands = [x, w, builder.constant(I32, bias, unit), builder.scalar(0)]
    builder.operation(OperationType.FULLY_CONNECTED, operands, [y])
    model = builder.build()
    centred = rows.astype(np.int64) - source.zero_point
    sums = centred @ (matrix.astype(np.int64) - weights.zero_point).T + bias
    limits = QUANTIZED_RANGES[kind]
    # NNAPI: sums are rescaled with two roundings (MBQM), as in convolutions. This LiteRT rescales
    # FULLY_CONNECTED, and nothing else, with one floating-point product that is rounded once.
    ours = requantise(sums, unit, *target.arguments, *limits)
    once = round_half_away(sums * (unit / target.scale)) + target.zero_point
    np.testing.assert_array_equal(run_reference(model, [rows]), ours)
    np.testing.assert_array_equal(run_litert(model, [rows]), once.clip(*limits))


@pytest.mark.parametrize("kind", [OperationType.AVERAGE_POOL_2D, OperationType.MAX_POOL_2D])
@given(windows(dilates=False), types, activations, st.data())
def test_pooling_is_equal_to_that_of_litert(
    kind: OperationType, window: Windows, type_: OperandType, activation: int, data: st.DataObject
) -> None:
    random = np.random.default_rng(data.draw(st.integers(0, 2**32)))
    quantised = data.draw(quantisations(type_)).arguments
    builder = ModelBuilder()
    x = builder.input(type_, window.image, *quantised)
    y = builder.output(type_, (window.image[0], *window.output, window.image[3]), *quantised)
    numbers = [*window.scalars, window.filter[1], window.filter[0], activation]
    builder.operation(kind, [x, *(builder.scalar(n) for n in numbers)], [y])
    assert_equal(builder.build(), [stored(random, type_, window.image)])


def _binary(
    kind: OperationType, inputs: list[Quantised], target: Quantised, activation: int, shape: Any
) -> Model:
    builder = ModelBuilder()
    operands = [builder.input(q.type, shape, *q.arguments) for q in inputs]
    y = builder.output(target.type, shape, *target.arguments)
    builder.operation(kind, [*operands, builder.scalar(activation)], [y])
    return builder.build()


@given(types, activations, st.data())
def test_addition_is_equal_to_that_of_litert(
    kind: OperandType, activation: int, data: st.DataObject
) -> None:
    inputs = [data.draw(quantisations(kind)) for _ in range(2)]
    target = data.draw(quantisations(kind))
    random = np.random.default_rng(data.draw(st.integers(0, 2**32)))
    model = _binary(OperationType.ADD, inputs, target, activation, (3, 50))
    assert_equal(model, [stored(random, kind, (3, 50)) for _ in range(2)])


@given(types, activations, st.integers(-8, 0), st.data())
def test_multiplication_is_equal_to_that_of_litert(
    kind: OperandType, activation: int, exponent: int, data: st.DataObject
) -> None:
    inputs = [data.draw(quantisations(kind)) for _ in range(2)]
    # Dividing by a power of two is exact in float32, too.
    zero_point = data.draw(st.integers(*QUANTIZED_RANGES[kind]))
    target = Quantised(kind, 2.0**exponent, zero_point)
    random = np.random.default_rng(data.draw(st.integers(0, 2**32)))
    model = _binary(OperationType.MUL, inputs, target, activation, (3, 50))
    assert_equal(model, [stored(random, kind, (3, 50)) for _ in range(2)])


def test_mul_differs_where_the_quotient_of_scales_is_not_a_float32() -> None:
    left, right, output_scale = (float(np.float32(s)) for s in MUL_SCALES)
    every = np.arange(256, dtype=np.uint8)
    inputs = [np.repeat(every, 256), np.tile(every, 256)]
    model = _binary(
        OperationType.MUL,
        [Quantised(Q8, left, 0), Quantised(Q8, right, 0)],
        Quantised(Q8, output_scale, 0),
        0,
        (256 * 256,),
    )
    ours, theirs = run_reference(model, inputs), run_litert(model, inputs)
    product = np.float32(left) * np.float32(right)
    by_rule = c_multiplier(float(product) / output_scale)
    in_float32 = c_multiplier(float(product / np.float32(output_scale)))
    assert by_rule != in_float32
    different = np.flatnonzero(ours != theirs)
    assert different.size
    for at in different:
        exact = int(inputs[0][at]) * int(inputs[1][at])
        assert ours[at] == min(c_mbqm(exact, *by_rule), 255)
        assert theirs[at] == min(c_mbqm(exact, *in_float32), 255)
