"""Sparse constants of the format, made dense.

A sparse tensor is stored as a tree: one level per dimension of the tensor, and below those one level
per dimension of the blocks that it may be cut into. A DENSE level has a child for each index; a
SPARSE_CSR level lists, for each node above, which indexes are there. The leaves are the values.
Levels are walked one after the other, all nodes of a level at once.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from nnburst.formats.tflite.reader import MalformedTflite
from nnburst.formats.tflite.schema import names, schema
from nnburst.hal.limits import INT32_MAX, MAX_RANK
from nnburst.importer.refused import Refused

Array = npt.NDArray[Any]
_Indexes = npt.NDArray[np.int32]

_VECTORS: Final = ("Int32Vector", "Uint16Vector", "Uint8Vector")
#: Bytes of bookkeeping for each node: positions, places and what a level adds to them.
_PER_NODE: Final = 48
#: Nodes that a level may have beyond one per value: those without any value below them.
_EMPTY_NODES: Final = 2**17


def dense_cost(dimensions: Sequence[int], values: Array) -> int:
    """Bytes that `densify` allocates at most."""
    return math.prod(dimensions) * values.itemsize + _PER_NODE * (len(values) + _EMPTY_NODES)


def densify(sparsity: Any, values: Array, dimensions: tuple[int, ...]) -> Array:  # noqa: ANN401
    """The dense array.

    Args:
        sparsity: SparsityParameters of the tensor.
        values: what is stored: the leaves in order.
        dimensions: of the tensor.

    Raises:
        MalformedTflite: the tree does not fit the tensor or the values.
    """
    levels = sparsity.DimMetadataLength()
    if not len(dimensions) <= levels <= 2 * MAX_RANK or sparsity.TraversalOrderLength() != levels:
        raise MalformedTflite(f"{levels} sparse levels for {len(dimensions)} dimensions")
    order = [int(sparsity.TraversalOrder(level)) for level in range(levels)]
    if sorted(order) != list(range(levels)):
        raise MalformedTflite(f"traversal order {order} of a sparse tensor")
    strides, extents = _level_strides(sparsity, dimensions, order)
    if math.prod(dimensions) > INT32_MAX:
        raise Refused(f"a sparse tensor of shape {list(dimensions)} is too large")
    most = len(values) + _EMPTY_NODES
    positions = np.zeros(1, np.int32)  # of the nodes of one level, as its parent numbers them
    places = np.zeros(1, np.int32)  # of the nodes in the dense array
    for level, dimension in enumerate(order):
        meta = sparsity.DimMetadata(level)
        parents, positions, indexes = _children(meta, positions, extents[dimension], most)
        places = places[parents] + indexes * strides[dimension]
    if not np.array_equal(positions, np.arange(len(values), dtype=np.int32)):
        raise MalformedTflite(f"{len(positions)} places for {len(values)} sparse values")
    dense = np.zeros(math.prod(dimensions), values.dtype)
    dense[places] = values
    return dense.reshape(dimensions)


def _level_strides(
    sparsity: Any,  # noqa: ANN401
    dimensions: tuple[int, ...],
    order: Sequence[int],
) -> tuple[list[int], list[int]]:
    """Elements that a step along each dimension of the tree spans, and its extent.

    Dimensions of the tensor come first, counted in blocks; then those of a block.
    """
    count = sparsity.BlockMapLength()
    if count > len(dimensions):
        raise MalformedTflite(f"blocks of {count} dimensions in a tensor of {len(dimensions)}")
    mapped = [int(sparsity.BlockMap(i)) for i in range(count)]
    if len(set(mapped)) != count or any(not 0 <= axis < len(dimensions) for axis in mapped):
        raise MalformedTflite(f"block map {mapped} of a tensor of {len(dimensions)} dimensions")
    if len(order) != len(dimensions) + count:
        raise MalformedTflite(
            f"{len(order)} sparse levels for {len(dimensions)} dimensions and {count}"
        )
    # The extent of a block is given by the level that walks it.
    walking = [order.index(len(dimensions) + i) for i in range(count)]
    sizes = [int(sparsity.DimMetadata(level).DenseSize()) for level in walking]
    block = dict(zip(mapped, sizes, strict=True))
    plain = [math.prod(dimensions[axis + 1 :]) for axis in range(len(dimensions))]
    for axis, size in block.items():
        if size < 1 or dimensions[axis] % size:
            raise MalformedTflite(f"blocks of {size} do not fill dimension {axis} of {dimensions}")
    steps = [stride * block.get(axis, 1) for axis, stride in enumerate(plain)]
    extents = [extent // block.get(axis, 1) for axis, extent in enumerate(dimensions)]
    return steps + [plain[axis] for axis in mapped], extents + sizes


def _children(
    meta: Any,  # noqa: ANN401
    positions: _Indexes,
    extent: int,
    most: int,
) -> tuple[_Indexes, _Indexes, _Indexes]:
    """The nodes below those at `positions`: parent (by order), position and index of each."""
    if meta.Format() == schema().DimensionType.DENSE:
        # Positions may have gaps, which no honest tree has: the numbers below must stay small, too.
        width = int(positions.max(initial=-1)) + 1
        if meta.DenseSize() != extent or width * extent > most or len(positions) * extent > most:
            raise MalformedTflite(
                f"a level of {meta.DenseSize()} for {extent} indexes, {most} nodes"
            )
        parents = np.repeat(np.arange(len(positions), dtype=np.int32), extent)
        indexes = np.tile(np.arange(extent, dtype=np.int32), len(positions))
        return parents, positions[parents] * np.int32(extent) + indexes, indexes
    segments = _numbers(meta, "ArraySegments", most + 1)
    listed = _numbers(meta, "ArrayIndices", most)
    # Compared, not subtracted: differences of hostile segments wrap.
    if len(segments) <= positions.max(initial=-1) + 1 or (segments[1:] < segments[:-1]).any():
        raise MalformedTflite("segments of a sparse level are not in order or too few")
    if segments[0] < 0 or segments[-1] > len(listed):
        raise MalformedTflite(f"segments of a sparse level leave its {len(listed)} indexes")
    starts, ends = segments[positions], segments[positions + 1]
    counts = ends - starts
    total = int(counts.sum(dtype=np.int64))
    if total > most:
        raise MalformedTflite(f"a sparse level of {total} nodes, expected at most {most}")
    parents = np.repeat(np.arange(len(positions), dtype=np.int32), counts)
    before = np.cumsum(counts, dtype=np.int32) - counts
    offsets = np.arange(total, dtype=np.int32) - np.repeat(before, counts)
    below = starts[parents] + offsets
    indexes = listed[below]
    if total and (indexes.min() < 0 or indexes.max() >= extent):
        raise MalformedTflite(f"an index of a sparse level is outside its {extent}")
    return parents, below, indexes


def _numbers(meta: Any, field: str, most: int) -> _Indexes:  # noqa: ANN401
    """A vector of a sparse level of at most `most` elements, whichever integers it is stored in."""
    name = names("SparseIndexVector").get(getattr(meta, f"{field}Type")())
    if name not in _VECTORS:
        raise MalformedTflite(f"{field} of a sparse level are of type {name}")
    union = getattr(meta, field)()
    if union is None:
        raise MalformedTflite(f"a sparse level lacks {field}")
    vector = getattr(schema(), name)()
    vector.Init(union.Bytes, union.Pos)
    if vector.ValuesLength() > most:
        raise MalformedTflite(
            f"{vector.ValuesLength()} {field} of a sparse level, expected at most {most}"
        )
    return np.asarray(vector.ValuesAsNumpy() if vector.ValuesLength() else [], np.int32)
