"""CONCATENATION and PACK: several tensors made one.

NNAPI: Concatenation.cpp, Pack.cpp.
"""

from __future__ import annotations

import numpy as np

from nnburst.executor.graph.operation import Node, Run, kernel
from nnburst.executor.graph.tensor import Array, Tensor, TensorType
from nnburst.executor.reference.arithmetic.quantized_values import (
    all_stored_values,
    round_half_away,
)
from nnburst.executor.reference.families.data_movement import copies
from nnburst.hal.enums import OperationType
from nnburst.hal.operand_types import QUANTIZED_RANGES


def _rescaled(source: TensorType, target: TensorType) -> Array:
    """Stored values of the target for the 256 bytes of the source.

    NNAPI: `round(q * k - zero_point * k) + new_zero_point` in float32 on unsigned values; the
    signed type is shifted by 128 on the way in and out.
    """
    low, high = QUANTIZED_RANGES[source.type]
    shift = -low
    with np.errstate(all="ignore"):
        factor = np.float32(source.scale) * (np.float32(1) / np.float32(target.scale))
        q = (all_stored_values(source.type).astype(np.int32) + shift).astype(np.float32)
        real = q * factor - np.float32(source.zero_point + shift) * factor
        stored = round_half_away(real).astype(np.float64) + target.zero_point
        return np.clip(stored, low, high).astype(np.int8 if shift else np.uint8)


def _part(source: Tensor, target: TensorType, destination: Array) -> Run:
    same = (source.scale, source.zero_point) == (target.scale, target.zero_point)
    if same or source.type not in QUANTIZED_RANGES:
        return copies((destination, source.array))
    table, codes = _rescaled(source.meta, target), source.array.view(np.uint8)

    def run() -> None:
        np.take(table, codes, out=destination, mode="clip")

    return run


@kernel(OperationType.CONCATENATION, half=True)
def concatenation(node: Node) -> Run:
    """Copy or rescale each input to its place."""
    axis, output = int(node.value("axis")), node.output()
    along, parts, at = np.moveaxis(output.array, axis, 0), [], 0
    for source in node.tensors("input"):
        size = source.shape[axis]
        destination = np.moveaxis(along[at : at + size], 0, axis)
        parts.append(_part(source, output.meta, destination))
        at += size

    def run() -> None:
        for part in parts:
            part()

    return run


@kernel(OperationType.PACK, half=True)
def pack(node: Node) -> Run:
    """Copy each input to its place."""
    along = np.moveaxis(node.output().array, int(node.value("axis")), 0)
    return copies(*zip(along, (t.array for t in node.tensors("input")), strict=True))
