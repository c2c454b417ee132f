"""Networks with sparse weights."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from nnburst.testing.models.tflite_builder import TfliteBuilder
from nnburst.testing.models.tflite_networks.registry import network
from nnburst.testing.models.tflite_schema import schema

#: A 4×4 matrix with two blocks of 1×2 per row of blocks, and rows without any.
MATRIX = np.array([[0, 0, 1, 2], [0, 0, 0, 0], [3, 4, 5, 6], [0, 0, 7, 8]], "<f4")


def vector(kind: str, values: list[int]) -> dict[str, Any]:
    """A SparseIndexVector: its type and the vector."""
    made = getattr(schema(), f"{kind}T")()
    made.values = values
    return {"type": getattr(schema().SparseIndexVector, kind), "vector": made}


def dense_level(size: int) -> Any:  # noqa: ANN401 - generated code without types
    """A level that has every index."""
    made = schema().DimensionMetadataT()
    made.format, made.denseSize = schema().DimensionType.DENSE, size
    return made


def listed_level(segments: dict[str, Any], indexes: dict[str, Any]) -> Any:  # noqa: ANN401
    """A level that lists its indexes."""
    made = schema().DimensionMetadataT()
    made.format = schema().DimensionType.SPARSE_CSR
    made.arraySegmentsType, made.arraySegments = segments["type"], segments["vector"]
    made.arrayIndicesType, made.arrayIndices = indexes["type"], indexes["vector"]
    return made


def sparsity(order: list[int], block_map: list[int], levels: list[Any]) -> Any:  # noqa: ANN401
    """SparsityParameters."""
    made = schema().SparsityParametersT()
    made.traversalOrder, made.blockMap, made.dimMetadata = order, block_map, levels
    return made


def stored(blocks: bool) -> tuple[npt.NDArray[np.float32], Any]:
    """The values of `MATRIX` and how they are stored: row by row, or by blocks of 1×2."""
    values = MATRIX[MATRIX != 0]
    if not blocks:
        listed = listed_level(
            vector("Uint8Vector", [0, 2, 2, 6, 8]),
            vector("Int32Vector", [2, 3, 0, 1, 2, 3, 2, 3]),
        )
        return values, sparsity([0, 1], [], [dense_level(4), listed])
    listed = listed_level(
        vector("Uint16Vector", [0, 1, 1, 3, 4]), vector("Uint8Vector", [1, 0, 1, 1])
    )
    return values, sparsity([0, 1, 2], [1], [dense_level(4), listed, dense_level(2)])


@network("DENSIFY")
def _densify(b: TfliteBuilder, kind: str) -> None:
    x = b.input(kind, (2, 4))
    products = x
    for blocks in (False, True):
        values, how = stored(blocks)
        sparse = b.constant(kind, values, shape=(4, 4), sparsity=how)
        dense, last = b.tensor(kind, (4, 4)), products
        products = b.output(kind, (2, 4)) if blocks else b.tensor(kind, (2, 4))
        b.operator("DENSIFY", [sparse], [dense], "DensifyOptions")
        b.operator("FULLY_CONNECTED", [last, dense, -1], [products], "FullyConnectedOptions")
