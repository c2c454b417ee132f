"""Translates a .tflite file's operators on single elements, reductions and normalisations."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final

import numpy as np

from nnburst.hal.enums import OperandType, OperationType
from nnburst.importer.subgraph import Value
from nnburst.importer.tensors import QUANT8, TensorType, constant_of, integers
from nnburst.importer.tflite.operator import (
    BOOL8,
    FLOAT,
    INT32,
    TABLE,
    Operator,
    Translate,
    operator,
)

_T = OperandType


@operator("DEQUANTIZE")
def _dequantize(op: Operator) -> None:
    x = op.input()
    if x.constant is not None:
        op.becomes(op.real_constant(x.constant))
        return
    if x.type.type == _T.TENSOR_FLOAT16:
        op.emit(OperationType.CAST, [x])
        return
    op.require_type(x, QUANT8, "input")
    op.emit(OperationType.DEQUANTIZE, [x])


@operator("DENSIFY")
def _densify(op: Operator) -> None:
    """Pass the input on: sparse constants are made dense when they are read."""
    x = op.input()
    op.require(x.constant is not None, "the input is computed, expected a constant")
    op.becomes(x)


@operator("QUANTIZE")
def _quantize(op: Operator) -> None:
    """Quantise; integers are requantised through real numbers unless their quantisation stays the same.

    NNAPI quantises real numbers only. With equal scales, as at the uint8 inputs and outputs of an int8
    network, conversion through float32 is exact.
    """
    x, kind = op.input(), op.output_type()
    op.require_type(x, FLOAT | QUANT8, "input")
    op.require(kind.type in QUANT8, f"output is {kind.type.name}, expected 8 bits")
    if x.type.is_float:
        op.emit(OperationType.QUANTIZE, [x])
    elif x.type.type == kind.type and x.type.same_quantization(kind):
        op.becomes(x)
    else:
        requantize(op, x)


def requantize(op: Operator, x: Value) -> None:
    """Set the operator's output to `x`, requantised as the output."""
    real = op.temporary(TensorType(_T.TENSOR_FLOAT32, x.type.dimensions))
    op.emit(OperationType.DEQUANTIZE, [x], [real])
    op.emit(OperationType.QUANTIZE, [real])


_O = OperationType
_Types = frozenset[OperandType]


@dataclass(frozen=True, slots=True)
class _Kind:
    """The NNAPI operation that an operator becomes, the types that it takes, and its options."""

    operation: OperationType
    types: _Types
    options: str = ""


_UNARY: Final = {
    "ABS": _Kind(_O.ABS, FLOAT | INT32),
    "NEG": _Kind(_O.NEG, FLOAT | INT32),
    "EXP": _Kind(_O.EXP, FLOAT),
    "LOG": _Kind(_O.LOG, FLOAT),
    "SIN": _Kind(_O.SIN, FLOAT),
    "SQRT": _Kind(_O.SQRT, FLOAT),
    "RSQRT": _Kind(_O.RSQRT, FLOAT | QUANT8),
    "FLOOR": _Kind(_O.FLOOR, FLOAT),
    "LOGISTIC": _Kind(_O.LOGISTIC, FLOAT | QUANT8),
    "TANH": _Kind(_O.TANH, FLOAT | QUANT8),
    "HARD_SWISH": _Kind(_O.HARD_SWISH, FLOAT | QUANT8),
    "LOGICAL_NOT": _Kind(_O.LOGICAL_NOT, BOOL8),
}

_EVERY: Final = FLOAT | QUANT8 | INT32
_BINARY: Final = {
    "ADD": _Kind(_O.ADD, _EVERY, "AddOptions"),
    "SUB": _Kind(_O.SUB, _EVERY, "SubOptions"),
    "MUL": _Kind(_O.MUL, _EVERY, "MulOptions"),
    "DIV": _Kind(
        _O.DIV, FLOAT, "DivOptions"
    ),  # of integers NNAPI rounds down, the file toward zero
    "MAXIMUM": _Kind(_O.MAXIMUM, _EVERY),
    "MINIMUM": _Kind(_O.MINIMUM, _EVERY),
    "POW": _Kind(_O.POW, FLOAT),
    "EQUAL": _Kind(_O.EQUAL, _EVERY | BOOL8),
    "NOT_EQUAL": _Kind(_O.NOT_EQUAL, _EVERY | BOOL8),
    "GREATER": _Kind(_O.GREATER, _EVERY | BOOL8),
    "GREATER_EQUAL": _Kind(_O.GREATER_EQUAL, _EVERY | BOOL8),
    "LESS": _Kind(_O.LESS, _EVERY | BOOL8),
    "LESS_EQUAL": _Kind(_O.LESS_EQUAL, _EVERY | BOOL8),
    "LOGICAL_AND": _Kind(_O.LOGICAL_AND, BOOL8),
    "LOGICAL_OR": _Kind(_O.LOGICAL_OR, BOOL8),
    "PRELU": _Kind(_O.PRELU, FLOAT | QUANT8),
}
_RELU: Final = {"RELU": _O.RELU, "RELU_N1_TO_1": _O.RELU1, "RELU6": _O.RELU6}


def _unary(kind: _Kind) -> Translate:
    def translate(op: Operator) -> None:
        op.require_type(op.input(), kind.types, "input")
        op.emit(kind.operation, [op.input()])

    return translate


def _binary(kind: _Kind) -> Translate:
    def translate(op: Operator) -> None:
        x, y = _operands(op)
        op.require_type(x, kind.types, "input 0")
        op.require_type(y, frozenset({x.type.type}), "input 1")
        if kind.operation == _O.MUL and x.type.is_quantized:
            _require_mul_scale(op, x, y)
        activation = [op.activation(op.options(kind.options))] if kind.options else []
        if x.type.type in INT32:
            op.require(not any(activation), "an activation of integers is fused, expected NONE")
        op.emit(kind.operation, [x, y, *activation])

    return translate


def _operands(op: Operator) -> tuple[Value, Value]:
    """Both inputs; a quantised constant is dequantised if the other input is real."""
    x, y = op.input(0), op.input(1)
    return op.real_input(0, y), op.real_input(1, x)


def _require_mul_scale(op: Operator, x: Value, y: Value) -> None:
    """NNAPI: MUL, "output scale must be greater than the product of the input scales"."""
    product = np.float32(x.type.scale) * np.float32(y.type.scale)
    scale = np.float32(op.output_type().scale)
    op.require(
        bool(scale > product),
        f"output scale {scale} does not exceed the product {product} of the inputs' scales",
    )


TABLE.update({name: _unary(kind) for name, kind in _UNARY.items()})
TABLE.update({name: _binary(kind) for name, kind in _BINARY.items()})


@operator(*_RELU)
def _relu(op: Operator) -> None:
    """Append a RELU; an output with another quantisation than the input is requantised afterwards."""
    x = op.input()
    op.require_type(x, FLOAT | QUANT8, "input")
    kind = op.output_type()
    if kind.same_quantization(x.type):
        op.emit(_RELU[op.name], [x])
        return
    limited = op.temporary(replace(x.type, dimensions=kind.dimensions))
    op.emit(_RELU[op.name], [x], [limited])
    requantize(op, limited)


@operator("ELU")
def _elu(op: Operator) -> None:
    op.require_type(op.input(), FLOAT, "input")
    op.emit(_O.ELU, [op.input(), op.real(1.0, op.input())])


@operator("LEAKY_RELU")
def _leaky_relu(op: Operator) -> None:
    """Translate to PRELU with one slope for all elements."""
    x = op.input()
    op.require_type(x, FLOAT | QUANT8, "input")
    slope = float(op.options("LeakyReluOptions").Alpha())
    kind = TensorType(x.type.type, (1,))
    if x.type.is_quantized:
        op.require(slope > 0, f"slope {slope}, expected more than 0 for quantised tensors")
        kind, slope = replace(kind, scale=slope), 1.0
    op.emit(_O.PRELU, [x, constant_of(kind, [slope])])


@operator("SQUARE")
def _square(op: Operator) -> None:
    op.require_type(op.input(), FLOAT | INT32, "input")
    op.emit(_O.MUL, [op.input(), op.input(), 0])


@operator("SQUARED_DIFFERENCE")
def _squared_difference(op: Operator) -> None:
    x, y = _operands(op)
    op.require_type(x, FLOAT | INT32, "input 0")
    difference = op.temporary(op.output_type())
    op.emit(_O.SUB, [x, y, 0], [difference])
    op.emit(_O.MUL, [difference, difference, 0])


@operator("ADD_N")
def _add_n(op: Operator) -> None:
    values = op.inputs()
    op.require(len(values) > 1, f"{len(values)} inputs, expected 2 or more")
    op.require_type(values[0], FLOAT | INT32, "input 0")
    total = values[0]
    for value in values[1:-1]:
        further = op.temporary(op.output_type())
        op.emit(_O.ADD, [total, value, 0], [further])
        total = further
    op.emit(_O.ADD, [total, values[-1], 0])


@operator("SELECT")
def _select(op: Operator) -> None:
    condition, x, y = _to_select(op)
    shapes = {value.type.dimensions for value in (condition, x, y)}
    op.require(len(shapes) == 1, f"shapes {sorted(shapes)} differ, SELECT does not broadcast")
    op.emit(_O.SELECT, [condition, x, y])


@operator("SELECT_V2")
def _select_v2(op: Operator) -> None:
    """Repeat smaller inputs before SELECT, which does not broadcast in NNAPI."""
    condition, x, y = _to_select(op)
    dims = op.output_type().dimensions
    shapes = [value.type.dimensions for value in (condition, x, y)]
    op.require(
        _broadcast_shape(shapes) == dims, f"shapes {shapes} do not broadcast to {list(dims)}"
    )
    if condition.type.dimensions != dims:
        op.graph.budget.spend(4 * op.output_type().elements)
        kind = TensorType(_T.TENSOR_BOOL8, dims)
        wide = op.temporary(kind)
        op.emit(_O.LOGICAL_OR, [condition, constant_of(kind, np.zeros(dims))], [wide])
        condition = wide
    op.emit(_O.SELECT, [condition, _repeated(op, x, dims), _repeated(op, y, dims)])


def _to_select(op: Operator) -> tuple[Value, Value, Value]:
    condition, x, y = op.input(0), op.input(1), op.input(2)
    op.require_type(condition, BOOL8, "condition")
    op.require_type(x, _EVERY, "input 1")
    return condition, x, y


def _broadcast_shape(shapes: Sequence[tuple[int, ...]]) -> tuple[int, ...] | None:
    """The shape that these shapes broadcast to; None if they do not."""
    try:
        return np.broadcast_shapes(*shapes)
    except ValueError:
        return None


def _repeated(op: Operator, x: Value, dims: tuple[int, ...]) -> Value:
    """Repeat a value to extents that it broadcasts to."""
    padded = (*[1] * (len(dims) - len(x.type.dimensions)), *x.type.dimensions)
    if padded != x.type.dimensions:
        shaped = op.temporary(replace(x.type, dimensions=padded))
        op.emit(_O.RESHAPE, [x, integers(padded)], [shaped])
        x = shaped
    if padded == dims:
        return x
    filled = op.temporary(replace(x.type, dimensions=dims))
    times = [want // have for want, have in zip(dims, padded, strict=True)]
    op.emit(_O.TILE, [x, integers(times)], [filled])
    return filled


@operator("CAST")
def _cast(op: Operator) -> None:
    x, kind = op.input(), op.output_type()
    plain = FLOAT | INT32 | frozenset({OperandType.TENSOR_QUANT8_ASYMM})
    op.require(
        (x.type.type in plain and kind.type in plain) or x.type.type == kind.type,
        f"{x.type.type.name} to {kind.type.name} is not a conversion of NNAPI",
    )
    # NNAPI clamps, the file keeps the lowest bits.
    op.require(
        x.type.type not in INT32 or not kind.is_quantized, "int32 to 8 bits, expected to keep 32"
    )
    op.emit(_O.CAST, [x])


_REDUCTIONS: Final = {
    "MEAN": (OperationType.MEAN, FLOAT | QUANT8),
    "SUM": (OperationType.REDUCE_SUM, FLOAT),
    "REDUCE_PROD": (OperationType.REDUCE_PROD, FLOAT),
    "REDUCE_MAX": (OperationType.REDUCE_MAX, FLOAT | QUANT8),
    "REDUCE_MIN": (OperationType.REDUCE_MIN, FLOAT | QUANT8),
    "REDUCE_ANY": (OperationType.REDUCE_ANY, BOOL8),
    "REDUCE_ALL": (OperationType.REDUCE_ALL, BOOL8),
}
_POSITIONS: Final = {"ARG_MAX": OperationType.ARGMAX, "ARG_MIN": OperationType.ARGMIN}


@operator(*_REDUCTIONS)
def _reduce(op: Operator) -> None:
    kind, types = _REDUCTIONS[op.name]
    x = op.input(0)
    op.require_type(x, types, "input")
    axes = [op.axis(axis, len(x.type.dimensions)) for axis in op.integers(1, "axes")]
    keep = bool(op.options("ReducerOptions").KeepDims())
    flag = int(keep) if kind == OperationType.MEAN else keep  # NNAPI: INT32 for MEAN only
    op.emit(kind, [x, integers(axes), flag])


@operator(*_POSITIONS)
def _position(op: Operator) -> None:
    x = op.input(0)
    op.require_type(x, FLOAT | QUANT8 | INT32, "input")
    op.require_type(Value(op.output_type()), INT32, "output")
    axis = op.axis(op.integer(1, "axis"), len(x.type.dimensions))
    op.emit(_POSITIONS[op.name], [x, axis])


@operator("TOPK_V2")
def _top_k(op: Operator) -> None:
    """Translate with the last axis reversed: of equal elements NNAPI takes the last, the file the first."""
    x = op.input(0)
    op.require_type(x, FLOAT | QUANT8 | INT32, "input")
    last = len(x.type.dimensions) - 1
    turned = op.temporary(x.type)
    op.emit(OperationType.REVERSE, [x, integers([last])], [turned])
    places = op.temporary(op.output_type(1))
    values = op.output(0)
    op.emit(OperationType.TOPK_V2, [turned, op.integer(1, "k")], [values, places])
    end = integers([x.type.dimensions[last] - 1])
    op.emit(OperationType.SUB, [end, places, 0], [op.output(1)])


@operator("SOFTMAX")
def _softmax(op: Operator) -> None:
    op.require_type(op.input(), FLOAT | QUANT8, "input")
    beta = op.real(op.options("SoftmaxOptions").Beta(), op.input())
    op.emit(OperationType.SOFTMAX, [op.input(), beta])


@operator("LOG_SOFTMAX")
def _log_softmax(op: Operator) -> None:
    op.require_type(op.input(), FLOAT, "input")
    op.emit(OperationType.LOG_SOFTMAX, [op.input(), op.real(1.0, op.input()), -1])


@operator("L2_NORMALIZATION")
def _l2_normalization(op: Operator) -> None:
    op.require_type(op.input(), FLOAT | QUANT8, "input")
    activation = op.activation(op.options("L2NormOptions"))
    op.require(activation == 0, "an activation is fused, expected NONE")
    op.emit(OperationType.L2_NORMALIZATION, [op.input()])


@operator("LOCAL_RESPONSE_NORMALIZATION")
def _local_response_normalization(op: Operator) -> None:
    x = op.input()
    op.require_type(x, FLOAT, "input")
    options = op.options("LocalResponseNormalizationOptions")
    numbers = [op.real(value, x) for value in (options.Bias(), options.Alpha(), options.Beta())]
    op.emit(OperationType.LOCAL_RESPONSE_NORMALIZATION, [x, options.Radius(), *numbers])
