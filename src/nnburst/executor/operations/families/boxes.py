"""Operands of axis-aligned boxes [x1, y1, x2, y2]: their types, extents and scales.

NNAPI: GenerateProposals.cpp, CpuOperationUtils.h.
"""

from __future__ import annotations

from typing import Final

from nnburst.executor.graph.operand_dimensions import require_dimensions
from nnburst.executor.graph.operation import Node
from nnburst.executor.graph.tensor import TensorType
from nnburst.hal.enums import OperandType
from nnburst.hal.operand_types import QUANTIZED_RANGES

#: NNAPI: the only scale of quantised boxes; their zero point is 0.
BOX_SCALE: Final = 0.125


def box_type(node: Node, dimensions: tuple[int, ...], index: int = 0) -> TensorType:
    """Type of an output of boxes; quantised ones are forced to scale 0.125, zero point 0."""
    kind = node.declared(index).type
    if kind == OperandType.TENSOR_QUANT16_ASYMM:
        return TensorType(kind, dimensions, BOX_SCALE, 0)
    return node.like_declared(dimensions, index)


def require_box_scale(node: Node, name: str) -> None:
    """Refuse quantised boxes with another scale than 0.125 or another zero point than 0."""
    tensor = node.tensor(name)
    node.require(
        tensor.type not in QUANTIZED_RANGES
        or (tensor.scale == BOX_SCALE and tensor.zero_point == 0),
        f"operand '{name}' has scale {tensor.scale} and zero point {tensor.zero_point},"
        f" expected {BOX_SCALE} and 0",
    )


def require_box_operands(node: Node, boxes: str, batches: str) -> int:
    """Check dimensions and scale of boxes [n, 4] and their batch indexes [n]; returns n."""
    shape = node.tensor(boxes).shape
    count = shape[0] if shape else 0
    require_dimensions(node, boxes, (count, 4))
    require_dimensions(node, batches, (count,))
    require_box_scale(node, boxes)
    return count
