"""RELU, RELU1, RELU6, LOGISTIC, TANH, ELU, HARD_SWISH, PRELU.

NNAPI: Activation.cpp, Elu.cpp, PRelu.cpp.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import lru_cache

import numpy as np

from nnburst.executor.reference.fixed_point import (
    activation_range,
    float_activation_range,
    input_radius,
    logistic,
    multiply_by_quantized_multiplier,
    quantize_multiplier,
    quantize_multiplier_greater_than_one,
    rounding_divide_by_pot,
    saturating_multiply_by_pot,
    srdhm,
    srdhm16,
    tanh,
)
from nnburst.executor.reference.lookup import Quantization, look_up, look_up_pair
from nnburst.executor.reference.operation import Node, Run, operation
from nnburst.executor.reference.shape_rules import (
    broadcast_shape,
    require_rank_up_to_4,
    same_shape,
    same_shape_up_to_rank_4,
    same_type,
)
from nnburst.executor.reference.signatures import (
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
from nnburst.executor.reference.tensor import Array, TensorType
from nnburst.hal.enums import OperandType, OperationType
from nnburst.hal.operand_types import DTYPES, QUANTIZED_RANGES
from nnburst.hal.signature import Signature

#: Integer bits of the fixed-point argument of LOGISTIC and TANH.
_INTEGER_BITS = 4


def _signature(
    type: OperationType,  # noqa: A002 - NNAPI's word
    summary: str,
    **types: Sequence[OperandType],
) -> Signature:
    return signature(
        type,
        V1_0,
        summary,
        inputs=[data("input", rank=(1, 2, 3, 4))],
        outputs=[data("output")],
        rows=rows(**types),
    )


def _table(values: Array, out: Quantization) -> Array:
    low, high = QUANTIZED_RANGES[out.type]
    return np.clip(values, low, high).astype(DTYPES[out.type])


def _bind_table(node: Node, table: Callable[[Quantization, Quantization], Array]) -> Run:
    x, out = node.tensor("input"), node.output()
    results = table(Quantization.of(x), Quantization.of(out))
    return look_up(node, results, x.array, out.array)


# Rectified linear units: clamps.


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
    _signature(
        OperationType.RELU,
        "Rectified linear unit: negative elements become 0.",
        V1_0=[F32, Q8],
        V1_2=[F16],
        V1_3=[Q8S],
    ),
    shape=_clamp_shape,
    zero_sized=True,
)
def relu(node: Node) -> Run:
    """Bind max(0, x)."""
    return _bind_clamp(node, 1)


@operation(
    _signature(
        OperationType.RELU1,
        "Clamps the elements to the range from -1 to 1.",
        V1_0=[F32, Q8],
        V1_2=[F16],
        V1_3=[Q8S],
    ),
    shape=_clamp_shape,
    zero_sized=True,
)
def relu1(node: Node) -> Run:
    """Bind min(1, max(-1, x))."""
    return _bind_clamp(node, 2)


@operation(
    _signature(
        OperationType.RELU6,
        "Clamps the elements to the range from 0 to 6.",
        V1_0=[F32, Q8],
        V1_2=[F16],
        V1_3=[Q8S],
    ),
    shape=_clamp_shape,
    zero_sized=True,
)
def relu6(node: Node) -> Run:
    """Bind min(6, max(0, x))."""
    return _bind_clamp(node, 3)


# Sigmoids: quantised, their result has one fixed quantisation.


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


def _sigmoid_of_bytes(
    x: Quantization, function: Callable[[Array, int], Array], fraction_bits: int
) -> Array:
    """The function of every stored value, with `fraction_bits` bits after the point.

    Arguments beyond the radius that four integer bits can hold give the limits (-1 or 0, and 1).
    """
    multiplier, left_shift = quantize_multiplier_greater_than_one(
        x.scale * (1 << (31 - _INTEGER_BITS))
    )
    radius = input_radius(_INTEGER_BITS, left_shift)
    centred = x.centred()
    within = np.clip(centred, -radius, radius)
    values = function(srdhm(within << min(left_shift, 31), multiplier), _INTEGER_BITS)
    result = rounding_divide_by_pot(values, 31 - fraction_bits)
    one = 1 << fraction_bits
    low = -one if function is tanh else 0
    return np.select([centred <= -radius, centred >= radius], [low, one], result)


@lru_cache(maxsize=64)
def _logistic_table(x: Quantization, out: Quantization) -> Array:
    return _table(_sigmoid_of_bytes(x, logistic, 8) + out.zero_point, out)


@lru_cache(maxsize=64)
def _tanh_table(x: Quantization, out: Quantization) -> Array:
    return _table(_sigmoid_of_bytes(x, tanh, 7) + out.zero_point, out)


@operation(
    _signature(
        OperationType.LOGISTIC,
        "Logistic sigmoid 1 / (1 + exp(-x)).",
        V1_0=[F32, Q8],
        V1_2=[F16],
        V1_3=[Q8S],
    ),
    shape=_logistic_shape,
    zero_sized=True,
)
def logistic_sigmoid(node: Node) -> Run:
    """Bind 1 / (1 + exp(-x))."""
    x, out = node.tensor("input"), node.output().array
    if x.type in QUANTIZED_RANGES:
        return _bind_table(node, _logistic_table)

    def run() -> None:
        np.negative(x.array, out=out)
        np.exp(out, out=out)
        np.add(out, 1, out=out)
        np.reciprocal(out, out=out)

    return run


@operation(
    _signature(
        OperationType.TANH,
        "Hyperbolic tangent.",
        V1_0=[F32],
        V1_2=[F16, Q8],
        V1_3=[Q8S],
    ),
    shape=_tanh_shape,
    zero_sized=True,
)
def hyperbolic_tangent(node: Node) -> Run:
    """Bind tanh(x)."""
    x, out = node.tensor("input"), node.output().array
    if x.type in QUANTIZED_RANGES:
        return _bind_table(node, _tanh_table)

    def run() -> None:
        np.tanh(x.array, out=out)

    return run


# Units with a slope.


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


def _to_int16(multiplier: int) -> int:
    return min((multiplier + (1 << 15)) >> 16, 32767)


@lru_cache(maxsize=64)
def _hard_swish_table(x: Quantization, out: Quantization) -> Array:
    """Stored x * clamp(x + 3, 0, 6) / 6 of every byte, in 16-bit arithmetic.

    The ratios of scales are float32 quotients, unlike everywhere else.
    """
    with np.errstate(all="ignore"):
        fine_scale = np.float32(1 / 128) * np.float32(x.scale)
        out_multiplier, out_shift = quantize_multiplier(float(fine_scale / np.float32(out.scale)))
        relu_multiplier, relu_shift = quantize_multiplier(float(fine_scale / np.float32(3 / 32768)))
    fine = x.centred() << 7
    unscaled = srdhm16(fine, _to_int16(out_multiplier))
    gate = fine
    if relu_shift > 0:
        gate = saturating_multiply_by_pot(gate, relu_shift - 1, bits=16)
    gate = srdhm16(gate, _to_int16(relu_multiplier))
    if relu_shift > 0:
        gate = saturating_multiply_by_pot(gate, 1, bits=16)
    elif relu_shift < 0:
        gate = rounding_divide_by_pot(gate, -relu_shift)
    product = ((gate + 32768) >> 1) * unscaled
    truncated = (product + ((product >> 63) & 32767)) >> 15
    return _table(rounding_divide_by_pot(truncated, max(-out_shift, 0)) + out.zero_point, out)


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


@operation(
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
def hard_swish(node: Node) -> Run:
    """Bind x * clamp(x + 3, 0, 6) / 6."""
    x, out = node.tensor("input"), node.output().array
    if x.type in QUANTIZED_RANGES:
        return _bind_table(node, _hard_swish_table)

    def run() -> None:
        np.add(x.array, 3, out=out)
        np.clip(out, 0, 6, out=out)
        np.multiply(out, x.array, out=out)
        np.divide(out, 6, out=out)

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
    return _table(np.where(centred >= 0, positive, negative) + out.zero_point, out)


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
