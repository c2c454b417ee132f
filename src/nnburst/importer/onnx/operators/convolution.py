"""Translates ONNX's convolutions: images become N×H×W×C, signals become images of one row.

Filters are stored as NNAPI expects them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final

import numpy as np

from nnburst.formats.protobuf import Malformed
from nnburst.hal.enums import OperandType, OperationType
from nnburst.importer.onnx.node import (
    Node,
    Quantization,
    dequantized,
    operator,
    parameters,
    quantized_type,
    stored_integers,
    weights,
)
from nnburst.importer.onnx.operators.shape import one_more
from nnburst.importer.onnx.operators.slicing import concatenated, padded, sliced
from nnburst.importer.onnx.tensor import NHWC, Array, Order, QuantizedConstant, Tensor, constant
from nnburst.importer.subgraph import Argument, Value
from nnburst.importer.tensors import Refused, TensorType

_O = OperationType
_T = OperandType

#: Axes of filters: outputs, rows, columns, inputs; for depthwise convolutions 1, rows, columns, outputs.
_OHWI: Final[Order] = (0, 2, 3, 1)
_1HWO: Final[Order] = (1, 2, 3, 0)
#: The most groups that are convolved one by one.
_MOST_GROUPS: Final = 64


@dataclass(frozen=True, slots=True)
class Window:
    """A window that slides over an image. Each attribute has rows, then columns.

    Attributes:
        size: elements of the window.
        strides: distances between two windows.
        dilations: distances between two elements of the window.
        pads: paddings before and behind the image.
        output: extents of the result.
    """

    size: tuple[int, int]
    strides: tuple[int, int]
    dilations: tuple[int, int]
    pads: tuple[tuple[int, int], tuple[int, int]]
    output: tuple[int, int]

    @property
    def paddings(self) -> tuple[int, int, int, int]:
        """Paddings in NNAPI's order: left, right, top, bottom."""
        (top, bottom), (left, right) = self.pads
        return left, right, top, bottom


def _pair(values: Sequence[int]) -> tuple[int, int]:
    """Rows and columns; a signal has one row."""
    if len(values) == 1:
        return 1, int(values[0])
    return int(values[0]), int(values[1])


def sliding(node: Node, extents: Sequence[int], size: Sequence[int]) -> Window:
    """The window of a node.

    Args:
        node: the node, with its strides, dilations and paddings.
        extents: extents of the image behind its channels, one or two.
        size: size of the window.
    """
    rank = len(extents)
    node.require(rank in (1, 2), f"a window of {rank} axes, NNAPI's have two")
    strides = node.integer_list("strides", [1] * rank) or []
    dilations = node.integer_list("dilations", [1] * rank) or []
    pads = node.integer_list("pads", [0] * (2 * rank)) or []
    auto = node.string("auto_pad", "NOTSET")
    if not len(strides) == len(dilations) == len(size) == rank or len(pads) != 2 * rank:
        raise Malformed(f"strides {strides}, dilations {dilations}, pads {pads} of {rank} axes")
    if min(*strides, *dilations, *size) < 1:
        raise Malformed(f"strides {strides}, dilations {dilations}, window {list(size)}")
    sides, outputs = [], []
    ceil = bool(node.integer("ceil_mode"))
    for axis in range(rank):
        reach = (size[axis] - 1) * dilations[axis] + 1
        before, behind = pads[axis], pads[axis + rank]
        if auto in ("SAME_UPPER", "SAME_LOWER"):
            total = max(
                (-(-extents[axis] // strides[axis]) - 1) * strides[axis] + reach - extents[axis], 0
            )
            small, large = total // 2, total - total // 2
            before, behind = (small, large) if auto == "SAME_UPPER" else (large, small)
        elif auto == "VALID":
            before = behind = 0
        room = extents[axis] + before + behind - reach
        count = (
            -(-room // strides[axis]) if ceil and auto == "NOTSET" else room // strides[axis]
        ) + 1
        if ceil and (count - 1) * strides[axis] >= extents[axis] + before:
            count -= 1  # a window that would begin behind the image
        node.require(count > 0, f"a window of {reach} in {extents[axis]}")
        node.require(before >= 0 and behind >= 0, "pads are below 0, expected 0 or more")
        sides.append((before, behind))
        outputs.append(count)
    rows = [(0, 0), *sides][-2:]
    return Window(_pair(size), _pair(strides), _pair(dilations), (rows[0], rows[1]), _pair(outputs))


def as_image(x: Tensor) -> Tensor:
    """Turn a signal into an image of one row."""
    return one_more(x, 2) if x.rank == 3 else x


@operator("Conv")
def _conv(node: Node) -> None:
    x, kernel, bias = node.input(0), node.input(1), node.optional(2)
    node.require_kind(x, "f")
    convolution(node, x, kernel, bias, node.quantization)


def convolution(
    node: Node, x: Tensor, kernel: Tensor, bias: Tensor | None, into: Quantization | None
) -> None:
    """Append a convolution: on integers if the image, the filters and the output are quantised."""
    signal = x.rank == 3
    image, kernel = as_image(x), as_image_kernel(kernel)
    node.require(kernel.rank == 4, f"{x.rank - 2} axes are convolved, NNAPI convolves 2")
    group = node.integer("group", 1)
    channels, outputs = image.shape[1], kernel.shape[0]
    if group < 1 or kernel.shape[1] * group != channels or outputs % group:
        raise Malformed(
            f"{channels} channels in {group} groups for filters of {list(kernel.shape)}"
        )
    size = kernel.shape[3:] if signal else kernel.shape[2:]
    window = sliding(node, x.shape[2:], node.integer_list("kernel_shape", size) or size)
    node.require(window.size == kernel.shape[2:], f"a window of {window.size}")
    quantized = into is not None and _fits(image, kernel, into)
    if not quantized:
        image, kernel, into = node.graph.real(image), node.graph.real(kernel), None
    image, window = _within_filter(node, image, window)
    made = _emitted(node, image, kernel, bias, window, group, into)
    shape = (image.shape[0], outputs, *window.output)
    found = Tensor(shape, x.dtype, value=made, order=NHWC)
    node.put(_as_signal(found) if signal else found)


def _within_filter(node: Node, image: Tensor, window: Window) -> tuple[Tensor, Window]:
    """Pad the image itself if a padding is as wide as the filter or wider.

    NNAPI: the paddings of a convolution must be smaller than its filter.
    """
    reaches = [(size - 1) * d + 1 for size, d in zip(window.size, window.dilations, strict=True)]
    if all(max(pads) < reach for pads, reach in zip(window.pads, reaches, strict=True)):
        return image, window
    zero = 0 if image.is_known or not image.is_quantized_real else image.computed().type.zero_point
    wide = padded(node, image, [(0, 0), (0, 0), *window.pads], zero)
    return wide, replace(window, pads=((0, 0), (0, 0)))


def as_image_kernel(kernel: Tensor) -> Tensor:
    """Turn filters of a signal into filters of an image of one row."""
    if kernel.rank == 3 and kernel.quantized is not None:
        q = kernel.quantized
        stored = q.stored.reshape(*kernel.shape[:2], 1, kernel.shape[2])
        made = QuantizedConstant(stored, q.scale, q.zero_point, q.axis)
        return Tensor(stored.shape, kernel.dtype, quantized=made)
    return as_image(kernel)


def _as_signal(x: Tensor) -> Tensor:
    shape = (*x.shape[:2], x.shape[3])
    return x.seen_as(shape, tuple(axis - (axis > 2) for axis in x.order if axis != 2))


def _fits(image: Tensor, kernel: Tensor, into: Quantization) -> bool:
    """Whether NNAPI has a convolution for integers of these types and steps."""
    if image.is_known or not image.is_quantized_real or kernel.quantized is None:
        return False
    kind, found = image.computed().type.type, kernel.quantized
    if kind != into.type:
        return False
    if found.scale.size > 1:
        return True
    same = {
        np.dtype(np.uint8): _T.TENSOR_QUANT8_ASYMM,
        np.dtype(np.int8): _T.TENSOR_QUANT8_ASYMM_SIGNED,
    }
    return same.get(found.stored.dtype) == kind or found.stored.dtype.itemsize == 1


def _emitted(
    node: Node,
    image: Tensor,
    kernel: Tensor,
    bias: Tensor | None,
    window: Window,
    group: int,
    into: Quantization | None,
) -> Value:
    channels, outputs = image.shape[1], kernel.shape[0]
    by_channel = group == channels and group > 1
    grouped = group > 1 and not by_channel
    if grouped and window.dilations != (1, 1):
        return _group_by_group(node, image, kernel, bias, window, group)
    order = _1HWO if by_channel else _OHWI
    dims = (image.shape[0], *window.output, outputs)
    value = node.graph.stored(image, NHWC)
    if into is None:
        filters = node.graph.stored(kernel, order)
        offsets = real_bias(node, bias, outputs, value.type)
        result = TensorType(value.type.type, dims)
    else:
        assert kernel.quantized is not None
        filters, scales = weights(node.graph, _same_sign(node, kernel.quantized, into), order, 0)
        offsets = integer_bias(node, bias, outputs, value.type.scale, scales)
        result = quantized_type(into, dims)
    strides = (window.strides[1], window.strides[0])
    dilations = (window.dilations[1], window.dilations[0])
    first: list[Argument] = [value, filters, offsets, *window.paddings, *strides]
    if by_channel:
        further: list[Argument] = [outputs // channels, 0, False, *dilations]
        return node.emit(_O.DEPTHWISE_CONV_2D, [*first, *further], result)
    if grouped:
        return node.emit(_O.GROUPED_CONV_2D, [*first, group, 0, False], result)
    return node.emit(_O.CONV_2D, [*first, 0, False, *dilations], result)


def _same_sign(node: Node, found: QuantizedConstant, into: Quantization) -> QuantizedConstant:
    """Store weights of one scale in the image's type: the same numbers, moved by 128."""
    unsigned = into.type == _T.TENSOR_QUANT8_ASYMM
    if found.scale.size > 1 or (found.stored.dtype == np.uint8) == unsigned:
        return found
    node.graph.budget.spend(3 * found.stored.size)
    move = 128 if unsigned else -128
    dtype = np.uint8 if unsigned else np.int8
    stored = (found.stored.astype(np.int16) + move).astype(dtype)
    zero = (found.zero_point.astype(np.int16) + move).astype(dtype)
    return QuantizedConstant(stored, found.scale, zero, found.axis)


def _group_by_group(
    node: Node, image: Tensor, kernel: Tensor, bias: Tensor | None, window: Window, group: int
) -> Value:
    """Convolve each group by itself, since NNAPI's grouped convolution has no dilation."""
    node.require(group <= _MOST_GROUPS, f"{group} groups with dilation")
    image, parts = node.graph.real(image), []
    per, out = kernel.shape[1], kernel.shape[0] // group
    for at in range(group):
        whole = [slice(0, extent, 1) for extent in image.shape]
        whole[1] = slice(at * per, (at + 1) * per, 1)
        filters = [slice(0, extent, 1) for extent in kernel.shape]
        filters[0] = slice(at * out, (at + 1) * out, 1)
        part, own = sliced(node, image, whole), sliced(node, kernel, filters)
        offsets = None if bias is None else sliced(node, bias, [filters[0]])
        made = _emitted(node, part, own, offsets, window, 1, None)
        shape = (image.shape[0], out, *window.output)
        parts.append(Tensor(shape, image.dtype, value=made, order=NHWC))
    saved, node.quantization = node.quantization, None
    joined = concatenated(node, parts, 1)
    node.quantization = saved
    return joined.computed()


def real_bias(node: Node, bias: Tensor | None, count: int, like: TensorType) -> Value:
    """A bias of real numbers, zeros if the file has none."""
    if bias is None:
        dtype = np.float16 if like.type == _T.TENSOR_FLOAT16 else np.float32
        return node.graph.literal(np.zeros(count, dtype), (count,))
    node.require(bias.shape == (count,), f"a bias of {list(bias.shape)} for {count} outputs")
    return node.graph.stored(node.graph.real(bias), None, (count,))


def integer_bias(node: Node, bias: Tensor | None, count: int, scale: float, scales: Array) -> Value:
    """A bias of 32-bit integers in steps of the product of both inputs' steps."""
    steps = np.float32(scale) * scales
    like = TensorType(_T.TENSOR_INT32, (count,), float(steps[0]) if steps.size == 1 else 0.0)
    if bias is None:
        return node.graph.literal(np.zeros(count, np.int32), (count,), like)
    node.require(bias.is_known, "the bias is computed, expected a constant")
    if bias.quantized is not None and bias.quantized.stored.dtype == np.int32:
        found = bias.quantized.scale.reshape(-1)
        if np.allclose(found, steps, rtol=1e-3, atol=0):
            return node.graph.literal(bias.quantized.stored.reshape(-1), (count,), like)
    whole = np.round(bias.array().reshape(-1).astype(np.float64) / steps)
    node.require(bool(np.all(np.abs(whole) < 2**31)), "the bias does not fit 32 bits")
    return node.graph.literal(whole.astype(np.int32), (count,), like)


@operator("QLinearConv")
def _qlinear_conv(node: Node) -> None:
    """Inputs are x, its scale and zero point; the same of w; scale and zero point of y; an int32 bias."""
    into = parameters(node, 6, 7)
    x = dequantized(node.input(0), parameters(node, 1, 2))
    node.require(x is not None, "the integers of the input stand for other numbers")
    assert x is not None
    scale, zero = node.array(4, "scale").reshape(-1), node.array(5, "zero point").reshape(-1)
    made = QuantizedConstant(node.array(3, "weights"), scale, zero, 0)
    kernel = Tensor(made.stored.shape, np.dtype(np.float32), quantized=made)
    bias = None
    if node.optional(8) is not None:
        steps = np.float32(parameters(node, 1, 2).scale) * scale
        offsets = node.array(8, "bias")
        kept = QuantizedConstant(offsets, steps, np.zeros(1, np.int32), 0)
        bias = Tensor(offsets.shape, np.dtype(np.float32), quantized=kept)
    convolution(node, x, kernel, bias, into)
    as_integers(node, into)


def as_integers(node: Node, into: Quantization) -> None:
    """Make the integers that the node computed its output.

    Raises:
        Refused: the node computed real numbers.
    """
    found = node.results[0]
    if not found.is_quantized_real:
        raise Refused("NNAPI does not compute this on these integers")
    dtype = np.dtype(np.uint8 if into.type == _T.TENSOR_QUANT8_ASYMM else np.int8)
    node.put(stored_integers(found, dtype))


@operator("ConvTranspose")
def _conv_transpose(node: Node) -> None:
    """TRANSPOSE_CONV_2D; borders that NNAPI's paddings cannot express are cut off afterwards."""
    x, kernel, bias = node.real(0), node.graph.real(node.input(1)), node.optional(2)
    signal = x.rank == 3
    image, kernel = as_image(x), as_image(kernel)
    node.require(image.rank == 4 and kernel.rank == 4, f"{x.rank - 2} axes, NNAPI has two")
    group, rank = node.integer("group", 1), x.rank - 2
    node.require(1 <= group <= _MOST_GROUPS, f"{group} groups of a transposed convolution")
    if image.shape[1] != kernel.shape[0] or kernel.shape[0] % group:
        raise Malformed(f"{image.shape[1]} channels in {group} groups for {list(kernel.shape)}")
    dilations = node.integer_list("dilations", [1] * rank) or []
    if any(d != 1 for d in dilations):
        kernel = _dilated(node, kernel, _pair(dilations))
    full, sides = _transposed_window(node, x, kernel, rank)
    outputs = kernel.shape[1] * group
    strides = _pair(node.integer_list("strides", [1] * rank) or [])
    if group == 1:
        made = _transposed(node, image, kernel, bias, strides, full)
    else:
        parts = _transposed_by_group(node, image, kernel, bias, group, strides, full)
        made = concatenated(node, parts, 1).computed()
    whole = Tensor((image.shape[0], outputs, *full), x.dtype, value=made, order=NHWC)
    found = _trimmed(node, whole, sides, bias)
    node.put(_as_signal(found) if signal else found)


def _transposed_by_group(
    node: Node,
    image: Tensor,
    kernel: Tensor,
    bias: Tensor | None,
    group: int,
    strides: tuple[int, int],
    full: tuple[int, int],
) -> list[Tensor]:
    """Transpose-convolve each group by itself, since NNAPI's operation has no groups."""
    per, outputs = kernel.shape[0] // group, kernel.shape[1]
    parts = []
    for at in range(group):
        given, filters = ([slice(0, extent, 1) for extent in t.shape] for t in (image, kernel))
        given[1] = filters[0] = slice(at * per, (at + 1) * per, 1)
        part, own = sliced(node, image, given), sliced(node, kernel, filters)
        of_bias = [slice(at * outputs, (at + 1) * outputs, 1)]
        offsets = None if bias is None else sliced(node, bias, of_bias)
        made = _transposed(node, part, own, offsets, strides, full)
        shape = (image.shape[0], outputs, *full)
        parts.append(Tensor(shape, image.dtype, value=made, order=NHWC))
    return parts


def _transposed(
    node: Node,
    image: Tensor,
    kernel: Tensor,
    bias: Tensor | None,
    strides: tuple[int, int],
    full: tuple[int, int],
) -> Value:
    """The whole result of one group, without paddings."""
    outputs = kernel.shape[1]
    value = node.graph.stored(image, NHWC)
    filters = node.graph.stored(kernel, (1, 2, 3, 0))
    dims = (image.shape[0], *full, outputs)
    return node.emit(
        _O.TRANSPOSE_CONV_2D,
        [
            value,
            filters,
            real_bias(node, bias, outputs, value.type),
            0,
            0,
            0,
            0,
            strides[1],
            strides[0],
            0,
            False,
        ],
        TensorType(value.type.type, dims),
    )


def _dilated(node: Node, kernel: Tensor, dilations: tuple[int, int]) -> Tensor:
    """Dilate filters: put zeros between their elements."""
    node.require(
        kernel.is_known, "filters are computed and dilated, expected constants or no dilation"
    )
    found = kernel.array()
    rows, columns = ((e - 1) * d + 1 for e, d in zip(found.shape[2:], dilations, strict=True))
    node.graph.budget.spend(found.shape[0] * found.shape[1] * rows * columns * 4)
    wide = np.zeros((*found.shape[:2], rows, columns), found.dtype)
    wide[:, :, :: dilations[0], :: dilations[1]] = found
    return constant(wide)


def _transposed_window(
    node: Node, x: Tensor, kernel: Tensor, rank: int
) -> tuple[tuple[int, int], list[tuple[int, int]]]:
    """Extents of the whole result, and the cells to cut off before and behind (negative: to add)."""
    strides = node.integer_list("strides", [1] * rank) or []
    more = node.integer_list("output_padding", [0] * rank) or []
    pads = node.integer_list("pads", [0] * (2 * rank)) or []
    wanted = node.integer_list("output_shape")
    auto = node.string("auto_pad", "NOTSET")
    if not len(strides) == len(more) == rank or len(pads) != 2 * rank:
        raise Malformed(f"strides {strides}, output padding {more}, pads {pads} of {rank} axes")
    full, sides = [], []
    for axis in range(rank):
        size = kernel.shape[4 - rank + axis]
        extent = strides[axis] * (x.shape[2 + axis] - 1) + size
        before, behind = pads[axis], pads[axis + rank] - more[axis]
        if wanted is not None or auto in ("SAME_UPPER", "SAME_LOWER"):
            target = (
                wanted[axis - rank] if wanted is not None else x.shape[2 + axis] * strides[axis]
            )
            total = max(extent + more[axis] - target, 0)  # nothing is added before the result
            if wanted is None:
                target = extent + more[axis] - total
            half = total // 2
            before = half if auto == "SAME_UPPER" else total - half
            behind = extent - before - target
        full.append(extent)
        sides.append((before, behind))
    return _pair(full), ([(0, 0), *sides] if rank == 1 else sides)


def _trimmed(
    node: Node, x: Tensor, sides: Sequence[tuple[int, int]], bias: Tensor | None
) -> Tensor:
    """Cut borders off, or add cells that no filter reaches and that hold only the bias."""
    windows = [slice(0, extent, 1) for extent in x.shape]
    for at, (before, behind) in enumerate(sides):
        windows[2 + at] = slice(max(before, 0), x.shape[2 + at] - max(behind, 0), 1)
    x = sliced(node, x, windows)
    more = [(0, 0), (0, 0), *((max(-a, 0), max(-b, 0)) for a, b in sides)]
    if any(a or b for a, b in more):
        node.require(bias is None, "output padding comes with a bias, expected one of the two")
    return padded(node, x, more, 0.0)
