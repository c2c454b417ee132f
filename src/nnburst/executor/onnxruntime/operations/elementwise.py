"""Element by element: arithmetic, comparisons, activations, conversions."""

from __future__ import annotations

from typing import Final

import numpy as np

from nnburst.executor.graph.tensor import TensorType
from nnburst.executor.graph.translation import require
from nnburst.executor.onnxruntime.fusing import error_function_of, hard_sigmoid_of
from nnburst.executor.onnxruntime.graph import ELEMENTS, Order, StoredValue
from nnburst.executor.onnxruntime.lowering import NCHW, OnnxLowering, lowers
from nnburst.hal.enums import OperandType, OperationType

_T = OperandType
_FLOAT: Final = _T.TENSOR_FLOAT32
_INT: Final = _T.TENSOR_INT32


def _binary(op: OnnxLowering, kind: str, x: StoredValue, y: StoredValue) -> StoredValue:
    """An operator of two values, broadcasting."""
    names, order = op.together(x, y)
    return op.emit(kind, names, op.result(), order)


_ARITHMETIC: Final = {
    OperationType.ADD: "Add",
    OperationType.SUB: "Sub",
    OperationType.MUL: "Mul",
    OperationType.DIV: "Div",
}


@lowers(*_ARITHMETIC)
def arithmetic(op: OnnxLowering) -> StoredValue:
    """ADD, SUB, MUL, DIV."""
    kind = op.node.type
    # Division of integers rounds down in NNAPI and must survive a divisor of 0.
    require(kind is not OperationType.DIV or op.result().type is _FLOAT, "DIV of INT32")
    x, y = op.value("input0"), op.value("input1")
    names, order = op.together(x, y)
    out = op.emit(_ARITHMETIC[kind], names, op.result(), order)
    if kind is OperationType.MUL:
        out = _product(op, out, _by_channel(op, (x, y), names, order))
    elif kind is OperationType.ADD:
        out = _sum(op, out, _by_channel(op, (x, y), names, order))
    return op.activated(out)


def _by_channel(
    op: OnnxLowering, values: tuple[StoredValue, StoredValue], names: list[str], order: Order
) -> tuple[str, str] | None:
    """An image, and a constant with a number for each of its channels; None for other operands."""
    for image, numbers in ((0, 1), (1, 0)):
        x, c = values[image], values[numbers]
        fits = x.shape == op.result().dimensions and c.shape[-1:] == x.shape[-1:]
        constant = op.graph.is_constant(c) and not op.graph.is_constant(x)
        if order == NCHW and fits and constant and c.size == x.shape[3] > 1:
            return names[image], names[numbers]
    return None


def _product(op: OnnxLowering, out: StoredValue, scaled: tuple[str, str] | None) -> StoredValue:
    of = error_function_of(op.graph, out.name)
    if of is not None:
        return op.emit("Erf", [of], out.meta, out.order)
    if scaled is not None and op.result().type is _FLOAT:
        op.graph.scaled[out.name] = scaled
    return out


def _sum(op: OnnxLowering, out: StoredValue, moved: tuple[str, str] | None) -> StoredValue:
    """An image that was scaled and is moved by channel is normalised: the engine has one operator."""
    scaled = None if moved is None else op.graph.scaled.get(moved[0])
    if moved is None or scaled is None:
        return out
    count = out.shape[3]
    image, factors = scaled
    columns = [op.graph.vector(name) for name in (factors, moved[1])]
    for number in (0, 1):  # mean and variance
        column = np.full(count, number, np.float32)
        columns.append(op.plain(op.constant(column)))
    names = [image, *columns]
    return op.emit("BatchNormalization", names, out.meta, out.order, epsilon=0.0)


@lowers(OperationType.MAXIMUM, OperationType.MINIMUM)
def extremum(op: OnnxLowering) -> StoredValue:
    """MAXIMUM, MINIMUM."""
    kind = "Max" if op.node.type is OperationType.MAXIMUM else "Min"
    out = _binary(op, kind, op.value("input0"), op.value("input1"))
    found = hard_sigmoid_of(op.graph, out.name) if kind == "Min" else None
    if found is None:
        return out
    x, alpha, beta = found
    return op.emit("HardSigmoid", [x], out.meta, out.order, alpha=alpha, beta=beta)


@lowers(OperationType.POW)
def power(op: OnnxLowering) -> StoredValue:
    """POW."""
    op.require_real()
    return _binary(op, "Pow", op.value("base"), op.value("exponent"))


_UNARY: Final = {
    OperationType.EXP: "Exp",
    OperationType.LOG: "Log",
    OperationType.SIN: "Sin",
    OperationType.SQRT: "Sqrt",
    OperationType.FLOOR: "Floor",
    OperationType.LOGISTIC: "Sigmoid",
    OperationType.TANH: "Tanh",
    OperationType.HARD_SWISH: "HardSwish",
    OperationType.ABS: "Abs",
    OperationType.NEG: "Neg",
    OperationType.LOGICAL_NOT: "Not",
}


@lowers(*_UNARY)
def unary(op: OnnxLowering) -> StoredValue:
    """Operators with the same meaning."""
    return op.same(_UNARY[op.node.type], op.value("input"))


@lowers(OperationType.RSQRT)
def reciprocal_root(op: OnnxLowering) -> StoredValue:
    """RSQRT."""
    op.require_real()
    return op.same("Reciprocal", op.same("Sqrt", op.value("input")))


_CLAMPS: Final = {OperationType.RELU: 1, OperationType.RELU1: 2, OperationType.RELU6: 3}


@lowers(*_CLAMPS)
def clamp(op: OnnxLowering) -> StoredValue:
    """RELU, RELU1, RELU6."""
    return op.bounded(op.value("input"), _CLAMPS[op.node.type])


@lowers(OperationType.ELU)
def elu(op: OnnxLowering) -> StoredValue:
    """ELU."""
    op.require_real()
    return op.same("Elu", op.value("input"), alpha=float(op.number("alpha")))


@lowers(OperationType.PRELU)
def prelu(op: OnnxLowering) -> StoredValue:
    """PRELU whose alpha is broadcast to the input."""
    op.require_real()
    x, alpha = op.value("input"), op.value("alpha")
    require(op.result().dimensions == x.shape, "PRELU whose input is broadcast")
    return _binary(op, "PRelu", x, alpha)


_COMPARISONS: Final = {
    OperationType.EQUAL: "Equal",
    OperationType.NOT_EQUAL: "Equal",
    OperationType.LESS: "Less",
    OperationType.LESS_EQUAL: "LessOrEqual",
    OperationType.GREATER: "Greater",
    OperationType.GREATER_EQUAL: "GreaterOrEqual",
}


@lowers(*_COMPARISONS)
def comparison(op: OnnxLowering) -> StoredValue:
    """Comparisons."""
    kind = _COMPARISONS[op.node.type]
    x, y = op.value("input0"), op.value("input1")
    require(x.meta.type is not _T.TENSOR_BOOL8 or kind == "Equal", "an order of BOOL8")
    out = _binary(op, kind, x, y)
    return op.same("Not", out) if op.node.type is OperationType.NOT_EQUAL else out


@lowers(OperationType.LOGICAL_AND, OperationType.LOGICAL_OR)
def logical(op: OnnxLowering) -> StoredValue:
    """LOGICAL_AND, LOGICAL_OR."""
    kind = "And" if op.node.type is OperationType.LOGICAL_AND else "Or"
    return _binary(op, kind, op.value("input0"), op.value("input1"))


@lowers(OperationType.SELECT)
def select(op: OnnxLowering) -> StoredValue:
    """SELECT."""
    names, order = op.together(op.value("condition"), op.value("input0"), op.value("input1"))
    return op.emit("Where", names, op.result(), order)


@lowers(OperationType.CAST)
def cast(op: OnnxLowering) -> StoredValue:
    """CAST between real numbers and integers."""
    x, result = op.value("input"), op.result()
    kinds = (_FLOAT, _INT)
    require(x.meta.type in kinds and result.type in kinds, f"CAST to {result.type.name}")
    (name,) = op.graph.node("Cast", [x.name], to=ELEMENTS[result.type])
    return StoredValue(name, TensorType(result.type, x.shape), x.order)


@lowers(OperationType.RANK)
def rank(op: OnnxLowering) -> StoredValue:
    """RANK: a constant."""
    count = np.array(len(op.node.tensor("input").shape), np.int32)
    return op.graph.constant(lambda: count, op.result())


@lowers(OperationType.FILL)
def fill(op: OnnxLowering) -> StoredValue:
    """FILL: a constant."""
    result, number = op.result(), op.number("value")
    dtype = np.float32 if result.type is _FLOAT else np.int32
    return op.graph.constant(lambda: np.full(result.dimensions, number, dtype), result)
