"""LOGISTIC, TANH, HARD_SWISH: signatures and shape rules.

NNAPI: Activation.cpp.
"""

from __future__ import annotations

from nnburst.executor.graph.operation import Node, declare
from nnburst.executor.graph.shape_rules import (
    require_rank_up_to_4,
    same_shape,
    same_shape_up_to_rank_4,
)
from nnburst.executor.graph.signatures import (
    F16,
    F32,
    Q8,
    Q8S,
    V1_0,
    V1_3,
    data,
    rows,
    signature,
)
from nnburst.executor.graph.tensor import TensorType
from nnburst.executor.operations.families.scales import quantize_multiplier
from nnburst.hal.enums import OperandType, OperationType
from nnburst.hal.imports import late_numpy as np
from nnburst.hal.operand_types import QUANTIZED_RANGES


def _fixed_quantisation(
    node: Node, scale: float, zero_points: dict[OperandType, int]
) -> list[TensorType]:
    x = node.tensor("input")
    if x.type not in zero_points:
        return same_shape_up_to_rank_4(node)
    require_rank_up_to_4(node, "input")
    return [TensorType(x.type, x.shape, scale, zero_points[x.type])]


def _logistic_shape(node: Node) -> list[TensorType]:
    return _fixed_quantisation(node, 1 / 256, {Q8: 0, Q8S: -128})


def _tanh_shape(node: Node) -> list[TensorType]:
    return _fixed_quantisation(node, 1 / 128, {Q8: 128, Q8S: 0})


declare(
    signature(
        OperationType.LOGISTIC,
        V1_0,
        "Logistic sigmoid 1 / (1 + exp(-x)).",
        inputs=[data("input", rank=(1, 2, 3, 4))],
        outputs=[data("output")],
        rows=rows(V1_0=[F32, Q8], V1_2=[F16], V1_3=[Q8S]),
    ),
    shape=_logistic_shape,
    zero_sized=True,
)


declare(
    signature(
        OperationType.TANH,
        V1_0,
        "Hyperbolic tangent.",
        inputs=[data("input", rank=(1, 2, 3, 4))],
        outputs=[data("output")],
        rows=rows(V1_0=[F32], V1_2=[F16, Q8], V1_3=[Q8S]),
    ),
    shape=_tanh_shape,
    zero_sized=True,
)


def _hard_swish_shape(node: Node) -> list[TensorType]:
    x, out = node.tensor("input"), node.declared()
    if x.type in QUANTIZED_RANGES:
        with np.errstate(all="ignore"):
            fine_scale = np.float32(1 / 128) * np.float32(x.scale)
            _, shift = quantize_multiplier(float(fine_scale / np.float32(out.scale)))
        node.require(
            shift <= 0,
            f"operand 'output' has scale {out.scale}, which is too small for that of 'input',"
            f" {x.scale} (at most 128 times larger)",
        )
    return same_shape(node)


declare(
    signature(
        OperationType.HARD_SWISH,
        V1_3,
        "Hard swish x * clamp(x + 3, 0, 6) / 6.",
        inputs=[data("input")],
        outputs=[data("output")],
        rows=rows(V1_3=[F16, F32, Q8, Q8S]),
    ),
    shape=_hard_swish_shape,
    zero_sized=True,
)
