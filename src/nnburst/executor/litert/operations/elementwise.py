"""Element by element: arithmetic, comparisons, activations, conversions."""

from __future__ import annotations

from typing import Final

from msgspec.structs import replace

from nnburst.executor.graph.tensor import Array, TensorType
from nnburst.executor.graph.translation import require
from nnburst.executor.litert.fusing import divided_hard_swish, hard_swish_of, moved, scaled
from nnburst.executor.litert.graph import Value
from nnburst.executor.litert.lowering import Q8, QUANTISED, Lowering, lowers
from nnburst.hal.enums import OperandType, OperationType
from nnburst.hal.imports import late_numpy as np

_T = OperandType
_FLOAT: Final = _T.TENSOR_FLOAT32
_INT: Final = _T.TENSOR_INT32


@lowers(OperationType.ADD, OperationType.SUB, OperationType.MUL, OperationType.DIV)
def arithmetic(op: Lowering) -> Value:
    """ADD, SUB, MUL, DIV."""
    name = op.node.type.name
    kind = op.result().type
    activation = op.activation()
    # Division of integers rounds down in NNAPI and must survive a divisor of 0.
    require(name != "DIV" or kind is _FLOAT, "DIV of anything but FLOAT32")
    require(kind is not _INT or activation == 0, "an activation of INT32")
    fused = _fused(op, name, activation) if kind is _FLOAT else None
    if fused is not None:
        return fused
    return op.emit(
        name,
        [op.value("input0"), op.value("input1")],
        op.result(),
        name.capitalize(),
        fusedActivationFunction=activation,
    )


def _fused(op: Lowering, name: str, activation: int) -> Value | None:
    """The result, if it comes with an operator before it or is a hard swish; None if neither."""
    for x, y in (("input0", "input1"), ("input1", "input0")):
        if op.is_constant(y) and not (name in ("SUB", "DIV") and y == "input0"):
            return _with_numbers(op, name, activation, x, op.node.tensor(y).array)
    if name != "MUL" or activation:
        return None
    first, second = op.value("input0"), op.value("input1")
    for a, b in ((first, second), (second, first)):
        if a.shape == op.result().dimensions and hard_swish_of(op.graph, a, b) is not None:
            return op.emit("HARD_SWISH", [a], op.result())
    return None


def _with_numbers(op: Lowering, name: str, activation: int, x: str, numbers: Array) -> Value | None:
    """A computed operand and constants: in the weights of a convolution, or the end of a hard swish."""
    value, graph = op.value(x), op.graph
    if value.shape != op.result().dimensions or not op.read_once(x):
        return None
    if name in ("MUL", "DIV") and numbers.size == 1 and numbers.all() and not activation:
        number = float(numbers.reshape(-1)[0])
        of = divided_hard_swish(graph, value, number if name == "MUL" else 1 / number)
        if of is not None:
            return op.emit("HARD_SWISH", [of], op.result())
    if name == "MUL":
        done = scaled(graph, value, numbers)
    else:
        done = name != "DIV" and moved(graph, value, numbers if name == "ADD" else -numbers)
    if not done:
        return None
    if activation:
        graph.fuse(value, activation)  # it has none, and nothing has read it
    return value


@lowers(OperationType.MAXIMUM, OperationType.MINIMUM)
def extremum(op: Lowering) -> Value:
    """MAXIMUM, MINIMUM; quantised operands are requantised to the output first."""
    values = [op.value("input0"), op.value("input1")]
    if op.result().type in QUANTISED:
        values = [op.requantize(x, op.result()) for x in values]
    return op.binary(op.node.type.name, values[0], values[1], op.result())


@lowers(OperationType.POW)
def power(op: Lowering) -> Value:
    """POW."""
    return op.emit("POW", [op.value("base"), op.value("exponent")], op.result(), "Pow")


_UNARY: Final = {
    OperationType.EXP: "EXP",
    OperationType.LOG: "LOG",
    OperationType.SIN: "SIN",
    OperationType.SQRT: "SQRT",
    OperationType.FLOOR: "FLOOR",
    OperationType.LOGISTIC: "LOGISTIC",
    OperationType.TANH: "TANH",
    OperationType.HARD_SWISH: "HARD_SWISH",
    OperationType.ABS: "ABS",
    OperationType.NEG: "NEG",
    OperationType.LOGICAL_NOT: "LOGICAL_NOT",
}


@lowers(*_UNARY)
def unary(op: Lowering) -> Value:
    """Operators with the same name and meaning."""
    name = _UNARY[op.node.type]
    return op.emit(name, [op.value("input")], op.result())


@lowers(OperationType.RSQRT)
def reciprocal_root(op: Lowering) -> Value:
    """RSQRT; quantised by way of float32, in which 0 becomes the largest value."""
    x = op.value("input")
    require(x.meta.type not in QUANTISED, "RSQRT of quantised values")
    return op.emit("RSQRT", [x], op.result())


_CLAMPS: Final = {
    OperationType.RELU: ("RELU", 1),
    OperationType.RELU1: ("RELU_N1_TO_1", 2),
    OperationType.RELU6: ("RELU6", 3),
}


@lowers(*_CLAMPS)
def clamp(op: Lowering) -> Value:
    """RELU, RELU1, RELU6: part of the operator before it, if nothing else reads its result."""
    name, activation = _CLAMPS[op.node.type]
    x = op.value("input")
    if op.read_once("input") and op.graph.fuse(x, activation):
        return x
    return op.emit(name, [x], op.result())


@lowers(OperationType.ELU)
def elu(op: Lowering) -> Value:
    """ELU; the engine's has alpha 1, so its negative part is scaled."""
    x, alpha = op.value("input"), float(op.number("alpha"))
    out = op.emit("ELU", [x], op.result())
    if alpha == 1:
        return out
    require(alpha > 0, "ELU with alpha not above 0")
    positive = op.emit("RELU", [x], op.result())
    negative = op.binary("SUB", out, positive)
    return op.binary("ADD", positive, op.binary("MUL", negative, op.real(alpha)))


@lowers(OperationType.PRELU)
def prelu(op: Lowering) -> Value:
    """PRELU whose alpha is broadcast to the input."""
    x, alpha = op.value("input"), op.value("alpha")
    require(op.result().dimensions == x.shape, "PRELU whose input is broadcast")
    return op.emit("PRELU", [x, alpha], op.result())


_COMPARISONS: Final = {
    OperationType.EQUAL: ("EQUAL", "Equal"),
    OperationType.NOT_EQUAL: ("NOT_EQUAL", "NotEqual"),
    OperationType.LESS: ("LESS", "Less"),
    OperationType.LESS_EQUAL: ("LESS_EQUAL", "LessEqual"),
    OperationType.GREATER: ("GREATER", "Greater"),
    OperationType.GREATER_EQUAL: ("GREATER_EQUAL", "GreaterEqual"),
}


@lowers(*_COMPARISONS)
def comparison(op: Lowering) -> Value:
    """Comparisons; quantised operands are compared as the real numbers that they stand for."""
    name, options = _COMPARISONS[op.node.type]
    values = [op.value("input0"), op.value("input1")]
    if values[0].meta.type in QUANTISED:
        values = [_real(op, x) for x in values]
    is_bool = values[0].meta.type is _T.TENSOR_BOOL8
    require(not is_bool or name in ("EQUAL", "NOT_EQUAL"), "an order of BOOL8")
    return op.emit(name, values, op.result(), options)


def _real(op: Lowering, x: Value) -> Value:
    """Scale · (q − zero point), rounded once: DEQUANTIZE may be a step off, which decides equality."""
    meta = TensorType(_FLOAT, x.shape)
    plain = op.emit("CAST", [x], meta, "Cast")
    centred = op.binary("SUB", plain, op.real(x.meta.zero_point))
    return op.binary("MUL", centred, op.real(x.meta.scale))


@lowers(OperationType.LOGICAL_AND, OperationType.LOGICAL_OR)
def logical(op: Lowering) -> Value:
    """LOGICAL_AND, LOGICAL_OR."""
    name = op.node.type.name
    options = {"LOGICAL_AND": "LogicalAnd", "LOGICAL_OR": "LogicalOr"}[name]
    return op.emit(name, [op.value("input0"), op.value("input1")], op.result(), options)


@lowers(OperationType.SELECT)
def select(op: Lowering) -> Value:
    """SELECT."""
    values = [op.value("input0"), op.value("input1")]
    if op.result().type in QUANTISED:
        values = [op.requantize(x, op.result()) for x in values]
    return op.emit("SELECT", [op.value("condition"), *values], op.result(), "Select")


@lowers(OperationType.QUANTIZE)
def quantize(op: Lowering) -> Value:
    """QUANTIZE."""
    return op.emit("QUANTIZE", [op.value("input")], op.result(), "Quantize")


@lowers(OperationType.DEQUANTIZE)
def dequantize(op: Lowering) -> Value:
    """DEQUANTIZE."""
    x = op.value("input")
    require(x.meta.extra_params is None, "DEQUANTIZE of scales per channel")
    return op.emit("DEQUANTIZE", [x], op.result(), "Dequantize")


_CASTS: Final = frozenset(
    {(a, b) for a in (_FLOAT, _INT, Q8) for b in (_FLOAT, _INT)}  # to Q8: the engine wraps
)


@lowers(OperationType.CAST)
def cast(op: Lowering) -> Value:
    """CAST of plain integers: scale and zero point do not count."""
    x, result = op.value("input"), op.result()
    require((x.meta.type, result.type) in _CASTS, f"CAST to {result.type.name}")
    return op.emit("CAST", [x], result, "Cast")


@lowers(OperationType.RANK)
def rank(op: Lowering) -> Value:
    """RANK: a constant."""
    count = len(op.node.tensor("input").shape)
    return op.graph.constant(np.array(count, np.int32), replace(op.result(), dimensions=()))


@lowers(OperationType.FILL)
def fill(op: Lowering) -> Value:
    """FILL: a constant."""
    result = op.result()
    array = np.full(result.dimensions, op.number("value"))
    return op.graph.constant(array, TensorType(result.type, result.dimensions))
