"""SLICE, STRIDED_SLICE, SPLIT: signatures and shape rules.

NNAPI: Slice.cpp, StridedSlice.cpp, Split.cpp.
"""

from __future__ import annotations

from typing import NamedTuple

from nnburst.executor.graph.operation import Node, declare
from nnburst.executor.graph.signatures import (
    F16,
    F32,
    I32,
    Q8,
    Q8S,
    V1_1,
    V1_2,
    control,
    data,
    rows,
    signature,
)
from nnburst.executor.graph.tensor import TensorType
from nnburst.executor.operations.families.data_movement import (
    UP_TO_4,
    control_values,
    moved,
    require_ranks,
    resolve_axis,
)
from nnburst.hal.enums import ErrorStatus, OperationType


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
    """One dimension of STRIDED_SLICE: what numpy takes, how many elements, and whether it stays."""

    part: slice
    extent: int
    dropped: bool


def _clamp(at: int, extent: int, stride: int) -> int:
    """An index as spec counts it: from the end if negative, and at most one step outside."""
    low, high = (0, extent) if stride > 0 else (-1, extent - 1)
    return low if at < -extent else high if at >= extent else at % extent


def strides_of(node: Node) -> list[_Stride]:
    """What STRIDED_SLICE takes of each axis."""
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
    axis = resolve_axis(node, "axis", len(dimensions))
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
