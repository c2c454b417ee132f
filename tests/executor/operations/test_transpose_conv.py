from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from executor.plain_windows import convolve_transposed, laid_out, requantise
from executor.refusal import refuses, rejects
from executor.run_operation import Given, output, run, scalar, tensor
from nnburst.executor.graph.windows import transposed_implicit_padding
from nnburst.hal.enums import OperandType, OperationType
from nnburst.hal.model import SymmPerChannelQuantParams

TRANSPOSE = OperationType.TRANSPOSE_CONV_2D
F32, I32 = OperandType.TENSOR_FLOAT32, OperandType.TENSOR_INT32
Q8, Q8S = OperandType.TENSOR_QUANT8_ASYMM, OperandType.TENSOR_QUANT8_ASYMM_SIGNED
QPC = OperandType.TENSOR_QUANT8_SYMM_PER_CHANNEL

small = st.integers(1, 3)


@st.composite
def cases(draw: st.DrawFn) -> tuple[Any, Any, Any, tuple[int, int], list[int], Any]:
    """Image, weights, bias, strides (height, width), pads (left, right, top, bottom), plain sums."""
    filters, strides = (draw(small), draw(small)), (draw(small), draw(small))
    size = draw(small), draw(small)
    full = [(n - 1) * s + f for n, s, f in zip(size, strides, filters, strict=True)]
    top, left = draw(st.integers(0, full[0] - 1)), draw(st.integers(0, full[1] - 1))
    bottom = draw(st.integers(-2, full[0] - top - 1))
    right = draw(st.integers(-2, full[1] - left - 1))
    random = np.random.default_rng(draw(st.integers(0, 2**32)))
    batches, depth, outputs = draw(small), draw(small), draw(small)
    image = random.integers(-128, 128, (batches, *size, depth))
    weights = random.integers(-128, 128, (outputs, *filters, depth))
    bias = random.integers(-20000, 20000, outputs)
    out = np.zeros((batches, full[0] - top - bottom, full[1] - left - right, outputs), np.int64)
    sums = convolve_transposed(image, weights, strides, (top, left), out) + bias
    return image, weights, bias, strides, [left, right, top, bottom], sums


def operands_of(
    operands: list[Given], pads: list[int], strides: tuple[int, int], nchw: bool
) -> list[Given]:
    numbers = [*pads, strides[1], strides[0], 0]
    return [*operands, *(scalar(n) for n in numbers), scalar(nchw)]


@given(cases(), st.booleans(), st.booleans())
def test_sums_of_whole_numbers_are_exact_in_floats(case: Any, nchw: bool, constant: bool) -> None:
    image, weights, bias, strides, pads, sums = case
    operands = [
        tensor(F32, laid_out(image, nchw)),
        tensor(F32, weights, constant=constant),
        tensor(F32, bias, constant=constant),
    ]
    [found] = run(TRANSPOSE, operands_of(operands, pads, strides, nchw), [output(F32)])
    assert (found == laid_out(sums, nchw)).all()


@given(cases(), st.booleans(), st.sampled_from([Q8, Q8S]), st.booleans(), st.floats(1, 200))
def test_quantised_results_are_those_of_integers_to_the_last_bit(
    case: Any, constant: bool, kind: OperandType, per_channel: bool, scale: float
) -> None:
    image, weights, bias, strides, pads, sums = case
    scale = float(np.float32(scale))
    shift, (low, high) = (128, (0, 255)) if kind is Q8 else (0, (-128, 127))
    source = tensor(kind, image + shift, 0.5, shift)
    units: Any = np.float32(0.125)
    if per_channel:
        scales = tuple(float(np.float32(0.3 / (c + 1))) for c in range(bias.size))
        params = SymmPerChannelQuantParams(scales, 0)
        filters = tensor(QPC, weights, extra_params=params, constant=constant)
        addend = tensor(I32, bias, constant=constant)
        units = np.float32(0.5) * np.array(scales, np.float32)
    else:
        filters = tensor(kind, weights + shift, 0.25, shift, constant=constant)
        addend = tensor(I32, bias, float(units), constant=constant)
    operands = operands_of([source, filters, addend], pads, strides, nchw=False)
    [found] = run(TRANSPOSE, operands, [output(kind, (), scale, 5)])
    assert (found == requantise(sums, units, scale, 5, low, high)).all()


@given(st.integers(1, 3), small, small, st.integers(0, 4), st.booleans())
def test_same_padding_gives_the_requested_extent(
    size: int, filter_size: int, stride: int, less: int, nchw: bool
) -> None:
    wanted = max(1, size * stride - min(less, stride - 1))
    image = np.arange(1, size * size + 1).reshape(1, size, size, 1)
    weights = np.arange(1, filter_size**2 + 1).reshape(1, filter_size, filter_size, 1)
    shape = (1, 1, wanted, wanted) if nchw else (1, wanted, wanted, 1)
    operands = [tensor(F32, laid_out(image, nchw)), tensor(F32, weights), tensor(F32, [0])]
    tail = [*(scalar(n) for n in (1, stride, stride, 0)), scalar(nchw)]
    [found] = run(TRANSPOSE, [*operands, tensor(I32, shape), *tail], [output(F32)])
    head, _ = transposed_implicit_padding(1, wanted, filter_size, stride)
    out = np.zeros((1, wanted, wanted, 1), np.int64)
    plain = convolve_transposed(image, weights, (stride, stride), (head, head), out)
    assert (found == laid_out(plain, nchw)).all()


def test_valid_padding_wins_over_the_requested_extent() -> None:
    operands = [tensor(F32, [[[[2]]]]), tensor(F32, np.ones((1, 3, 3, 1))), tensor(F32, [1])]
    tail = [*(scalar(n) for n in (2, 1, 1, 0)), scalar(False)]
    [found] = run(TRANSPOSE, [*operands, tensor(I32, [1, 9, 9, 1]), *tail], [output(F32)])
    assert found.tolist() == [[[[3.0]] * 3] * 3]


def test_no_images_give_no_images() -> None:
    operands = [tensor(F32, np.zeros((0, 2, 2, 1))), tensor(F32, [[[[1]]]]), tensor(F32, [0])]
    given_operands = operands_of(operands, [0, 0, 0, 0], (2, 2), nchw=False)
    [found] = run(TRANSPOSE, given_operands, [output(F32)])
    assert found.shape == (0, 3, 3, 1)


@pytest.mark.parametrize(
    ("pads", "strides", "weights", "message"),
    [
        ([-1, 0, 0, 0], (1, 1), np.ones((1, 1, 1, 1)), "'padding_left' is -1"),
        ([0, 0, -1, 0], (1, 1), np.ones((1, 1, 1, 1)), "'padding_top' is -1"),
        ([0, 2, 0, 0], (1, 1), np.ones((1, 1, 1, 1)), "leaves 0 cells of the output's width"),
        ([0, 0, 0, 0], (0, 1), np.ones((1, 1, 1, 1)), "'stride_height' is 0"),
        ([0, 0, 0, 0], (1, 1), np.ones((1, 1, 1, 2)), "fits 2 channels"),
        ([0, 0, 0, 0], (1, 1), np.ones((1, 1, 1)), "'filter' has rank 3"),
    ],
)
def test_operands_that_do_not_fit_fail(
    pads: list[int], strides: tuple[int, int], weights: Any, message: str
) -> None:
    operands = [tensor(F32, np.ones((1, 2, 2, 1))), tensor(F32, weights), tensor(F32, [0])]
    refuses(TRANSPOSE, operands_of(operands, pads, strides, nchw=False), [output(F32)], message)


def test_an_output_shape_of_another_length_fails_and_missing_options_are_rejected() -> None:
    operands = [tensor(F32, np.ones((1, 2, 2, 1))), tensor(F32, [[[[1]]]]), tensor(F32, [0])]
    tail = [*(scalar(n) for n in (1, 1, 1, 0)), scalar(False)]
    short = [*operands, tensor(I32, [1, 2, 2]), *tail]
    refuses(TRANSPOSE, short, [output(F32)], "'output_shape' has 3 elements, expected 4")
    rejects(TRANSPOSE, [*operands, tensor(I32, [1, 2, 2, 1]), *tail[:-1]], [output(F32)], "P4")
