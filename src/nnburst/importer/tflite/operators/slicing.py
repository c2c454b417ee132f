"""Operators that take part of a tensor, or put a border around it."""

from __future__ import annotations

from nnburst.formats.tflite.schema import names
from nnburst.hal.enums import OperationType
from nnburst.importer.constants import integers
from nnburst.importer.tflite.operator import FLOAT, INT32, QUANT8, Operator, operator


@operator("SLICE")
def _slice(op: Operator) -> None:
    op.require_type(op.input(0), FLOAT | QUANT8 | INT32, "input")
    op.require_type(op.input(1), INT32, "begin")
    op.require_type(op.input(2), INT32, "size")
    op.emit(OperationType.SLICE, [op.input(0), op.input(1), op.input(2)])


@operator("STRIDED_SLICE")
def _strided_slice(op: Operator) -> None:
    x = op.input(0)
    op.require_type(x, FLOAT | QUANT8, "input")
    options = op.options("StridedSliceOptions")
    op.require(not options.EllipsisMask(), "ellipsis_mask is set, expected 0")
    op.require(not options.NewAxisMask(), "new_axis_mask is set, expected 0")
    begin, end = list(op.integers(1, "begin")), list(op.integers(2, "end"))
    strides = op.integers(3, "strides")
    op.require(len(begin) == len(end), f"{len(begin)} begins and {len(end)} ends")
    if options.Offset():
        end = [first + length for first, length in zip(begin, end, strict=True)]
    shrunk = options.ShrinkAxisMask()
    for axis, extent in enumerate(x.type.dimensions[: min(len(begin), len(strides))]):
        if shrunk >> axis & 1:
            op.require(strides[axis] > 0, f"dimension {axis} taken backwards and dropped")
            begin[axis] = _element(op, axis, extent, begin[axis])
            end[axis] = begin[axis] + 1
    op.emit(
        OperationType.STRIDED_SLICE,
        [
            x,
            integers(begin),
            integers(end),
            integers(strides),
            options.BeginMask() & ~shrunk,
            options.EndMask() & ~shrunk,
            shrunk,
        ],
    )


def _element(op: Operator, axis: int, extent: int, begin: int) -> int:
    """The one element of a dimension that is dropped, counted from the front.

    The format takes it by its begin alone: converters write an end of 0 for the last one. NNAPI
    looks at both bounds, and at the masks that open them.
    """
    if op.options("StridedSliceOptions").BeginMask() >> axis & 1:
        return 0
    op.require(-extent <= begin < extent, f"element {begin} of {extent} in dimension {axis}")
    return begin % extent


@operator("PAD")
def _pad(op: Operator) -> None:
    op.require_type(op.input(0), FLOAT | QUANT8, "input")
    op.require_type(op.input(1), INT32, "paddings")
    op.emit(OperationType.PAD, [op.input(0), op.input(1)])


@operator("PADV2")
def _pad_v2(op: Operator) -> None:
    """The value is a tensor in the file and a scalar in NNAPI; stored numbers stay as they are."""
    x = op.input(0)
    op.require_type(x, FLOAT | QUANT8, "input")
    op.require_type(op.input(1), INT32, "paddings")
    op.require_type(op.input(2), frozenset({x.type.type}), "value")
    value = op.constant_scalar(2, "value").item()
    scalar = int(value) if x.type.is_quantized else op.real(value, x)
    op.emit(OperationType.PAD_V2, [x, op.input(1), scalar])


@operator("MIRROR_PAD")
def _mirror_pad(op: Operator) -> None:
    op.require_type(op.input(0), FLOAT | QUANT8 | INT32, "input")
    op.require_type(op.input(1), INT32, "paddings")
    mode = op.options("MirrorPadOptions").Mode()
    op.require(mode in names("MirrorPadMode"), f"mode {mode} is unknown")
    op.emit(OperationType.MIRROR_PAD, [op.input(0), op.input(1), mode])
