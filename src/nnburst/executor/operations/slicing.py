"""Declares the operations that cut, pad, join, pick and repeat elements."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

from nnburst.executor.graph.declarations import (
    B8,
    F16,
    F32,
    FL6,
    FL7,
    FLOAT16,
    FLOAT32,
    I32,
    INT32,
    Q8,
    Q8S,
    Q16A,
    Q16S,
    QPC,
    QSYM8,
    V1_0,
    V1_1,
    V1_2,
    V1_3,
    control,
    data,
    index,
    row,
    rows,
    signature,
)
from nnburst.executor.graph.operation import Node, declare
from nnburst.executor.graph.tensor import TensorType
from nnburst.executor.operations.shape import (
    UP_TO_4,
    check_output_rank,
    check_same_quantization,
    control_values,
    moved,
    require_ranks,
    resolve_axis,
)
from nnburst.hal.enums import ErrorStatus, OperationType
from nnburst.hal.errors import InvalidArgument
from nnburst.hal.limits import MAX_RANK
from nnburst.hal.model import Operand
from nnburst.hal.signature import Match

# -- SLICE, STRIDED_SLICE, SPLIT -------------------------------------------------------------------
# NNAPI: Slice.cpp, StridedSlice.cpp, Split.cpp.


def slice_ranges_of(node: Node) -> list[tuple[int, int]]:
    """First element and number of elements, for each dimension."""
    dimensions = node.tensor("input").shape
    node.require(len(dimensions) > 0, "operand 'input' has rank 0")
    begins = control_values(node, "begin", len(dimensions))
    sizes = control_values(node, "size", len(dimensions))
    ranges = []
    for extent, begin, given in zip(dimensions, begins, sizes, strict=True):
        size = extent - begin if given == -1 else given
        node.require(
            0 <= begin <= extent and 0 <= size <= extent - begin,
            f"operands 'begin' {begins} and 'size' {sizes} leave 'input' {dimensions}",
        )
        ranges.append((begin, size))
    return ranges


declare(
    signature(
        OperationType.SLICE,
        V1_2,
        "Takes a box out of a tensor; a size of -1 goes to the end.",
        inputs=[data("input"), control("begin", I32), control("size", I32)],
        outputs=[data("output")],
        rows=rows(V1_2=[F16, F32, I32, Q8], V1_3=[Q8S]),
    ),
    shape=lambda node: [node.like_declared([size for _, size in slice_ranges_of(node)])],
    zero_sized=True,
)


class _Stride(NamedTuple):
    """One dimension of STRIDED_SLICE: its slice for numpy, its number of elements, whether it stays."""

    part: slice
    extent: int
    dropped: bool


def _clamp(at: int, extent: int, stride: int) -> int:
    """Resolve an index as the specification does: from the end if negative, and at most one step outside."""
    low, high = (0, extent) if stride > 0 else (-1, extent - 1)
    return low if at < -extent else high if at >= extent else at % extent


def strides_of(node: Node) -> list[_Stride]:
    """The part of each axis that STRIDED_SLICE takes."""
    dimensions = node.tensor("input").shape
    rank = len(dimensions)
    begins, ends, steps = (control_values(node, n, rank) for n in ("begin", "end", "strides"))
    begin_mask, end_mask, shrink_mask = (
        int(node.value(f"{n}_mask")) for n in ("begin", "end", "shrink_axis")
    )
    found = []
    for i, (extent, begin, end, step) in enumerate(
        zip(dimensions, begins, ends, steps, strict=True)
    ):
        node.require(step != 0, f"operand 'strides' is {steps}, expected no 0")
        first, last = (0, extent) if step > 0 else (extent - 1, -1)
        begin = first if begin_mask >> i & 1 else _clamp(begin, extent, step)
        end = last if end_mask >> i & 1 else _clamp(end, extent, step)
        count = max(0, -((begin - end) // step))  # the quotient rounded up
        dropped = bool(shrink_mask >> i & 1)
        node.require(
            not dropped or (step > 0 and count == 1),
            f"operand 'shrink_axis_mask' drops dimension {i}, which has {count} elements"
            f" in steps of {step}",
        )
        part = slice(begin, end if end >= 0 else None, step) if count else slice(0)
        found.append(_Stride(part, count, dropped))
    return found


def _strided_slice_shape(node: Node) -> list[TensorType]:
    require_ranks(node)
    left = [s.extent for s in strides_of(node) if not s.dropped]
    return [node.like_declared(left or [1])]


declare(
    signature(
        OperationType.STRIDED_SLICE,
        V1_1,
        "Takes every n-th element between two bounds in each dimension; masks open bounds and drop"
        " dimensions.",
        inputs=[
            data("input", rank=UP_TO_4),
            control("begin", I32),
            control("end", I32),
            control("strides", I32),
            control("begin_mask"),
            control("end_mask"),
            control("shrink_axis_mask"),
        ],
        outputs=[data("output")],
        rows=rows(V1_1=[F32, Q8], V1_2=[F16], V1_3=[Q8S]),
    ),
    shape=_strided_slice_shape,
)


def _split_shape(node: Node) -> list[TensorType]:
    dimensions, parts = list(node.tensor("input").shape), int(node.value("num_splits"))
    outputs = len(node.outputs_declared)
    if parts != outputs:
        raise node.failure(
            f"operand 'num_splits' is {parts}, expected the number of outputs {outputs}",
            ErrorStatus.INVALID_ARGUMENT,
        )
    axis = resolve_axis(node, len(dimensions))
    node.require(
        dimensions[axis] % parts == 0,
        f"operand 'num_splits' is {parts}, which does not divide {dimensions[axis]}",
    )
    dimensions[axis] //= parts
    return [moved(node, dimensions, i) for i in range(parts)]


declare(
    signature(
        OperationType.SPLIT,
        V1_2,
        "Cuts a tensor into equal parts along one dimension.",
        inputs=[data("input"), control("axis"), control("num_splits")],
        outputs=[data("output", repeats=1)],
        rows=rows(V1_2=[F16, F32, I32, Q8], V1_3=[Q8S]),
    ),
    shape=_split_shape,
    omitted_status=ErrorStatus.INVALID_ARGUMENT,
)


# -- PAD, PAD_V2, MIRROR_PAD -----------------------------------------------------------------------
# NNAPI: CpuExecutor.cpp, OperationsExecutionUtils.cpp (padPrepare), MirrorPad.cpp.
# DEVIATES: before 1.2 a quantised input of PAD needed zero point 0. Operations do not know the version
# of their model; every zero point can be computed.


def paddings_of(node: Node) -> list[tuple[int, int]]:
    """Elements before and after, for each dimension."""
    rank = len(node.tensor("input").shape)
    found = node.tensor("paddings")
    node.require(
        found.shape == (rank, 2),
        f"operand 'paddings' has shape {found.shape}, expected {(rank, 2)}",
    )
    sides = [int(side) for side in found.numbers]
    pairs = list(zip(sides[::2], sides[1::2], strict=True))
    node.require(
        all(before >= 0 and after >= 0 for before, after in pairs),
        f"operand 'paddings' is {pairs}, expected no negative value",
    )
    return pairs


def _pad_shape(node: Node) -> list[TensorType]:
    require_ranks(node)
    dimensions, pairs = node.tensor("input").shape, paddings_of(node)
    return [moved(node, [b + d + a for d, (b, a) in zip(dimensions, pairs, strict=True)])]


declare(
    signature(
        OperationType.PAD,
        V1_1,
        "Surrounds a tensor with zeros (quantised: with the zero point).",
        inputs=[data("input", rank=UP_TO_4), control("paddings", I32)],
        outputs=[data("output")],
        rows=rows(V1_1=[F32, Q8], V1_2=[F16], V1_3=[Q8S]),
    ),
    shape=_pad_shape,
    omitted_status=ErrorStatus.INVALID_ARGUMENT,
)


declare(
    signature(
        OperationType.PAD_V2,
        V1_2,
        "Surrounds a tensor with a given value (quantised: with a stored value).",
        inputs=[data("input", rank=UP_TO_4), control("paddings", I32), control("pad_value", "V")],
        outputs=[data("output")],
        rows=[
            row(V1_2, T=F16, V=FLOAT16),
            row(V1_2, T=F32, V=FLOAT32),
            row(V1_2, T=Q8, V=INT32),
            row(V1_3, T=Q8S, V=INT32),
        ],
    ),
    shape=_pad_shape,
    omitted_status=ErrorStatus.INVALID_ARGUMENT,
)


def _check_mirror_pad(match: Match, inputs: Sequence[Operand], outputs: Sequence[Operand]) -> None:
    check_same_quantization(match, inputs, outputs)
    check_output_rank(match, inputs, outputs)
    shape, rank = inputs[1].dimensions, len(inputs[0].dimensions)
    wanted = (rank, 2)
    fits = len(shape) == 2 and all(
        have in (0, want) or not want for have, want in zip(shape, wanted, strict=True)
    )
    if shape and not fits:
        raise InvalidArgument(
            f"validation:P4: MIRROR_PAD: operand 'paddings' has shape {shape}, expected {wanted}"
        )


def _mirror_pad_shape(node: Node) -> list[TensorType]:
    mode = int(node.value("mode"))
    node.require(mode in (0, 1), f"operand 'mode' is {mode}, expected 0 or 1")
    (meta,) = _pad_shape(node)
    edge = 1 - mode
    for extent, pair in zip(node.tensor("input").shape, paddings_of(node), strict=True):
        node.require(
            max(pair) <= extent - edge,
            f"operand 'paddings' has {pair} around an extent of {extent},"
            f" expected at most {extent - edge}",
        )
    return [meta]


declare(
    signature(
        OperationType.MIRROR_PAD,
        FL7,
        "Surrounds a tensor with its reflection: mode 0 without the edge (REFLECT), 1 with it"
        " (SYMMETRIC).",
        inputs=[data("input"), control("paddings", I32), control("mode")],
        outputs=[data("output")],
        rows=rows(FL7=[F16, F32, Q8, Q8S, I32]),
        check=_check_mirror_pad,
    ),
    shape=_mirror_pad_shape,
)


# -- CONCATENATION and PACK ------------------------------------------------------------------------
# NNAPI: Concatenation.cpp, Pack.cpp.
# DEVIATES: before 1.2 quantised inputs of CONCATENATION had to be scaled like the output. Operations
# do not know the version of their model; both can be computed.


def _concatenation_shape(node: Node) -> list[TensorType]:
    require_ranks(node)
    shapes = [t.shape for t in node.tensors("input")]
    axis, rank = int(node.value("axis")), len(shapes[0])
    node.require(0 <= axis < rank, f"operand 'axis' is {axis}, expected [0, {rank - 1}]")
    others = {(*s[:axis], *s[axis + 1 :]) for s in shapes}
    node.require(
        len(others) == 1 and all(len(s) == rank for s in shapes),
        f"operands 'input' {shapes} differ in more than dimension {axis}",
    )
    total = sum(s[axis] for s in shapes)
    return [node.like_declared((*shapes[0][:axis], total, *shapes[0][axis + 1 :]))]


declare(
    signature(
        OperationType.CONCATENATION,
        V1_0,
        "Joins tensors along one dimension; quantised ones are rescaled to the output.",
        inputs=[data("input", repeats=1, rank=UP_TO_4), control("axis")],
        outputs=[data("output")],
        rows=rows(V1_0=[F32, Q8], V1_2=[F16], V1_3=[Q8S]),
    ),
    shape=_concatenation_shape,
    zero_sized=True,
)


def _check_pack(match: Match, inputs: Sequence[Operand], outputs: Sequence[Operand]) -> None:
    check_same_quantization(match, inputs, outputs)
    check_output_rank(match, inputs, outputs, added=1)


def _pack_shape(node: Node) -> list[TensorType]:
    shapes = [t.shape for t in node.tensors("input")]
    axis, rank = int(node.value("axis")), len(shapes[0])
    node.require(rank > 0, "operand 'input' has rank 0")
    node.require(0 <= axis <= rank, f"operand 'axis' is {axis}, expected [0, {rank}]")
    node.require(len(set(shapes)) == 1, f"operands 'input' have different shapes {shapes}")
    return [node.like_declared((*shapes[0][:axis], len(shapes), *shapes[0][axis:]))]


declare(
    signature(
        OperationType.PACK,
        FL6,
        "Stacks tensors of one shape along a new dimension.",
        inputs=[control("axis", INT32), data("input", repeats=1)],
        outputs=[data("output")],
        rows=rows(FL6=[F16, F32, I32, Q8, Q8S]),
        check=_check_pack,
    ),
    shape=_pack_shape,
)


# -- GATHER, TILE, FILL, RANK ----------------------------------------------------------------------
# NNAPI: Gather.cpp, Tile.cpp, Fill.cpp, Rank.cpp.


_ANY_TENSOR: Final = [F32, F16, I32, B8, Q8, Q8S, QSYM8, QPC, Q16A, Q16S]


def _gather_shape(node: Node) -> list[TensorType]:
    dimensions = node.tensor("input").shape
    axis = resolve_axis(node, len(dimensions))
    picked = node.tensor("indices").shape
    return [node.like_declared((*dimensions[:axis], *picked, *dimensions[axis + 1 :]))]


declare(
    signature(
        OperationType.GATHER,
        V1_2,
        "Picks slices along one dimension by index; the shape of the indices takes its place.",
        inputs=[data("input"), control("axis"), index("indices")],
        outputs=[data("output")],
        rows=rows(V1_2=[F16, F32, I32, Q8], V1_3=[Q8S]),
    ),
    shape=_gather_shape,
)


def _tile_shape(node: Node) -> list[TensorType]:
    """DEVIATES: TILE checks length and sign of 'multiples'; the original reads past their end."""
    dimensions = node.tensor("input").shape
    multiples = control_values(node, "multiples", len(dimensions))
    node.require(
        all(m > 0 for m in multiples), f"operand 'multiples' is {multiples}, expected more than 0"
    )
    return [moved(node, [d * m for d, m in zip(dimensions, multiples, strict=True)])]


declare(
    signature(
        OperationType.TILE,
        V1_2,
        "Repeats a tensor a number of times in each dimension.",
        inputs=[data("input"), control("multiples", I32)],
        outputs=[data("output")],
        rows=rows(V1_2=[F16, F32, I32, Q8], V1_3=[Q8S]),
    ),
    shape=_tile_shape,
    omitted_status=ErrorStatus.INVALID_ARGUMENT,
)


def _fill_shape(node: Node) -> list[TensorType]:
    dimensions = control_values(node, "dims", most=MAX_RANK)
    node.require(
        all(d > 0 for d in dimensions), f"operand 'dims' is {dimensions}, expected more than 0"
    )
    return [node.like_declared(dimensions)]


declare(
    signature(
        OperationType.FILL,
        V1_3,
        "Makes a tensor of the given extents with one value everywhere.",
        inputs=[control("dims", I32), control("value", "V")],
        outputs=[data("output")],
        rows=[row(V1_3, T=F16, V=FLOAT16), row(V1_3, T=F32, V=FLOAT32), row(V1_3, T=I32, V=INT32)],
    ),
    shape=_fill_shape,
)


declare(
    signature(
        OperationType.RANK,
        V1_3,
        "Number of dimensions of a tensor.",
        inputs=[data("input")],
        outputs=[data("output", INT32)],
        rows=[row(V1_3, T=_ANY_TENSOR)],
    ),
    shape=lambda node: [node.like_declared(())],
)
