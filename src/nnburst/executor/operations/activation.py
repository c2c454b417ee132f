"""Declares the activation functions, from RELU to HARD_SWISH, by their signatures and shape rules.

The output of an activation has the shape of its input. Activations differ in their types and in the scale and
zero point that a quantised output must have.
"""

from __future__ import annotations

from nnburst.executor.graph.declarations import (
    F16,
    F32,
    FLOAT16,
    FLOAT32,
    Q8,
    Q8S,
    V1_0,
    V1_2,
    V1_3,
    broadcast_shape,
    control,
    data,
    quantize_multiplier,
    require_rank_up_to_4,
    row,
    rows,
    same_shape,
    same_shape_up_to_rank_4,
    same_type,
    signature,
)
from nnburst.executor.graph.operation import Node, declare
from nnburst.executor.graph.tensor import TensorType
from nnburst.hal import late_numpy as np
from nnburst.hal.enums import OperandType, OperationType
from nnburst.hal.model import QUANTIZED_RANGES
from nnburst.hal.signature import Signature

# -- Rectifiers: RELU, RELU1, RELU6, ELU, PRELU ----------------------------------------------------
# NNAPI: Activation.cpp, Elu.cpp, PRelu.cpp.


def _rectifier(type: OperationType, summary: str) -> Signature:  # noqa: A002 - NNAPI's word
    return signature(
        type,
        V1_0,
        summary,
        inputs=[data("input", rank=(1, 2, 3, 4))],
        outputs=[data("output")],
        rows=rows(V1_0=[F32, Q8], V1_2=[F16], V1_3=[Q8S]),
    )


def _clamp_shape(node: Node) -> list[TensorType]:
    require_rank_up_to_4(node, "input")
    return [same_type(node, node.tensor("input").shape)]


declare(
    _rectifier(
        OperationType.RELU,
        "Rectified linear unit: negative elements become 0.",
    ),
    shape=_clamp_shape,
    zero_sized=True,
)


declare(
    _rectifier(
        OperationType.RELU1,
        "Clamps the elements to the range from -1 to 1.",
    ),
    shape=_clamp_shape,
    zero_sized=True,
)


declare(
    _rectifier(
        OperationType.RELU6,
        "Clamps the elements to the range from 0 to 6.",
    ),
    shape=_clamp_shape,
    zero_sized=True,
)


declare(
    signature(
        OperationType.ELU,
        V1_3,
        "Exponential linear unit: alpha * (exp(x) - 1) below 0.",
        inputs=[data("input"), control("alpha", "A")],
        outputs=[data("output")],
        rows=[row(V1_3, T=F32, A=FLOAT32), row(V1_3, T=F16, A=FLOAT16)],
    ),
    shape=same_shape,
)


declare(
    signature(
        OperationType.PRELU,
        V1_2,
        "Parametric rectified linear unit: negative elements are multiplied by alpha.",
        inputs=[data("input"), data("alpha")],
        outputs=[data("output")],
        rows=rows(V1_2=[F16, F32, Q8], V1_3=[Q8S]),
    ),
    shape=broadcast_shape,
)


# -- Sigmoids: LOGISTIC, TANH, HARD_SWISH ----------------------------------------------------------
# NNAPI: Activation.cpp.


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
