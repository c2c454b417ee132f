"""SLICE, STRIDED_SLICE, SPLIT: parts of a tensor.

NNAPI: Slice.cpp, StridedSlice.cpp, Split.cpp.
"""

from __future__ import annotations

from nnburst.executor.graph.operation import Node, Run, kernel
from nnburst.executor.operations.families.data_movement import (
    resolve_axis,
)
from nnburst.executor.operations.shape_slice import slice_ranges_of, strides_of
from nnburst.executor.reference.families.data_movement import copies
from nnburst.hal.enums import OperationType


@kernel(OperationType.SLICE, half=True)
def slice_(node: Node) -> Run:
    """Copy through a view. NNAPI: stored values stay, whatever the output's quantisation."""
    box = tuple(slice(begin, begin + size) for begin, size in slice_ranges_of(node))
    return copies((node.output().array, node.tensor("input").array[box]))


@kernel(OperationType.STRIDED_SLICE, half=True)
def strided_slice(node: Node) -> Run:
    """Copy through a view."""
    strides, y = strides_of(node), node.output().array
    view = node.tensor("input").array[tuple(s.part for s in strides)]
    return copies((y.reshape([s.extent for s in strides]), view))


@kernel(OperationType.SPLIT, half=True)
def split(node: Node) -> Run:
    """Copy each part."""
    x = node.tensor("input").array
    axis, size = resolve_axis(node, "axis", x.ndim), node.output().shape
    before = (slice(None),) * axis
    return copies(
        *(
            (part.array, x[(*before, slice(i * size[axis], (i + 1) * size[axis]))])
            for i, part in enumerate(node.outputs)
        )
    )
