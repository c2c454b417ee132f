"""ROI_ALIGN: signatures and shape rules.

NNAPI: RoiAlign.cpp.
"""

from __future__ import annotations

from typing import Final

from nnburst.executor.graph.operation import Node, declare
from nnburst.executor.graph.signatures import INT32, V1_2, control, data, signature
from nnburst.executor.graph.tensor import TensorType
from nnburst.executor.operations.families.regions import LAYOUT, ROWS, region_slots, require_regions
from nnburst.hal.enums import OperationType

#: DEVIATES: NNAPI takes any number of samples along an axis; here memory is to stay in bounds.
_MOST_SAMPLES: Final = 65536
RATIOS: Final = ("height_ratio", "width_ratio")


def _shape(node: Node) -> list[TensorType]:
    dimensions = require_regions(node)
    map_dimensions = node.tensor("input").shape
    node.require(0 not in map_dimensions, f"operand 'input' is empty: {list(map_dimensions)}")
    for name, extent in zip(RATIOS, ("output_height", "output_width"), strict=True):
        ratio, count = node.value(name), node.value(extent)
        node.require(
            0 <= ratio <= _MOST_SAMPLES / count,
            f"operand '{name}' is {ratio}, expected 0 to {_MOST_SAMPLES // count} (times {count}"
            f" in '{extent}' it must not exceed {_MOST_SAMPLES})",
        )
    return [node.like_declared(dimensions)]


declare(
    signature(
        OperationType.ROI_ALIGN,
        V1_2,
        "Divides regions of feature maps into grids and averages points sampled in each cell by"
        " bilinear interpolation.",
        inputs=[*region_slots(), *(control(name, INT32) for name in RATIOS), LAYOUT],
        outputs=[data("output")],
        rows=ROWS,
    ),
    shape=_shape,
    zero_sized=True,
)
