"""RELU, RELU1, RELU6, ELU, PRELU: signatures and shape rules.

NNAPI: Activation.cpp, Elu.cpp, PRelu.cpp.
"""

from __future__ import annotations

from nnburst.executor.graph.operation import Node, declare
from nnburst.executor.graph.shape_rules import (
    broadcast_shape,
    require_rank_up_to_4,
    same_shape,
    same_type,
)
from nnburst.executor.graph.signatures import (
    F16,
    F32,
    FLOAT16,
    FLOAT32,
    Q8,
    Q8S,
    V1_0,
    V1_2,
    V1_3,
    control,
    data,
    row,
    rows,
    signature,
)
from nnburst.executor.graph.tensor import TensorType
from nnburst.hal.enums import OperationType
from nnburst.hal.signature import Signature


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
