"""RELU, RELU1, RELU6, ELU, PRELU: linear above 0.

NNAPI: Activation.cpp, Elu.cpp, PRelu.cpp.
"""

from __future__ import annotations

from functools import lru_cache

import numpy as np

from nnburst.executor.graph.operation import Node, Run, operation
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
from nnburst.executor.graph.tensor import Array, TensorType
from nnburst.executor.reference.arithmetic.fixed_point import (
    activation_range,
    float_activation_range,
    multiply_by_quantized_multiplier,
    quantize_multiplier,
)
from nnburst.executor.reference.arithmetic.lookup import Quantization, look_up_pair
from nnburst.hal.enums import OperationType
from nnburst.hal.operand_types import QUANTIZED_RANGES
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


def _bind_clamp(node: Node, code: int) -> Run:
    x, out = node.tensor("input"), node.output()
    if x.type in QUANTIZED_RANGES:
        smallest, largest = activation_range(code, x.type, x.scale, x.zero_point)

        def run_quantized() -> None:
            np.clip(x.array, smallest, largest, out=out.array)

        return run_quantized
    low, high = float_activation_range(code)

    def run() -> None:
        # NNAPI: min(max(low, x), high) of a NaN is `low`; fmax ignores NaN the same way.
        np.fmax(x.array, low, out=out.array)
        np.minimum(out.array, high, out=out.array)

    return run


@operation(
    _rectifier(
        OperationType.RELU,
        "Rectified linear unit: negative elements become 0.",
    ),
    shape=_clamp_shape,
    zero_sized=True,
)
def relu(node: Node) -> Run:
    """Bind max(0, x)."""
    return _bind_clamp(node, 1)


@operation(
    _rectifier(
        OperationType.RELU1,
        "Clamps the elements to the range from -1 to 1.",
    ),
    shape=_clamp_shape,
    zero_sized=True,
)
def relu1(node: Node) -> Run:
    """Bind min(1, max(-1, x))."""
    return _bind_clamp(node, 2)


@operation(
    _rectifier(
        OperationType.RELU6,
        "Clamps the elements to the range from 0 to 6.",
    ),
    shape=_clamp_shape,
    zero_sized=True,
)
def relu6(node: Node) -> Run:
    """Bind min(6, max(0, x))."""
    return _bind_clamp(node, 3)


@operation(
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
def elu(node: Node) -> Run:
    """Bind max(0, x) + min(0, alpha * (exp(x) - 1)); NaN becomes 0."""
    x, out = node.tensor("input").array, node.output().array
    alpha = np.float32(node.value("alpha"))
    negative = node.scratch(x.shape, np.float32)

    def run() -> None:
        np.exp(x, out=negative)
        np.subtract(negative, 1, out=negative)
        np.multiply(negative, alpha, out=negative)
        # NNAPI: max(0, x) and min(0, x) of a NaN are 0; fmax and fmin ignore NaN the same way.
        np.fmin(negative, 0, out=negative)
        np.fmax(x, 0, out=out)
        np.add(out, negative, out=out)

    return run


@lru_cache(maxsize=64)
def _prelu_table(x: Quantization, alpha: Quantization, out: Quantization) -> Array:
    """Stored x, or x * alpha where x < 0, for every pair of bytes."""
    with np.errstate(all="ignore"):
        product = float(np.float32(x.scale) * np.float32(alpha.scale))
    centred = x.centred()[:, np.newaxis]
    positive = multiply_by_quantized_multiplier(centred, *quantize_multiplier(x.scale / out.scale))
    negative = multiply_by_quantized_multiplier(
        centred * alpha.centred(), *quantize_multiplier(product / out.scale)
    )
    return out.saturate(np.where(centred >= 0, positive, negative) + out.zero_point)


@operation(
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
def prelu(node: Node) -> Run:
    """Bind x where x >= 0, and x * alpha elsewhere (NaN included), broadcasting."""
    x, alpha, out = node.tensor("input"), node.tensor("alpha"), node.output()
    if x.type in QUANTIZED_RANGES:
        table = _prelu_table(*(Quantization.of(t) for t in (x, alpha, out)))
        return look_up_pair(node, table, x.array, alpha.array, out.array)
    positive = node.scratch(x.shape, np.bool_)

    def run() -> None:
        np.greater_equal(x.array, 0, out=positive)
        np.multiply(x.array, alpha.array, out=out.array)
        np.copyto(out.array, x.array, where=positive)

    return run
