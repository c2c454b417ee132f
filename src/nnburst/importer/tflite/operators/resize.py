"""RESIZE_BILINEAR and RESIZE_NEAREST_NEIGHBOR."""

from __future__ import annotations

from typing import Any

from nnburst.hal.enums import OperationType
from nnburst.importer.tflite.operator import FLOAT, QUANT8, Operator, operator


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
