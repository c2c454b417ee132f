"""Translates the operators of a .tflite file that move, join, cut and look up elements."""

from __future__ import annotations

from typing import Any

from nnburst.formats.tflite_reader import names
from nnburst.hal.enums import OperandType, OperationType
from nnburst.importer.subgraph import Value
from nnburst.importer.tensors import QUANT8, integers
from nnburst.importer.tflite.operator import FLOAT, INT32, Operator, operator


@operator("GATHER")
def _gather(op: Operator) -> None:
    x, indexes = op.input(0), op.input(1)
    op.require_type(x, FLOAT | QUANT8 | INT32, "input")
    op.require_type(indexes, INT32, "indexes")
    options = op.options("GatherOptions")
    op.require(options.BatchDims() == 0, f"{options.BatchDims()} batch dimensions")
    dims = x.type.dimensions
    axis = op.axis(options.Axis(), len(dims))
    kind = op.output_type()
    found = (*dims[:axis], *indexes.type.dimensions, *dims[axis + 1 :])
    if found == kind.dimensions:
        op.emit(OperationType.GATHER, [x, axis, indexes])
        return
    # A single index drops the axis in the file; NNAPI has no operand of rank 0.
    places = op.temporary(kind.reshaped(*found))
    op.emit(OperationType.GATHER, [x, axis, indexes], [places])
    reshape(op, places, kind.dimensions)


@operator("EMBEDDING_LOOKUP")
def _embedding_lookup(op: Operator) -> None:
    op.require_type(op.input(0), INT32, "lookups")
    values = op.input(1)
    op.require_type(values, FLOAT | QUANT8 | INT32, "values")
    op.require(op.output_type().type == values.type.type, "values and output differ in type")
    op.emit(OperationType.EMBEDDING_LOOKUP, [op.input(0), values])


@operator("HASHTABLE_LOOKUP")
def _hashtable_lookup(op: Operator) -> None:
    op.require_type(op.input(0), INT32, "lookups")
    op.require_type(op.input(1), INT32, "keys")
    values = op.input(2)
    unsigned = frozenset({OperandType.TENSOR_FLOAT32, OperandType.TENSOR_QUANT8_ASYMM})
    op.require_type(values, unsigned | INT32, "values")
    kept = op.output_type().same_quantization(values.type)
    op.require(kept, "values and output differ in their quantisation")
    op.emit(OperationType.HASHTABLE_LOOKUP, op.inputs())


@operator("RESHAPE", "SQUEEZE", "EXPAND_DIMS")
def _reshape(op: Operator) -> None:
    """Reshape to the output's shape in the file, without reading the operand with the shape."""
    x, kind = op.input(), op.output_type()
    op.require_type(x, FLOAT | QUANT8 | INT32, "input")
    reshape(op, x, kind.dimensions)


def reshape(op: Operator, x: Value, dimensions: tuple[int, ...], position: int = 0) -> None:
    """Set output `position` to the elements of `x` in another shape."""
    kind = op.output_type(position)
    op.require(
        kind.elements == x.type.elements and kind.dimensions == dimensions,
        f"{x.type.dimensions} does not have the elements of {kind.dimensions}",
    )
    op.emit(OperationType.RESHAPE, [x, integers(dimensions)], [op.output(position)])


@operator("TRANSPOSE")
def _transpose(op: Operator) -> None:
    op.require_type(op.input(), FLOAT | QUANT8, "input")
    rank = len(op.input().type.dimensions)
    permutation = [op.axis(axis, rank) for axis in op.integers(1, "permutation")]
    op.require(sorted(permutation) == list(range(rank)), f"{permutation} permutes no {rank} axes")
    op.emit(OperationType.TRANSPOSE, [op.input(), integers(permutation)])


@operator("REVERSE_V2")
def _reverse(op: Operator) -> None:
    op.require_type(op.input(), FLOAT | QUANT8 | INT32, "input")
    axis = op.axis(op.integer(1, "axis"), len(op.input().type.dimensions))
    op.emit(OperationType.REVERSE, [op.input(), integers([axis])])


@operator("SHAPE")
def _shape(op: Operator) -> None:
    """Translate SHAPE to a constant, since the file has all shapes."""
    shape = integers(op.input().type.dimensions)
    op.require_type(Value(op.output_type()), INT32, "output")
    op.becomes(Value(shape.type, None, shape))


@operator("RANK")
def _rank(op: Operator) -> None:
    rank = integers([len(op.input().type.dimensions)])
    op.becomes(Value(rank.type, None, rank))


@operator("FILL")
def _fill(op: Operator) -> None:
    dimensions = op.integers(0, "dimensions")
    op.require_type(op.input(1), FLOAT | INT32, "value")
    value = op.constant_scalar(1, "value").item()
    scalar = int(value) if op.input(1).type.type in INT32 else op.real(value, op.input(1))
    op.emit(OperationType.FILL, [integers(dimensions), scalar])


_TYPES = FLOAT | QUANT8 | INT32


@operator("CONCATENATION")
def _concatenation(op: Operator) -> None:
    values = op.inputs()
    op.require(bool(values), "it has 0 inputs, expected at least one")
    op.require_type(values[0], FLOAT | QUANT8, "input 0")
    options = op.options("ConcatenationOptions")
    op.require(op.activation(options) == 0, "an activation is fused, expected NONE")
    axis = op.axis(options.Axis(), len(values[0].type.dimensions))
    op.emit(OperationType.CONCATENATION, [*values, axis])


@operator("PACK")
def _pack(op: Operator) -> None:
    values = op.inputs()
    op.require(bool(values), "it has 0 inputs, expected at least one")
    op.require_type(values[0], _TYPES, "input 0")
    kind = op.output_type()
    axis = op.axis(op.options("PackOptions").Axis(), len(kind.dimensions))
    if len(values[0].type.dimensions) < len(kind.dimensions):
        op.emit(OperationType.PACK, [axis, *values])
        return
    # Single numbers, which are vectors of one element in NNAPI.
    rows = op.temporary(kind.reshaped(len(values), 1))
    op.emit(OperationType.PACK, [0, *values], [rows])
    reshape(op, rows, kind.dimensions)


@operator("UNPACK")
def _unpack(op: Operator) -> None:
    """Translate UNPACK to SPLIT, and a RESHAPE of each part that drops the axis."""
    x = op.input()
    op.require_type(x, _TYPES, "input")
    count = len(op.output_tensors)
    axis = op.axis(op.options("UnpackOptions").Axis(), len(x.type.dimensions))
    op.require(x.type.dimensions[axis] == count, f"{count} outputs, shape {x.type.dimensions}")
    shape = tuple(1 if i == axis else extent for i, extent in enumerate(x.type.dimensions))
    parts = [op.temporary(x.type.reshaped(*shape)) for _ in range(count)]
    op.emit(OperationType.SPLIT, [x, axis, count], parts)
    for position, part in enumerate(parts):
        reshape(op, part, op.output_type(position).dimensions, position)


@operator("SPLIT")
def _split(op: Operator) -> None:
    x = op.input(1)
    op.require_type(x, _TYPES, "input")
    axis = op.axis(op.integer(0, "axis"), len(x.type.dimensions))
    op.emit(OperationType.SPLIT, [x, axis, len(op.output_tensors)])


@operator("SPLIT_V")
def _split_v(op: Operator) -> None:
    """Translate to one SLICE for each output, since NNAPI splits into equal parts only."""
    x = op.input(0)
    op.require_type(x, _TYPES, "input")
    rank = len(x.type.dimensions)
    axis = op.axis(op.integer(2, "axis"), rank)
    begin = [0] * rank
    for position in range(len(op.output_tensors)):
        part = op.output(position)
        op.require(len(part.type.dimensions) == rank, f"output {position} has another rank")
        size = integers(part.type.dimensions)
        op.emit(OperationType.SLICE, [x, integers(begin), size], [part])
        begin[axis] += part.type.dimensions[axis]


@operator("TILE")
def _tile(op: Operator) -> None:
    op.require_type(op.input(0), _TYPES, "input")
    op.require_type(op.input(1), INT32, "multiples")
    op.emit(OperationType.TILE, [op.input(0), op.input(1)])


@operator("RESIZE_BILINEAR")
def _resize_bilinear(op: Operator) -> None:
    _resize(op, OperationType.RESIZE_BILINEAR, op.options("ResizeBilinearOptions"))


@operator("RESIZE_NEAREST_NEIGHBOR")
def _resize_nearest_neighbor(op: Operator) -> None:
    _resize(op, OperationType.RESIZE_NEAREST_NEIGHBOR, op.options("ResizeNearestNeighborOptions"))


def _resize(op: Operator, kind: OperationType, options: Any) -> None:  # noqa: ANN401
    op.require_type(op.input(), FLOAT | QUANT8, "input")
    size = op.integers(1, "size")
    op.require(len(size) == 2, f"size has {len(size)} elements, expected height and width")
    flags = [bool(options.AlignCorners()), bool(options.HalfPixelCenters())]
    height, width = size
    op.emit(kind, [op.input(), width, height, False, *(flags if any(flags) else [])])


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
    strides = list(op.integers(3, "strides"))
    dims = x.type.dimensions
    counts = [len(begin), len(end), len(strides)]
    op.require(
        len({*counts}) == 1 and counts[0] <= len(dims), f"{counts} bounds of {len(dims)} axes"
    )
    if options.Offset():
        end = [first + length for first, length in zip(begin, end, strict=True)]
    shrunk = options.ShrinkAxisMask()
    for axis, extent in enumerate(dims):
        if axis >= len(begin):  # axes without bounds are taken whole
            begin.append(0)
            end.append(extent)
            strides.append(1)
        elif shrunk >> axis & 1:
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

    The format uses only the begin: converters write an end of 0 for the last element. NNAPI uses both bounds,
    and the masks that open them.
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
    """Turn the padding value, a tensor in the file, into NNAPI's scalar; stored integers stay the same."""
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


@operator("SPACE_TO_DEPTH")
def _space_to_depth(op: Operator) -> None:
    op.require_type(op.input(), FLOAT | QUANT8, "input")
    block = op.options("SpaceToDepthOptions").BlockSize()
    op.emit(OperationType.SPACE_TO_DEPTH, [op.input(), block])


@operator("DEPTH_TO_SPACE")
def _depth_to_space(op: Operator) -> None:
    op.require_type(op.input(), FLOAT | QUANT8, "input")
    block = op.options("DepthToSpaceOptions").BlockSize()
    op.emit(OperationType.DEPTH_TO_SPACE, [op.input(), block])


@operator("SPACE_TO_BATCH_ND")
def _space_to_batch(op: Operator) -> None:
    _require_image(op)
    op.require_type(op.input(2), INT32, "paddings")
    op.emit(OperationType.SPACE_TO_BATCH_ND, [op.input(0), op.input(1), op.input(2)])


@operator("BATCH_TO_SPACE_ND")
def _batch_to_space(op: Operator) -> None:
    """Crop by a SLICE afterwards, since NNAPI does not crop."""
    _require_image(op)
    x, kind = op.input(0), op.output_type()
    crops = op.integers(2, "crops")
    if not any(crops):
        op.emit(OperationType.BATCH_TO_SPACE_ND, [x, op.input(1)])
        return
    block = op.integers(1, "block shape")
    op.require((len(block), len(crops)) == (2, 4) and min(*block, *crops) >= 0, f"crops {crops}")
    batch, height, width, depth = x.type.dimensions
    area = block[0] * block[1]
    op.require(area > 0 and batch % area == 0, f"blocks of {block} for a batch of {batch}")
    whole = kind.reshaped(batch // area, height * block[0], width * block[1], depth)
    image = op.temporary(whole)
    op.emit(OperationType.BATCH_TO_SPACE_ND, [x, op.input(1)], [image])
    begin = integers([0, crops[0], crops[2], 0])
    op.emit(OperationType.SLICE, [image, begin, integers(kind.dimensions)])


def _require_image(op: Operator) -> None:
    op.require_type(op.input(0), FLOAT | QUANT8, "input")
    op.require_type(op.input(1), INT32, "block shape")
    rank = len(op.input(0).type.dimensions)
    op.require(rank == 4, f"rank {rank}, expected 4")
