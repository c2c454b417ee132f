"""CONCATENATION and PACK: several tensors made one.

NNAPI: Concatenation.cpp, Pack.cpp.
DEVIATES: before 1.2 quantised inputs of CONCATENATION had to be scaled like the output. Operations
do not know the version of their model; both can be computed.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from nnburst.executor.graph.operation import Node, Run, operation
from nnburst.executor.graph.signatures import (
    F16,
    F32,
    FL6,
    I32,
    INT32,
    Q8,
    Q8S,
    V1_0,
    control,
    data,
    rows,
    signature,
)
from nnburst.executor.graph.tensor import Array, Tensor, TensorType
from nnburst.executor.reference.arithmetic.quantized_values import (
    all_stored_values,
    round_half_away,
)
from nnburst.executor.reference.families.data_movement import (
    UP_TO_4,
    check_output_rank,
    check_same_quantization,
    copies,
    require_ranks,
)
from nnburst.hal.enums import OperationType
from nnburst.hal.model import Operand
from nnburst.hal.operand_types import QUANTIZED_RANGES
from nnburst.hal.signature import Match


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


@operation(
    signature(
        OperationType.CONCATENATION,
        V1_0,
        "Joins tensors along one dimension; quantised ones are rescaled to the output.",
        inputs=[data("input", repeats=1, rank=UP_TO_4), control("axis")],
        outputs=[data("output")],
        rows=rows(V1_0=[F32, Q8], V1_2=[F16], V1_3=[Q8S]),
    ),
    shape=_concatenation_shape,
    half=True,
    zero_sized=True,
)
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


@operation(
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
    half=True,
)
def pack(node: Node) -> Run:
    """Copy each input to its place."""
    along = np.moveaxis(node.output().array, int(node.value("axis")), 0)
    return copies(*zip(along, (t.array for t in node.tensors("input")), strict=True))
