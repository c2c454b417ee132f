"""ADD, SUB, MUL, DIV, MAXIMUM, MINIMUM, POW: two tensors, element by element, broadcasting.

NNAPI: Broadcast.cpp, MaximumMinimum.cpp, Pow.cpp.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import lru_cache

import numpy as np

from nnburst.executor.graph.operation import Node, Run, operation
from nnburst.executor.graph.shape_rules import broadcast_shape, require_rank_up_to_4
from nnburst.executor.graph.signatures import (
    F16,
    F32,
    I32,
    Q8,
    Q8S,
    V1_0,
    V1_1,
    V1_2,
    control,
    data,
    rows,
    signature,
)
from nnburst.executor.graph.tensor import Array, TensorType
from nnburst.executor.reference.arithmetic.fixed_point import (
    activation_range,
    all_stored_values,
    float_activation_range,
    multiply_by_quantized_multiplier,
    quantize_multiplier_smaller_than_one,
    requantize,
)
from nnburst.executor.reference.arithmetic.lookup import Quantization, look_up_pair
from nnburst.hal.enums import ErrorStatus, OperandType, OperationType
from nnburst.hal.errors import InvalidArgument
from nnburst.hal.model import Operand
from nnburst.hal.operand_types import DTYPES, QUANTIZED_RANGES
from nnburst.hal.signature import Check, Match

#: Bits by which quantised ADD and SUB refine both terms before they are scaled to one step.
_REFINEMENT = 20

PairTable = Callable[[Quantization, Quantization, Quantization, int], Array]


def _rank_check(type: OperationType) -> Check:  # noqa: A002 - NNAPI's word
    def check(_: Match, inputs: Sequence[Operand], __: Sequence[Operand]) -> None:
        ranks = [len(operand.dimensions) for operand in inputs[:2]]
        # NNAPI: one unknown rank leaves the rule to execution.
        if min(ranks) > 0 and max(ranks) > 4:
            raise InvalidArgument(
                f"validation:P4: {type.name}: operands 'input0' and 'input1' have ranks {ranks}, at most 4"
            )

    return check


def _check_mul(match: Match, inputs: Sequence[Operand], outputs: Sequence[Operand]) -> None:
    _rank_check(OperationType.MUL)(match, inputs, outputs)
    if inputs[0].type in QUANTIZED_RANGES:
        with np.errstate(over="ignore"):
            product = np.float32(inputs[0].scale) * np.float32(inputs[1].scale)
        if not np.float32(outputs[0].scale) > product:
            raise InvalidArgument(
                f"validation:P4: MUL: operand 'output' has scale {outputs[0].scale},"
                f" which must exceed the product {product} of the inputs' scales"
            )


def _arithmetic_shape(node: Node) -> list[TensorType]:
    require_rank_up_to_4(node, "input0", "input1")
    return broadcast_shape(node)


def _divide_shape(node: Node) -> list[TensorType]:
    # NNAPI: validation lets the type through, the kernel does not have it.
    node.require(
        node.tensor("input0").type != Q8S,
        f"operand 'input0' is {Q8S.name}, which DIV does not take",
    )
    return _arithmetic_shape(node)


_INPUTS = (data("input0"), data("input1"), control("activation"))
_OUTPUTS = (data("output"),)


@lru_cache(maxsize=64)
def _sum_table(
    sign: int, x: Quantization, y: Quantization, out: Quantization, activation: int
) -> Array:
    """Stored x + sign * y for every pair of bytes.

    Both terms are brought to the step of twice the larger scale, refined by 20 bits.
    """
    step = 2 * max(x.scale, y.scale)
    x_multiplier, x_shift = quantize_multiplier_smaller_than_one(x.scale / step)
    y_multiplier, y_shift = quantize_multiplier_smaller_than_one(y.scale / step)
    multiplier, shift = quantize_multiplier_smaller_than_one(
        step / ((1 << _REFINEMENT) * out.scale)
    )
    a = multiply_by_quantized_multiplier(x.centred() << _REFINEMENT, x_multiplier, x_shift)
    # The multiplier is negated, not the product: ties of negative products round the other way.
    b = multiply_by_quantized_multiplier(y.centred() << _REFINEMENT, sign * y_multiplier, y_shift)
    total = a[:, np.newaxis] + b[np.newaxis, :]
    return _stored(multiply_by_quantized_multiplier(total, multiplier, shift), out, activation)


@lru_cache(maxsize=64)
def _product_table(x: Quantization, y: Quantization, out: Quantization, activation: int) -> Array:
    """Stored x * y for every pair of bytes."""
    with np.errstate(all="ignore"):
        product = float(np.float32(x.scale) * np.float32(y.scale))
    multiplier, shift = quantize_multiplier_smaller_than_one(product / out.scale)
    products = x.centred()[:, np.newaxis] * y.centred()[np.newaxis, :]
    return _stored(multiply_by_quantized_multiplier(products, multiplier, shift), out, activation)


def _stored(values: Array, out: Quantization, activation: int) -> Array:
    low, high = activation_range(activation, out.type, out.scale, out.zero_point)
    table: Array = np.clip(values + out.zero_point, low, high).astype(DTYPES[out.type])
    return table


def _bind_quantized(node: Node, table: PairTable, activation: int = 0) -> Run:
    x, y, out = node.tensor("input0"), node.tensor("input1"), node.output()
    results = table(Quantization.of(x), Quantization.of(y), Quantization.of(out), activation)
    return look_up_pair(node, results, x.array, y.array, out.array)


def _bind_arithmetic(node: Node, ufunc: np.ufunc, table: PairTable) -> Run:
    if node.output().type in QUANTIZED_RANGES:
        return _bind_quantized(node, table, node.value("activation"))
    if node.output().type == I32:
        _require_no_activation(node)
        x, y, out = _arrays(node)
        return lambda: ufunc(x, y, out=out)
    return _bind_float(node, ufunc)


def _bind_float(node: Node, ufunc: np.ufunc) -> Run:
    x, y, out = _arrays(node)
    low, high = float_activation_range(node.value("activation"))

    def run() -> None:
        ufunc(x, y, out=out)
        np.clip(out, low, high, out=out)

    return run


def _require_no_activation(node: Node) -> None:
    code = node.value("activation")
    node.require(code == 0, f"operand 'activation' is {code}, expected 0 (NONE) for TENSOR_INT32")


def _arrays(node: Node) -> tuple[Array, Array, Array]:
    x, y = node.inputs[:2]
    if x is None or y is None:
        raise node.failure("an input tensor is omitted")
    return x.array, y.array, node.output().array


@operation(
    signature(
        OperationType.ADD,
        V1_0,
        "Adds two tensors element by element, broadcasting.",
        inputs=_INPUTS,
        outputs=_OUTPUTS,
        rows=rows(V1_0=[F32, Q8], V1_2=[F16], V1_3=[Q8S, I32]),
        check=_rank_check(OperationType.ADD),
    ),
    shape=_arithmetic_shape,
    zero_sized=True,
)
def add(node: Node) -> Run:
    """Bind x + y; int32 wraps."""
    return _bind_arithmetic(node, np.add, lambda *key: _sum_table(1, *key))


@operation(
    signature(
        OperationType.SUB,
        V1_1,
        "Subtracts the second tensor from the first, broadcasting.",
        inputs=_INPUTS,
        outputs=_OUTPUTS,
        rows=rows(V1_1=[F32], V1_2=[F16, Q8], V1_3=[Q8S, I32]),
        check=_rank_check(OperationType.SUB),
    ),
    shape=_arithmetic_shape,
    zero_sized=True,
)
def sub(node: Node) -> Run:
    """Bind x - y; int32 wraps."""
    return _bind_arithmetic(node, np.subtract, lambda *key: _sum_table(-1, *key))


@operation(
    signature(
        OperationType.MUL,
        V1_0,
        "Multiplies two tensors element by element, broadcasting.",
        inputs=_INPUTS,
        outputs=_OUTPUTS,
        rows=rows(V1_0=[F32, Q8], V1_2=[F16], V1_3=[Q8S, I32]),
        check=_check_mul,
    ),
    shape=_arithmetic_shape,
    zero_sized=True,
)
def mul(node: Node) -> Run:
    """Bind x * y; int32 wraps."""
    return _bind_arithmetic(node, np.multiply, _product_table)


@operation(
    signature(
        OperationType.DIV,
        V1_1,
        "Divides the first tensor by the second, broadcasting; int32 rounds down.",
        inputs=_INPUTS,
        outputs=_OUTPUTS,
        rows=rows(V1_1=[F32], V1_2=[F16], V1_3=[I32, Q8S]),
        check=_rank_check(OperationType.DIV),
    ),
    shape=_divide_shape,
    zero_sized=True,
)
def div(node: Node) -> Run:
    """Bind x / y; an int32 divisor of 0 gives 0."""
    if node.output().type == F32:
        return _bind_float(node, np.divide)
    _require_no_activation(node)
    x, y, out = _arrays(node)
    # numpy looks for zeros before it divides: a divisor that changes in between would kill us.
    divisor = node.scratch(y.shape, np.int32)

    def run() -> None:
        np.copyto(divisor, y)
        np.floor_divide(x, divisor, out=out)

    return run


def _extremum_rows() -> dict[str, list[OperandType]]:
    return {"V1_2": [F16, F32, I32, Q8], "V1_3": [Q8S]}


@lru_cache(maxsize=64)
def _extremum_table(
    ufunc: np.ufunc, x: Quantization, y: Quantization, out: Quantization, _: int
) -> Array:
    """The larger or smaller of both inputs, each requantised to the output, for every pair."""
    columns = [
        requantize(
            all_stored_values(side.type),
            side.zero_point,
            side.scale,
            out.scale,
            out.zero_point,
            out.type,
        )
        for side in (x, y)
    ]
    table: Array = ufunc.outer(*columns)
    return table


def _bind_extremum(node: Node, integer: np.ufunc, better: np.ufunc) -> Run:
    """Bind `y if better(y, x) else x`: with NaN, the first operand stays."""
    x, y, out = _arrays(node)
    if node.output().type in QUANTIZED_RANGES:
        return _bind_quantized(node, lambda *key: _extremum_table(integer, *key))
    if node.output().type == I32:
        return lambda: integer(x, y, out=out)
    second = node.scratch(out.shape, np.bool_)

    def run() -> None:
        better(y, x, out=second)
        np.copyto(out, x)
        np.copyto(out, y, where=second)

    return run


@operation(
    signature(
        OperationType.MAXIMUM,
        V1_2,
        "The larger of two tensors, element by element, broadcasting.",
        inputs=_INPUTS[:2],
        outputs=_OUTPUTS,
        rows=rows(**_extremum_rows()),
    ),
    shape=broadcast_shape,
    omitted_status=ErrorStatus.INVALID_ARGUMENT,
)
def maximum(node: Node) -> Run:
    """Bind the larger of x and y."""
    return _bind_extremum(node, np.maximum, np.greater)


@operation(
    signature(
        OperationType.MINIMUM,
        V1_2,
        "The smaller of two tensors, element by element, broadcasting.",
        inputs=_INPUTS[:2],
        outputs=_OUTPUTS,
        rows=rows(**_extremum_rows()),
    ),
    shape=broadcast_shape,
    omitted_status=ErrorStatus.INVALID_ARGUMENT,
)
def minimum(node: Node) -> Run:
    """Bind the smaller of x and y."""
    return _bind_extremum(node, np.minimum, np.less)


@operation(
    signature(
        OperationType.POW,
        V1_2,
        "Raises the first tensor to the power of the second, broadcasting.",
        inputs=(data("base"), data("exponent")),
        outputs=_OUTPUTS,
        rows=rows(V1_2=[F16, F32]),
    ),
    shape=broadcast_shape,
    omitted_status=ErrorStatus.INVALID_ARGUMENT,
)
def power(node: Node) -> Run:
    """Bind x ** y; a negative base with a broken exponent gives NaN."""
    x, y, out = _arrays(node)

    def run() -> None:
        np.power(x, y, out=out)

    return run
