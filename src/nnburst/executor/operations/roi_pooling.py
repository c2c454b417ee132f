"""ROI_POOLING: signatures and shape rules.

NNAPI: RoiPooling.cpp.
"""

from __future__ import annotations

from nnburst.executor.graph.operation import Node, declare
from nnburst.executor.graph.shape_rules import same_type
from nnburst.executor.graph.signatures import V1_2, data, signature
from nnburst.executor.graph.tensor import TensorType
from nnburst.executor.operations.families.regions import LAYOUT, ROWS, region_slots, require_regions
from nnburst.hal.enums import OperationType


def _shape(node: Node) -> list[TensorType]:
    return [same_type(node, require_regions(node))]


declare(
    signature(
        OperationType.ROI_POOLING,
        V1_2,
        "Divides regions of feature maps into grids and takes the maximum of each cell.",
        inputs=[*region_slots(), LAYOUT],
        outputs=[data("output")],
        rows=ROWS,
    ),
    shape=_shape,
)
