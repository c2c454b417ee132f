"""Declares the normalisations: L2, local response, instance, and the two softmaxes.

The output of each has the shape and type of its input.
"""

from __future__ import annotations

from typing import Final

from nnburst.executor.graph.declarations import (
    BOOL,
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
from nnburst.executor.graph.operation import Node, declare
from nnburst.executor.graph.tensor import TensorType
from nnburst.executor.operations.shape import UP_TO_4, require_ranks, resolve_axis
from nnburst.hal.enums import OperationType
from nnburst.hal.model import QUANTIZED_RANGES

# -- L2_NORMALIZATION, LOCAL_RESPONSE_NORMALIZATION, INSTANCE_NORMALIZATION ------------------------
# NNAPI: L2Normalization.cpp, LocalResponseNormalization.cpp, InstanceNormalization.cpp.
# DEVIATES: before 1.2 the first two took rank 4 only. Operations do not know the version of their model,
# so ranks 1 to 4 are accepted.

_AXIS: Final = control("axis", default=-1, since=V1_2)
_FLOATS: Final = [row(V1_0, T=F32, S=FLOAT32), row(V1_2, T=F16, S=FLOAT16)]


def _checked_dimensions(node: Node) -> tuple[int, ...]:
    require_ranks(node)
    dimensions = node.tensor("input").shape
    resolve_axis(node, len(dimensions))
    return dimensions


def _l2_shape(node: Node) -> list[TensorType]:
    dimensions, kind = _checked_dimensions(node), node.declared().type
    if kind not in QUANTIZED_RANGES:
        return [node.like_declared(dimensions)]
    low, high = QUANTIZED_RANGES[kind]
    return [TensorType(kind, dimensions, 1 / 128, (low + high + 1) // 2)]


declare(
    signature(
        OperationType.L2_NORMALIZATION,
        V1_0,
        "Divides slices along an axis by their Euclidean norm.",
        inputs=[data("input", rank=UP_TO_4), _AXIS],
        outputs=[data("output")],
        rows=rows(V1_0=[F32], V1_2=[F16, Q8], V1_3=[Q8S]),
        counts=(1, 2),
    ),
    shape=_l2_shape,
)


def _local_response_shape(node: Node) -> list[TensorType]:
    dimensions, radius = _checked_dimensions(node), int(node.value("radius"))
    node.require(radius >= 0, f"operand 'radius' is {radius}, expected ≥ 0")
    return [node.like_declared(dimensions)]


declare(
    signature(
        OperationType.LOCAL_RESPONSE_NORMALIZATION,
        V1_0,
        "Divides each element by a power of the energy of its neighbours along an axis.",
        inputs=[
            data("input", rank=UP_TO_4),
            control("radius"),
            control("bias", "S"),
            control("alpha", "S"),
            control("beta", "S"),
            _AXIS,
        ],
        outputs=[data("output")],
        rows=_FLOATS,
        counts=(5, 6),
    ),
    shape=_local_response_shape,
)


def _instance_shape(node: Node) -> list[TensorType]:
    require_ranks(node)
    return [node.like_declared(node.tensor("input").shape)]


declare(
    signature(
        OperationType.INSTANCE_NORMALIZATION,
        V1_2,
        "Gives every channel of every image a mean of beta and a standard deviation of gamma.",
        inputs=[
            data("input", rank=(4,)),
            control("gamma", "S"),
            control("beta", "S"),
            control("epsilon", "S"),
            control("nchw", BOOL),
        ],
        outputs=[data("output")],
        rows=[row(V1_2, T=F32, S=FLOAT32), row(V1_2, T=F16, S=FLOAT16)],
    ),
    shape=_instance_shape,
)


# -- SOFTMAX and LOG_SOFTMAX -----------------------------------------------------------------------
# NNAPI: Softmax.cpp, LogSoftmax.cpp.
# DEVIATES: before 1.2 SOFTMAX took ranks 2 and 4 only. Operations do not know the version of their model,
# so ranks 1 to 4 are accepted.


def _softmax_shape(node: Node) -> list[TensorType]:
    require_ranks(node)
    source = node.tensor("input").meta
    resolve_axis(node, len(source.dimensions))
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
    resolve_axis(node, len(dimensions))
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
