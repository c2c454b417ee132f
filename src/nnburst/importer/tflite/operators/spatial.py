"""Operators that move elements between batch, space and depth."""

from __future__ import annotations

from nnburst.hal.enums import OperationType
from nnburst.importer.constants import integers
from nnburst.importer.tflite.operator import FLOAT, INT32, QUANT8, Operator, operator


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
    """NNAPI does not crop: a SLICE does it after."""
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
