"""ABS, NEG, EXP, LOG, SIN, SQRT, RSQRT, FLOOR: signatures and shape rules.

NNAPI: Elementwise.cpp, Neg.cpp, Floor.cpp.
"""

from __future__ import annotations

from nnburst.executor.graph.operation import declare
from nnburst.executor.graph.shape_rules import same_shape, same_shape_up_to_rank_4
from nnburst.executor.graph.signatures import (
    F16,
    F32,
    I32,
    Q8,
    Q8S,
    V1_0,
    V1_2,
    data,
    rows,
    signature,
)
from nnburst.hal.enums import OperandType, OperationType
from nnburst.hal.signature import Signature


def _signature(
    type: OperationType,  # noqa: A002 - NNAPI's word
    summary: str,
    **types: list[OperandType],
) -> Signature:
    return signature(
        type, V1_2, summary, inputs=[data("input")], outputs=[data("output")], rows=rows(**types)
    )


declare(
    _signature(OperationType.ABS, "Absolute value.", V1_2=[F16, F32], V1_3=[I32]),
    shape=same_shape,
)


declare(
    _signature(OperationType.NEG, "Negation.", V1_2=[F16, F32, I32]),
    shape=same_shape,
)


declare(
    _signature(OperationType.EXP, "Exponential function.", V1_2=[F16, F32]),
    shape=same_shape,
)


declare(
    _signature(OperationType.LOG, "Natural logarithm.", V1_2=[F16, F32]),
    shape=same_shape,
)


declare(
    _signature(OperationType.SIN, "Sine.", V1_2=[F16, F32]),
    shape=same_shape,
)


declare(
    _signature(OperationType.SQRT, "Square root.", V1_2=[F16, F32]),
    shape=same_shape,
)


declare(
    _signature(
        OperationType.RSQRT, "Reciprocal of the square root.", V1_2=[F16, F32], FL7=[Q8, Q8S]
    ),
    shape=same_shape,
)


declare(
    signature(
        OperationType.FLOOR,
        V1_0,
        "Largest integer that is not above the element.",
        inputs=[data("input", rank=(1, 2, 3, 4))],
        outputs=[data("output")],
        rows=rows(V1_0=[F32], V1_2=[F16]),
    ),
    shape=same_shape_up_to_rank_4,
)
