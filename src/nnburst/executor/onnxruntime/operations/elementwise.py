"""Element by element: arithmetic, comparisons, activations, conversions."""

from __future__ import annotations

from typing import Final

import numpy as np

from nnburst.executor.graph.tensor import TensorType
from nnburst.executor.graph.translation import require
from nnburst.executor.onnxruntime.fusing import error_function_of, hard_sigmoid_of
from nnburst.executor.onnxruntime.graph import ELEMENTS, StoredValue
from nnburst.executor.onnxruntime.lowering import OnnxLowering, lowers
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
    out = _binary(op, _ARITHMETIC[kind], op.value("input0"), op.value("input1"))
    if kind is OperationType.MUL:
        of = error_function_of(op.graph, out.name)
        out = out if of is None else op.emit("Erf", [of], out.meta, out.order)
    return op.activated(out)


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
