from __future__ import annotations

import tracemalloc
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from executor.plain_windows import (
    Plain,
    convolve,
    convolve_depthwise,
    laid_out,
    requantise,
    same_padding,
)
from executor.refusal import refuses, rejects
from executor.run_operation import Given, Wanted, output, run, scalar, tensor
from nnburst.executor.graph.declarations import quantize_multiplier
from nnburst.executor.reference.fixed_point import multiply_by_quantized_multiplier
from nnburst.hal.enums import ErrorStatus, OperandType, OperationType
from nnburst.hal.model import SymmPerChannelQuantParams

CONV, GROUPED, DEPTHWISE = (
    OperationType.CONV_2D,
    OperationType.GROUPED_CONV_2D,
    OperationType.DEPTHWISE_CONV_2D,
)
F32, F16, I32 = (
    OperandType.TENSOR_FLOAT32,
    OperandType.TENSOR_FLOAT16,
    OperandType.TENSOR_INT32,
)
Q8, Q8S = OperandType.TENSOR_QUANT8_ASYMM, OperandType.TENSOR_QUANT8_ASYMM_SIGNED
QPC = OperandType.TENSOR_QUANT8_SYMM_PER_CHANNEL


@dataclass(frozen=True)
class Case:
    """One convolution with explicit padding; everything in integers, NHWC."""

    kind: OperationType
    image: Any
    weights: Any
    bias: Any
    plain: Plain
    factor: int  # groups or depth multiplier

    @property
    def sums(self) -> Any:
        if self.kind is DEPTHWISE:
            return convolve_depthwise(self.image, self.weights, self.plain) + self.bias
        return convolve(self.image, self.weights, self.plain, self.factor) + self.bias

    def scalars(self, activation: int, nchw: bool) -> list[Given]:
        plain, dilates = self.plain, self.kind is not GROUPED
        numbers = [plain.left, plain.right, plain.top, plain.bottom]
        numbers += [plain.stride[1], plain.stride[0]]
        numbers += [] if self.kind is CONV else [self.factor]
        dilation = [scalar(plain.dilation[1]), scalar(plain.dilation[0])] if dilates else []
        return [*(scalar(n) for n in [*numbers, activation]), scalar(nchw), *dilation]


@st.composite
def cases(draw: st.DrawFn, kind: OperationType) -> Case:
    small = st.integers(1, 3)
    filters = draw(small), draw(small)
    dilation = (1, 1) if kind is GROUPED else (draw(small), draw(small))
    spans = [(f - 1) * d + 1 for f, d in zip(filters, dilation, strict=True)]
    pads = [draw(st.integers(0, span - 1)) for span in (spans[0], spans[0], spans[1], spans[1])]
    plain = Plain((draw(small), draw(small)), *pads, dilation)
    height = draw(st.integers(max(1, spans[0] - pads[0] - pads[1]), 7))
    width = draw(st.integers(max(1, spans[1] - pads[2] - pads[3]), 7))
    factor = 1 if kind is CONV else draw(small)
    depth, outputs = draw(small), draw(small)
    random = np.random.default_rng(draw(st.integers(0, 2**32)))
    channels = depth * factor if kind is GROUPED else depth
    if kind is DEPTHWISE:
        weights_shape = (1, *filters, depth * factor)
    else:
        outputs *= factor
        weights_shape = (outputs, *filters, depth)
    bias_shape = weights_shape[3] if kind is DEPTHWISE else outputs
    return Case(
        kind,
        random.integers(-128, 128, (draw(small), height, width, channels)),
        random.integers(-128, 128, weights_shape),
        random.integers(-20000, 20000, bias_shape),
        plain,
        factor,
    )


any_case = st.sampled_from([CONV, GROUPED, DEPTHWISE]).flatmap(cases)


@given(any_case, st.booleans(), st.sampled_from([F32, F16]), st.booleans())
def test_sums_of_whole_numbers_are_exact_in_floats(
    case: Case, nchw: bool, kind: OperandType, constant: bool
) -> None:
    # float16 holds whole numbers up to 2048 only.
    image, weights, bias = case.image, case.weights, case.bias
    if kind is F16:
        image, weights, bias = image % 3, weights % 3, bias % 100
    case = Case(case.kind, image, weights, bias, case.plain, case.factor)
    operands = [
        tensor(kind, laid_out(image, nchw)),
        tensor(kind, weights, constant=constant),
        tensor(kind, bias, constant=constant),
    ]
    [found] = run(case.kind, [*operands, *case.scalars(0, nchw)], [output(kind)])
    assert (found == laid_out(case.sums, nchw)).all()


@given(
    any_case,
    st.booleans(),
    st.booleans(),
    st.sampled_from([(Q8, Q8), (Q8S, Q8S), (Q8, QPC), (Q8S, QPC)]),
    st.sampled_from([0, 1, 3]),
    st.floats(0.25, 200),
    st.integers(0, 255),
)
def test_quantised_results_are_those_of_integers_to_the_last_bit(
    case: Case,
    nchw: bool,
    constant: bool,
    types: tuple[OperandType, OperandType],
    activation: int,
    scale: float,
    zero_point: int,
) -> None:
    kind, filter_kind = types
    scale = float(np.float32(scale))
    shift = 128 if kind is Q8 else 0
    low, high = (0, 255) if kind is Q8 else (-128, 127)
    zero_point = zero_point if kind is Q8 else zero_point - 128
    # Bytes are centred numbers plus a zero point that brings them into their type's range.
    image = tensor(kind, laid_out(case.image + shift, nchw), 0.5, shift)
    units: Any = np.float32(0.5) * np.float32(0.25)
    if filter_kind is QPC:
        scales = tuple(float(np.float32(0.25 / (c + 1))) for c in range(case.bias.size))
        dimension = 3 if case.kind is DEPTHWISE else 0
        params = SymmPerChannelQuantParams(scales, dimension)
        weights = tensor(QPC, case.weights, extra_params=params, constant=constant)
        bias = tensor(I32, case.bias, constant=constant)
        units = np.float32(0.5) * np.array(scales, np.float32)
    else:
        weights = tensor(kind, case.weights + shift, 0.25, shift, constant=constant)
        bias = tensor(I32, case.bias, float(units), constant=constant)
    [found] = run(
        case.kind,
        [image, weights, bias, *case.scalars(activation, nchw)],
        [output(kind, (), scale, zero_point)],
    )
    if activation:
        low = max(low, zero_point)
    if activation == 3:
        high = min(high, zero_point + int(np.floor(np.float32(6) / np.float32(scale) + 0.5)))
    wanted = requantise(case.sums, units, scale, zero_point, low, high)
    assert (found == laid_out(wanted, nchw)).all()


@pytest.mark.parametrize("depth", [64, 257, 300])
@pytest.mark.parametrize("constant", [True, False])
def test_largest_possible_sums_are_exact_in_either_float_type(depth: int, constant: bool) -> None:
    # 257 products of 255 * 255 are the first whose sum may pass 2**24 in one window.
    image = np.full((1, 2, 2, depth), 255)
    image[0, 0, 0, 0] = 254
    weights = np.full((1, 1, 1, depth), 255)
    weights[..., -1] = 0
    exact = (image * weights).sum(axis=-1)
    bias = -int(exact.max()) + 101
    [found] = run(
        CONV,
        [
            tensor(Q8, image, 1.0, 0),
            tensor(Q8, weights, 1.0, 0, constant=constant),
            tensor(I32, [bias], 1.0, constant=constant),
            *(scalar(n) for n in (2, 1, 1, 0)),
        ],
        [output(Q8, (), 1.0, 0)],
    )
    assert (found[..., 0] == (exact + bias).clip(0, 255)).all()
    assert sorted(set(found.ravel().tolist())) == [0, 101]


@given(
    st.sampled_from([CONV, DEPTHWISE, GROUPED]),
    st.integers(1, 9),
    st.integers(1, 4),
    st.integers(1, 3),
    st.integers(1, 2),
)
def test_same_padding_is_the_explicit_padding_it_stands_for(
    kind: OperationType, size: int, filter_size: int, stride: int, dilation: int
) -> None:
    dilation = 1 if kind is GROUPED else dilation
    random = np.random.default_rng(size)
    image = tensor(F32, random.integers(-9, 9, (1, size, size, 2)))
    if kind is CONV:
        weights = random.integers(-9, 9, (2, filter_size, filter_size, 2))
    else:
        weights = random.integers(-9, 9, (2 if kind is GROUPED else 1, filter_size, filter_size, 1))
        weights = weights if kind is GROUPED else np.repeat(weights, 2, axis=3)
    operands = [image, tensor(F32, weights), tensor(F32, [1, 2])]
    tail = [stride, stride, *([] if kind is CONV else [2 if kind is GROUPED else 1]), 0]
    options = [scalar(False), *([] if kind is GROUPED else [scalar(dilation)] * 2)]
    head, end = same_padding(size, filter_size, stride, dilation)
    [implicit] = run(kind, [*operands, *(scalar(n) for n in [1, *tail]), *options], [output(F32)])
    [explicit] = run(
        kind,
        [*operands, *(scalar(n) for n in [head, end, head, end, *tail]), *options],
        [output(F32)],
    )
    assert (implicit == explicit).all()
    assert implicit.shape[1] == -(-size // stride)


@pytest.mark.parametrize("shape", [(3, 40, 41, 8), (300, 5, 5, 8)])
@pytest.mark.parametrize("nchw", [False, True])
@pytest.mark.parametrize("kind", [CONV, DEPTHWISE])
def test_images_that_are_worked_off_in_pieces_come_out_whole(
    shape: tuple[int, ...], nchw: bool, kind: OperationType
) -> None:
    random = np.random.default_rng(5)
    image = random.integers(0, 256, shape)
    weights = random.integers(0, 256, (16, 3, 3, 8) if kind is CONV else (1, 3, 3, 8))
    bias = random.integers(-999, 999, 16 if kind is CONV else 8)
    seen = np.lib.stride_tricks.sliding_window_view(image - 7, (3, 3), axis=(1, 2))
    products = "nyxcij,oijc->nyxo" if kind is CONV else "nyxcij,oijc->nyxc"
    sums = np.einsum(products, seen, weights - 100) + bias
    operands = [
        tensor(Q8, laid_out(image, nchw), 0.5, 7),
        tensor(Q8, weights, 0.5, 100, constant=True),
        tensor(I32, bias, 0.25, constant=True),
        *(scalar(n) for n in ((2, 1, 1, 0) if kind is CONV else (2, 1, 1, 1, 0))),
        scalar(nchw),
    ]
    [found] = run(kind, operands, [output(Q8, (), 400.0, 50)])
    multiplier, shift = quantize_multiplier(0.25 / 400.0)
    wanted = multiply_by_quantized_multiplier(sums, multiplier, shift) + 50
    assert (found == laid_out(wanted.clip(0, 255), nchw)).all()
    assert 0 < found.mean() < 255


def test_a_convolution_by_hand() -> None:
    image = np.arange(9).reshape(1, 3, 3, 1)
    weights = [[[[1], [2]], [[3], [4]]]]
    operands = [tensor(F32, image), tensor(F32, weights), tensor(F32, [0.5])]
    [found] = run(CONV, [*operands, *(scalar(n) for n in (2, 1, 1, 0))], [output(F32)])
    assert found.tolist() == [[[[27.5], [37.5]], [[57.5], [67.5]]]]
    [relu6] = run(CONV, [*operands, *(scalar(n) for n in (2, 1, 1, 3))], [output(F32)])
    assert relu6.tolist() == [[[[6.0], [6.0]], [[6.0], [6.0]]]]


def test_depthwise_output_channels_of_one_input_channel_lie_together() -> None:
    image = tensor(F32, [[[[1, 10]]]])
    weights = tensor(F32, [[[[1, 2, 3, 4]]]])
    operands = [image, weights, tensor(F32, [0, 0, 0, 0])]
    [found] = run(DEPTHWISE, [*operands, *(scalar(n) for n in (2, 1, 1, 2, 0))], [output(F32)])
    assert found.tolist() == [[[[1, 2, 30, 40]]]]


def test_groups_do_not_see_each_other() -> None:
    image = tensor(F32, [[[[1, 10, 100, 1000]]]])
    weights = tensor(F32, [[[[1, 1]]], [[[2, 2]]]])
    operands = [image, weights, tensor(F32, [0, 0])]
    tail = [*(scalar(n) for n in (2, 1, 1, 2, 0)), scalar(False)]
    [found] = run(GROUPED, [*operands, *tail], [output(F32)])
    assert found.tolist() == [[[[11, 2200]]]]


def test_infinite_sums_become_the_largest_float_and_nan_passes() -> None:
    image = tensor(F32, [[[[np.inf]], [[np.nan]], [[-np.inf]]]])
    operands = [image, tensor(F32, [[[[1]]]]), tensor(F32, [0])]
    [found] = run(CONV, [*operands, *(scalar(n) for n in (2, 1, 1, 0))], [output(F32)])
    largest = np.finfo(np.float32).max
    np.testing.assert_array_equal(found.ravel(), np.float32([largest, np.nan, -largest]))


@pytest.mark.parametrize("kind", [CONV, DEPTHWISE])
def test_no_images_give_no_images(kind: OperationType) -> None:
    operands = [tensor(F32, np.zeros((0, 3, 3, 1))), tensor(F32, [[[[1]]]]), tensor(F32, [0])]
    numbers = (2, 1, 1, 0) if kind is CONV else (2, 1, 1, 1, 0)
    [found] = run(kind, [*operands, *(scalar(n) for n in numbers)], [output(F32)])
    assert found.shape == (0, 3, 3, 1)


def test_no_images_are_refused_by_the_grouped_convolution() -> None:
    operands = [tensor(F32, np.zeros((0, 3, 3, 1))), tensor(F32, [[[[1]]]]), tensor(F32, [0])]
    tail = [*(scalar(n) for n in (2, 1, 1, 1, 0)), scalar(False)]
    refuses(GROUPED, [*operands, *tail], [output(F32)], "empty", ErrorStatus.INVALID_ARGUMENT)


def small(**changes: Any) -> tuple[list[Given], list[Wanted]]:
    """A 1x1 convolution over 4x4 cells, with operands exchanged by name."""
    operands: dict[str, Given] = {
        "image": tensor(F32, np.ones((1, 4, 4, 2))),
        "filter": tensor(F32, np.ones((3, 2, 2, 2))),
        "bias": tensor(F32, np.zeros(3)),
        **{name: scalar(0) for name in ("left", "right", "top", "bottom")},
        "stride_width": scalar(1),
        "stride_height": scalar(1),
        "activation": scalar(0),
        "nchw": scalar(False),
        "dilation_width": scalar(1),
        "dilation_height": scalar(1),
    }
    return [*(operands | changes).values()], [output(F32)]


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"stride_width": scalar(0)}, "'stride_width' is 0, expected > 0"),
        ({"dilation_height": scalar(-1)}, "'dilation_height' is -1, expected > 0"),
        ({"left": scalar(-1)}, "padding at the left is -1"),
        ({"bottom": scalar(2)}, "padding at the bottom is 2, expected 0 to 1"),
        ({"activation": scalar(4)}, "'activation' is 4"),
        ({"activation": scalar(-1)}, "'activation' is -1"),
        ({"bias": tensor(F32, np.zeros(2))}, "'bias' has 2 elements"),
        ({"bias": tensor(F32, np.zeros((3, 1)))}, "'bias' has rank 2"),
        ({"filter": tensor(F32, np.ones((3, 2, 2, 1)))}, "'filter' fits 1 channels"),
        ({"filter": tensor(F32, np.ones((3, 5, 2, 2)))}, "too small"),
        ({"image": tensor(F32, np.ones((1, 0, 4, 2)))}, "only the batches may be empty"),
    ],
)
def test_operands_that_do_not_fit_fail(changes: dict[str, Given], message: str) -> None:
    refuses(CONV, *small(**changes), message)


@pytest.mark.parametrize("name", ["image", "filter"])
def test_images_and_filters_of_another_rank_are_rejected(name: str) -> None:
    rejects(CONV, *small(**{name: tensor(F32, np.ones((4, 4, 2)))}), "has rank 3, expected 4")


@pytest.mark.parametrize("count", [9, 12])
def test_one_dilation_alone_is_rejected(count: int) -> None:
    operands, outputs = small()
    if count == 9:
        operands = [*operands[:3], scalar(2), *operands[7:]][:9]
    rejects(CONV, operands[:count], outputs, "P4")


def test_ten_inputs_are_distinguished_by_the_type_of_the_eighth() -> None:
    operands, outputs = small()
    [explicit] = run(CONV, operands[:10], outputs)
    [implicit] = run(CONV, [*operands[:3], scalar(2), *operands[7:]], outputs)
    assert (explicit == implicit).all()


@pytest.mark.parametrize(
    ("weights", "multiplier", "message"),
    [
        (np.ones((2, 1, 1, 2)), 1, "dimension 0 of 2, expected 1"),
        (np.ones((1, 1, 1, 2)), 2, "'filter' has 2 channels, expected 2 times 2"),
        (np.ones((1, 1, 1, 2)), 0, "'depth_multiplier' is 0, expected > 0"),
        (np.ones((1, 1, 2)), 1, "'filter' has rank 3"),
    ],
)
def test_depthwise_filters_that_do_not_fit_fail(
    weights: Any, multiplier: int, message: str
) -> None:
    bias = np.zeros(weights.shape[-1])
    operands = [tensor(F32, np.ones((1, 2, 2, 2))), tensor(F32, weights), tensor(F32, bias)]
    numbers = [scalar(n) for n in (2, 1, 1, multiplier, 0)]
    refuses(DEPTHWISE, [*operands, *numbers], [output(F32)], message)


@pytest.mark.parametrize(
    ("groups", "message"),
    [
        (3, "4 output channels cannot be cut into 3 groups"),
        (4, "fits 8 channels"),
        (0, "expected > 0"),
    ],
)
def test_groups_that_do_not_fit_fail(groups: int, message: str) -> None:
    operands = [
        tensor(F32, np.ones((1, 2, 2, 4))),
        tensor(F32, np.ones((4, 1, 1, 2))),
        tensor(F32, np.zeros(4)),
    ]
    tail = [*(scalar(n) for n in (2, 1, 1, groups, 0)), scalar(False)]
    refuses(GROUPED, [*operands, *tail], [output(F32)], message)


def test_bias_scale_must_be_the_product_of_the_others() -> None:
    def operands(scale: float) -> list[Given]:
        image, weights = tensor(Q8, [[[[1]]]], 0.5, 0), tensor(Q8, [[[[1]]]], 0.5, 0)
        return [image, weights, tensor(I32, [0], scale), *(scalar(n) for n in (2, 1, 1, 0))]

    run(CONV, operands(0.25 * (1 + 9e-7)), [output(Q8, (), 1.0, 0)])
    refuses(CONV, operands(0.25 * (1 + 3e-6)), [output(Q8, (), 1.0, 0)], "'bias' has scale")


@pytest.mark.parametrize(("kind", "right", "wrong"), [(CONV, 0, 3), (DEPTHWISE, 3, 0)])
def test_filters_per_channel_have_their_scales_along_the_outputs(
    kind: OperationType, right: int, wrong: int
) -> None:
    def operands(dimension: int, scales: tuple[float, ...] = (0.5,)) -> list[Given]:
        params = SymmPerChannelQuantParams(scales, dimension)
        numbers = (2, 1, 1, 0) if kind is CONV else (2, 1, 1, 1, 0)
        image, bias = tensor(Q8, [[[[7]]]], 1.0, 0), tensor(I32, [1])
        weights = tensor(QPC, [[[[2]]]], extra_params=params)
        return [image, weights, bias, *(scalar(n) for n in numbers)]

    [found] = run(kind, operands(right), [output(Q8, (), 1.0, 0)])
    assert found.item() == 8  # 15 * 0.5, a tie
    rejects(kind, operands(wrong), [output(Q8, (), 1.0, 0)], "quantised along dimension")


def test_a_dilation_that_needs_huge_padding_fails_instead_of_taking_all_memory() -> None:
    far = scalar(2**30)
    changes = {"dilation_width": far, "left": far, "dilation_height": far, "top": far}
    refuses(CONV, *small(**changes), "intermediate buffer")


def test_a_depthwise_stride_far_larger_than_the_filter_costs_no_more() -> None:
    """One window, whose second column sees the pixel; the first lies far outside."""
    stride = 2**16
    operands = [tensor(F32, [[[[3]]]]), tensor(F32, [[[[5], [7]]]]), tensor(F32, [0.5])]
    numbers = [2 * stride, 0, 0, 0, stride, 1, 1, 0]
    dilations = [scalar(2 * stride), scalar(1)]
    operands += [*(scalar(n) for n in numbers), scalar(False), *dilations]
    tracemalloc.start()
    try:
        [found] = run(DEPTHWISE, operands, [output(F32)])
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert found.tolist() == [[[[21.5]]]]
    assert peak < 2**20
