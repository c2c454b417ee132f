"""SOFTMAX and LOG_SOFTMAX: signatures and shape rules.

NNAPI: Softmax.cpp, LogSoftmax.cpp.

DEVIATES: before 1.2 SOFTMAX took ranks 2 and 4 only. Operations do not know the version of their model,
so ranks 1 to 4 are accepted.
"""

from __future__ import annotations

from nnburst.executor.graph.operation import Node, declare
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
    signature,
)
from nnburst.executor.graph.tensor import TensorType
from nnburst.executor.operations.families.data_movement import UP_TO_4, require_ranks, resolve_axis
from nnburst.hal.enums import OperationType
from nnburst.hal.operand_types import QUANTIZED_RANGES


def _softmax_shape(node: Node) -> list[TensorType]:
    require_ranks(node)
    source = node.tensor("input").meta
    resolve_axis(node, "axis", len(source.dimensions))
    beta = float(node.value("beta"))
    node.require(beta > 0, f"operand 'beta' is {beta}, expected > 0")
    kind = node.declared().type
    if kind not in QUANTIZED_RANGES or 0 in source.dimensions:
        return [node.like_declared(source.dimensions)]
    return [TensorType(kind, source.dimensions, 1 / 256, QUANTIZED_RANGES[kind][0])]


declare(
    signature(
        OperationType.SOFTMAX,
        V1_0,
        "Turns numbers into probabilities that sum to one along an axis.",
        inputs=[
            data("input", rank=UP_TO_4),
            control("beta", "S"),
            control("axis", default=-1, since=V1_2),
        ],
        outputs=[data("output")],
        rows=[
            row(V1_0, T=F32, S=FLOAT32),
            row(V1_0, T=Q8, S=FLOAT32),
            row(V1_2, T=F16, S=FLOAT16),
            row(V1_3, T=Q8S, S=FLOAT32),
        ],
        counts=(2, 3),
    ),
    shape=_softmax_shape,
    zero_sized=True,
)


def _log_softmax_shape(node: Node) -> list[TensorType]:
    dimensions = node.tensor("input").shape
    resolve_axis(node, "axis", len(dimensions))
    return [node.like_declared(dimensions)]


declare(
    signature(
        OperationType.LOG_SOFTMAX,
        V1_2,
        "Gives logarithms of the probabilities that SOFTMAX gives.",
        inputs=[data("input"), control("beta", "S"), control("axis")],
        outputs=[data("output")],
        rows=[row(V1_2, T=F16, S=FLOAT16), row(V1_2, T=F32, S=FLOAT32)],
    ),
    shape=_log_softmax_shape,
)
