"""Lowers convolutions, matrix products and pooling to LiteRT."""

from __future__ import annotations

import math
import os
from typing import Final

from msgspec.structs import replace

from nnburst.executor.graph.tensor import TensorType, float32_products
from nnburst.executor.graph.translation import require
from nnburst.executor.graph.windows import SAME as NNAPI_SAME
from nnburst.executor.graph.windows import (
    Axis,
    Window,
    implicit_padding,
    keeps_pixels,
    nhwc_extents,
    read_window,
)
from nnburst.executor.litert.graph import Value
from nnburst.executor.litert.lowering import Q8, Q8S, QUANTISED, Lowering, lowers, twin
from nnburst.executor.operations.convolution import window_of as transposed_window
from nnburst.hal import late_numpy as np
from nnburst.hal.enums import OperandType, OperationType
from nnburst.hal.model import QUANTIZED_RANGES, SymmPerChannelQuantParams

#: Padding schemes of the format.
SAME: Final = 0
VALID: Final = 1


def scheme_of(window: Window) -> int | None:
    """The scheme that pads as the window does; None if only PAD can.

    With SAME the engine's fast kernels compute nonsense if windows skip cells at the end of an axis.
    """
    axes = (window.height, window.width)
    if not window.pads:
        return VALID
    if all((a.head, a.tail) == _same(a) and a.padded >= a.size for a in axes):
        return SAME
    return None


def _same(axis: Axis) -> tuple[int, int]:
    head, tail = implicit_padding(NNAPI_SAME, axis.size, axis.filter, axis.stride, axis.dilation)
    return head, tail


def pad(op: Lowering, image: Value, window: Window, filling: Value | None = None) -> Value:
    """An NHWC image with the window's padding around it.

    Args:
        op: the operation.
        image: as NHWC.
        window: its paddings.
        filling: value of the padding cells; the number 0 by default.
    """
    height, width = window.height, window.width
    paddings = (0, 0, height.head, height.tail, width.head, width.tail, 0, 0)
    both = zip(paddings[::2], paddings[1::2], strict=True)
    dimensions = [n + head + tail for n, (head, tail) in zip(image.shape, both, strict=True)]
    meta = replace(image.meta, dimensions=tuple(dimensions))
    sides = op.pairs(paddings)
    if filling is None:
        return op.emit("PAD", [image, sides], meta, "Pad")
    return op.emit("PADV2", [image, sides, filling], meta, "PadV2")


def padded(op: Lowering, image: Value, window: Window) -> tuple[Value, int]:
    """The image, padded by PAD if no scheme pads alike, and the scheme for the operator."""
    scheme = scheme_of(window)
    if scheme is None:
        return pad(op, image, window), VALID
    return image, scheme


def strides(window: Window) -> dict[str, int]:
    """Fields of the operator's options."""
    return {"strideW": window.width.stride, "strideH": window.height.stride}


def nhwc_result(op: Lowering, window: Window) -> tuple[int, ...]:
    """Extents of the output as NHWC."""
    return nhwc_extents(op.result().dimensions, window.nchw)


# -- convolution -----------------------------------------------------------------------------------


_PER_CHANNEL = OperandType.TENSOR_QUANT8_SYMM_PER_CHANNEL
_LOWEST: Final = {Q8: 0, Q8S: -128}


def _require_zero_points(op: Lowering, *names: str) -> None:
    """Refuse zero points that LiteRT's kernels for Arm without dot products (Cortex-A53, A57, A72) get wrong.

    These kernels add two products of int8 in 16 bits, which twice -128 x -128 overflows. Rows are filled up
    with zero points, so if both zero points are the lowest, every result is wrong.
    """
    metas = [op.node.tensor(name).meta for name in names]
    lowest = all(_LOWEST.get(meta.type) == meta.zero_point for meta in metas)
    arm = os.uname().machine.startswith(("aarch64", "arm"))
    require(not (lowest and arm), f"{' and '.join(names)} with the lowest zero points on Arm")


def _kind(op: Lowering, filter_name: str) -> OperandType:
    """Type to compute in: the engine's uint8 kernels allow a filter with a zero point, int8 ones do not."""
    weights = op.node.tensor(filter_name).meta
    if weights.type is _PER_CHANNEL:
        return Q8S
    if weights.type is Q8S:
        return Q8S if weights.zero_point == 0 else Q8
    return weights.type


def _filter(op: Lowering, name: str, kind: OperandType) -> Value:
    meta = op.node.tensor(name).meta
    if meta.type is kind or meta.type not in QUANTISED:
        return op.value(name)
    if not op.is_constant(name):
        return op.as_type(op.value(name), kind)
    flipped = (op.node.tensor(name).array.view(np.uint8) ^ 0x80).view(
        np.uint8 if kind is Q8 else np.int8
    )
    return op.constant(flipped, twin(meta, kind))


def _bias(op: Lowering, filter_name: str) -> Value:
    """The bias, with the scales that the engine expects."""
    meta = op.node.tensor("bias").meta
    if meta.type is not OperandType.TENSOR_INT32:
        return op.value("bias")
    scale = op.node.tensor("input").scale
    params = op.node.tensor(filter_name).meta.extra_params
    if isinstance(params, SymmPerChannelQuantParams):
        scales = tuple(float32_products(scale, params.scales))
        extra = SymmPerChannelQuantParams(scales, 0)
        wanted = replace(meta, scale=0.0, extra_params=extra)
    else:
        (product,) = float32_products(scale, [op.node.tensor(filter_name).scale])
        wanted = replace(meta, scale=product)
    if op.is_constant("bias"):
        return op.graph.stored(op.node.tensor("bias").of_type(wanted))
    return op.value("bias")


def _operands(
    op: Lowering, nchw: bool, channels: int = 0
) -> tuple[Value, Value, Value, TensorType]:
    """Image (NHWC), filter, bias and the type of the result, in the type to compute in.

    `channels` is the filter's dimension that the outputs come from.
    """
    image, result = op.to_front(op.value("input"), nchw), op.result()
    if result.type in QUANTISED:
        kind = _kind(op, "filter")
        image, result = op.as_type(image, kind), twin(result, kind)
        return image, _filter(op, "filter", kind), _bias(op, "filter"), result
    return image, _real_filter(op, "filter", channels), op.value("bias"), result


def _real_filter(op: Lowering, name: str, channels: int | None) -> Value:
    """Real weights; the stored integers in their place if the engine has a kernel for those.

    Such a kernel reads int8 with a zero point of 0 and a scale for each element of dimension `channels`; None
    for one scale only.
    """
    stored = op.eight_bits(name, channels)
    if stored is None:
        return op.value(name)
    if channels == 3 and stored.meta.extra_params is None:
        stored = stored.of_type(_by_channel(stored.meta))
    return op.graph.stored(stored)


def _by_channel(meta: TensorType) -> TensorType:
    """A type that repeats its one scale for each channel: the engine's depthwise kernel reads beyond one."""
    scales = (meta.scale,) * meta.dimensions[3]
    extra = SymmPerChannelQuantParams(scales, 3)
    return replace(meta, type=_PER_CHANNEL, scale=0.0, zero_point=0, extra_params=extra)


def _finished(op: Lowering, result: Value, nchw: bool) -> Value:
    declared = op.result()
    if declared.type in QUANTISED:
        result = op.as_type(result, declared.type)
    return op.to_back(result, nchw)


@lowers(OperationType.CONV_2D, OperationType.GROUPED_CONV_2D)
def conv_2d(op: Lowering) -> Value:
    """CONV_2D, and GROUPED_CONV_2D, whose filter has fewer channels than the image."""
    _require_zero_points(op, "input", "filter")
    _, height, width, _ = op.node.tensor("filter").shape
    window = read_window(op.node, height, width)
    image, weights, bias, result = _operands(op, window.nchw)
    image, scheme = padded(op, image, window)
    out = _convolution(op, [image, weights, bias], window, scheme, result)
    return _finished(op, out, window.nchw)


def _convolution(
    op: Lowering, inputs: list[Value], window: Window, scheme: int, result: TensorType
) -> Value:
    return op.emit(
        "CONV_2D",
        inputs,
        replace(result, dimensions=nhwc_result(op, window)),
        "Conv2D",
        padding=scheme,
        dilationWFactor=window.width.dilation,
        dilationHFactor=window.height.dilation,
        fusedActivationFunction=op.activation(),
        **strides(window),
    )


@lowers(OperationType.DEPTHWISE_CONV_2D)
def depthwise_conv_2d(op: Lowering) -> Value:
    """DEPTHWISE_CONV_2D."""
    _, height, width, _ = op.node.tensor("filter").shape
    window = read_window(op.node, height, width)
    image, weights, bias, result = _operands(op, window.nchw, channels=3)
    image, scheme = padded(op, image, window)
    out = op.emit(
        "DEPTHWISE_CONV_2D",
        [image, weights, bias],
        replace(result, dimensions=nhwc_result(op, window)),
        "DepthwiseConv2D",
        padding=scheme,
        depthMultiplier=int(op.number("depth_multiplier")),
        dilationWFactor=window.width.dilation,
        dilationHFactor=window.height.dilation,
        fusedActivationFunction=op.activation(),
        **strides(window),
    )
    return _finished(op, out, window.nchw)


@lowers(OperationType.FULLY_CONNECTED)
def fully_connected(op: Lowering) -> Value:
    """FULLY_CONNECTED on a matrix."""
    _require_zero_points(op, "input", "weights")
    _, width = op.node.tensor("weights").shape
    x, result = op.value("input"), op.result()
    x = op.reshape(x, (math.prod(x.shape) // width, width))
    bias = _bias(op, "weights")
    if result.type in QUANTISED:
        kind = _kind(op, "weights")
        x, result, weights = op.as_type(x, kind), twin(result, kind), _filter(op, "weights", kind)
    else:
        weights = _real_filter(op, "weights", 0)
    out = op.emit(
        "FULLY_CONNECTED",
        [x, weights, bias],
        result,
        "FullyConnected",
        fusedActivationFunction=op.activation(),
        asymmetricQuantizeInputs=weights.meta.type is not x.meta.type,
    )
    return op.requantize(out, op.result())


@lowers(OperationType.BATCH_MATMUL)
def batch_matmul(op: Lowering) -> Value:
    """BATCH_MATMUL."""
    _require_zero_points(op, "input0", "input1")
    x, y = op.value("input0"), _real_filter(op, "input1", None)
    require(x.meta.type is not OperandType.TENSOR_INT32, "BATCH_MATMUL of INT32")
    require(x.shape[:-2] == y.shape[:-2], "BATCH_MATMUL that broadcasts")
    fields = {
        "adjX": bool(op.number("adj_x")),
        "adjY": bool(op.number("adj_y")),
        "asymmetricQuantizeInputs": x.meta.type is not y.meta.type,
    }
    return op.emit("BATCH_MATMUL", [x, y], op.result(), "BatchMatMul", **fields)


@lowers(OperationType.TRANSPOSE_CONV_2D)
def transpose_conv_2d(op: Lowering) -> Value:
    """TRANSPOSE_CONV_2D: TRANSPOSE_CONV with VALID padding, and SLICE to cut off the padding."""
    _require_zero_points(op, "input", "filter")
    window = transposed_window(op.node)
    image, weights, bias, result = _operands(op, window.nchw)
    wanted = nhwc_result(op, window)
    axes = (window.height, window.width)
    full = [(n - 1) * a.stride + a.filter for n, a in zip(image.shape[1:3], axes, strict=True)]
    starts = (window.height.head, window.width.head)
    ends = [start + size for start, size in zip(starts, wanted[1:3], strict=True)]
    # A negative tail means cells that the filter does not reach: the operator makes them.
    spare = zip(ends, full, (window.height.stride, window.width.stride), strict=True)
    require(all(end < size + step for end, size, step in spare), "TRANSPOSE_CONV_2D padded so much")
    rows, columns = (max(end, size) for end, size in zip(ends, full, strict=True))
    shape = (wanted[0], rows, columns, wanted[3])
    out = op.emit(
        "TRANSPOSE_CONV",
        [op.integers(shape), weights, image, bias],
        replace(result, dimensions=shape),
        "TransposeConv",
        padding=1,
        fusedActivationFunction=op.activation(),
        **strides(window),
    )
    if shape != wanted:
        begin, size = op.integers((0, *starts, 0)), op.integers(wanted)
        cut = replace(out.meta, dimensions=wanted)
        out = op.emit("SLICE", [out, begin, size], cut, "Slice")
    return _finished(op, out, window.nchw)


# -- pooling ---------------------------------------------------------------------------------------


def _window(op: Lowering) -> Window:
    return read_window(op.node, int(op.number("filter_height")), int(op.number("filter_width")))


def _pool(op: Lowering, name: str, image: Value, window: Window, scheme: int) -> Value:
    activation = 0 if image.meta.type != op.result().type else op.activation()
    return _pooled(op, name, image, window, scheme, fusedActivationFunction=activation)


def _pooled(
    op: Lowering, name: str, image: Value, window: Window, scheme: int, **fields: int
) -> Value:
    return op.emit(
        name,
        [image],
        replace(image.meta, dimensions=nhwc_result(op, window)),
        "Pool2D",
        padding=scheme,
        filterWidth=window.width.filter,
        filterHeight=window.height.filter,
        **fields,
        **strides(window),
    )


def _kept_pixels(op: Lowering, image: Value, window: Window) -> Value:
    """Copy the image by RESHAPE: the engine merges a pool of single pixels with two clamps into zeros."""
    shape = op.integers(image.shape)
    same = op.emit("RESHAPE", [image, shape], image.meta, "Reshape", newShape=list(image.shape))
    return op.to_back(_activated(op, same), window.nchw)


@lowers(OperationType.MAX_POOL_2D)
def max_pool_2d(op: Lowering) -> Value:
    """MAX_POOL_2D; explicit padding has the lowest number in its cells."""
    window = _window(op)
    image = op.to_front(op.value("input"), window.nchw)
    if keeps_pixels(window) and image.meta.type not in QUANTISED:
        return _kept_pixels(op, image, window)
    scheme = scheme_of(window)
    if scheme is None:
        quantised = QUANTIZED_RANGES.get(image.meta.type)
        lowest = quantised[0] if quantised else np.finfo(np.float32).min
        filling = op.constant(np.array([lowest]), image.meta)
        image, scheme = pad(op, image, window, filling), VALID
    return op.to_back(_pool(op, "MAX_POOL_2D", image, window, scheme), window.nchw)


@lowers(OperationType.AVERAGE_POOL_2D)
def average_pool_2d(op: Lowering) -> Value:
    """AVERAGE_POOL_2D; with explicit padding, the mean of padded windows, scaled to exclude the padding."""
    window = _window(op)
    image = op.to_front(op.value("input"), window.nchw)
    if keeps_pixels(window) and image.meta.type not in QUANTISED:
        return _kept_pixels(op, image, window)
    scheme = scheme_of(window)
    if scheme is not None:
        return op.to_back(_pool(op, "AVERAGE_POOL_2D", image, window, scheme), window.nchw)
    if image.meta.type in QUANTISED:
        return _quantised_average(op, image, window)
    mean = _pool_without_padding(op, image, window)
    return op.to_back(_activated(op, mean), window.nchw)


def _quantised_average(op: Lowering, image: Value, window: Window) -> Value:
    mean = _pool_without_padding(op, op.floats(image), window)
    mean = _activated(op, mean)
    return op.to_back(op.requantize(mean, op.result()), window.nchw)


def _pool_without_padding(op: Lowering, image: Value, window: Window) -> Value:
    mean = _pooled(op, "AVERAGE_POOL_2D", pad(op, image, window), window, VALID)
    area = window.height.filter * window.width.filter
    cells = np.outer(_counts(window.height), _counts(window.width))
    share = op.constant((area / cells)[None, :, :, None].astype(np.float32), image.meta)
    return op.binary("MUL", mean, share)


def _counts(axis: Axis) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
    """The number of real cells that each window has along an axis."""
    starts = np.arange(axis.output) * axis.stride - axis.head
    ends = np.minimum(starts + axis.filter, axis.size)
    return ends - np.maximum(starts, 0)


def _activated(op: Lowering, x: Value) -> Value:
    name = {1: "RELU", 2: "RELU_N1_TO_1", 3: "RELU6"}.get(op.activation())
    return op.emit(name, [x], x.meta) if name else x


@lowers(OperationType.L2_POOL_2D)
def l2_pool_2d(op: Lowering) -> Value:
    """L2_POOL_2D: the root of the average of squares, as the engine's operator has no explicit padding."""
    window = _window(op)
    image = op.to_front(op.value("input"), window.nchw)
    squares = op.binary("MUL", image, image)
    scheme = scheme_of(window)
    if scheme is None:
        mean = _pool_without_padding(op, squares, window)
    else:
        mean = _pooled(op, "AVERAGE_POOL_2D", squares, window, scheme)
    root = op.emit("SQRT", [mean], mean.meta)
    return op.to_back(_activated(op, root), window.nchw)
