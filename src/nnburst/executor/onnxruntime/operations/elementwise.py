"""Lowers operations on single elements to ONNX, some of them fused into one.

The importer of ONNX files writes the error function and HardSigmoid as several operations, since NNAPI has
neither; they are recognised and become one operator again. Results differ by less than those several
operations differ from the exact function (5e-7).
"""

from __future__ import annotations

from typing import Final

import numpy as np

from nnburst.executor.graph.tensor import TensorType
from nnburst.executor.graph.translation import require
from nnburst.executor.onnxruntime.graph import ELEMENTS, OnnxGraph, Order, StoredValue
from nnburst.executor.onnxruntime.lowering import NCHW, OnnxLowering, lowers
from nnburst.hal.enums import OperandType, OperationType

#: An operator with the patterns of its inputs; a number; or "x", which is the same tensor at each place.
_Pattern = tuple[object, ...] | float | str
_COMMUTATIVE: Final = frozenset({"Add", "Mul", "Max", "Min"})


def _limited(x: _Pattern, low: float, high: float) -> _Pattern:
    return ("Min", ("Max", x, low), high)


def _error_function(square: _Pattern) -> _Pattern:
    """The importer's error function: 1 - (a1 t + … + a5 t^5) exp(-x²), t = 1 / (1 + p |x|), with x's sign."""
    t = ("Div", 1.0, ("Add", ("Mul", ("Abs", "x"), 0.3275911), 1.0))
    total: _Pattern = ("Mul", t, 1.061405429)
    for factor in (-1.453152027, 1.421413741, -0.284496736, 0.254829592):
        total = ("Mul", ("Add", total, factor), t)
    decay = ("Exp", ("Neg", square))
    huge = 3e38
    sign = _limited(("Mul", ("Mul", _limited("x", -1.0, 1.0), huge), huge), -1.0, 1.0)
    return ("Mul", ("Sub", 1.0, ("Mul", total, decay)), sign)


#: By whether squares are written as powers.
_ERF: Final = {
    False: _error_function(("Mul", "x", "x")),
    True: _error_function(("Pow", "x", 2.0)),
}


def error_function_of(graph: OnnxGraph, name: str) -> str | None:
    """The tensor whose error function `name` is, written as several operators; None if it is not one."""
    return _matches(graph, name, _ERF[graph.normalizes], "")


def hard_sigmoid_of(graph: OnnxGraph, name: str) -> tuple[str, float, float] | None:
    """The tensor x, alpha and beta, if `name` is alpha · x + beta limited to 0 and 1; else None."""
    line = _read(graph, _read(graph, name, "Min", 1.0), "Max", 0.0)
    raised = _with_number(graph, line, "Add")
    scaled = _with_number(graph, raised[0], "Mul") if raised is not None else None
    if raised is None or scaled is None:
        return None
    return scaled[0], scaled[1], raised[1]


def _with_number(graph: OnnxGraph, name: str | None, kind: str) -> tuple[str, float] | None:
    """The tensor that an operator of this kind reads beside one number, and that number."""
    written = None if name is None else graph.producer(name)
    if written is None or written.kind != kind:
        return None
    first, second = written.inputs
    for x, y in ((first, second), (second, first)):
        number = graph.number(y)
        if number is not None:
            return x, number
    return None


def _read(graph: OnnxGraph, name: str | None, kind: str, number: float) -> str | None:
    """The tensor that an operator of this kind reads beside this number."""
    found = _with_number(graph, name, kind)
    return found[0] if found is not None and found[1] == number else None


def _matches(graph: OnnxGraph, name: str, pattern: _Pattern, x: str) -> str | None:
    """The tensor that stands for "x", if `name` matches the pattern; None if it does not.

    Args:
        graph: the graph that has the tensor.
        name: name of the tensor.
        pattern: the pattern to compare the tensor with.
        x: tensor that "x" already stands for in the whole pattern; "" as long as none does.
    """
    if pattern == "x":
        return name if x in ("", name) else None
    if isinstance(pattern, float):
        number = graph.number(name)
        same = number is not None and bool(np.isclose(number, pattern, rtol=1e-6, atol=0))
        return x if same else None
    assert isinstance(pattern, tuple)
    kind, *parts = pattern
    written = graph.producer(name)
    if written is None or written.kind != kind or len(written.inputs) != len(parts):
        return None
    orders = [written.inputs]
    if kind in _COMMUTATIVE:
        orders.append(written.inputs[::-1])
    for inputs in orders:
        found: str | None = x
        for each, part in zip(inputs, parts, strict=True):
            assert isinstance(part, tuple | float | str)
            found = None if found is None else _matches(graph, each, part, found)
        if found is not None:
            return found
    return None


_T = OperandType
_FLOAT: Final = _T.TENSOR_FLOAT32
_INT: Final = _T.TENSOR_INT32


def _binary(op: OnnxLowering, kind: str, x: StoredValue, y: StoredValue) -> StoredValue:
    """Append an operator of two values, which are broadcast."""
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
    is_square = kind is OperationType.MUL and names[0] == names[1] and op.result().type is _FLOAT
    if is_square and op.graph.normalizes:
        # The engine finds a normalisation by its Pow; it computes this one as a product in any case.
        return op.activated(op.emit("Pow", [names[0], op.graph.real(2.0)], op.result(), order))
    if not (op.graph.is_constant(x) and op.graph.is_constant(y)):
        names = [op.graph.narrowed(name) for name in names]
    out = op.emit(_ARITHMETIC[kind], names, op.result(), order)
    if kind is OperationType.MUL:
        out = _product(op, out, _by_channel(op, (x, y), names, order))
    elif kind is OperationType.ADD:
        out = _sum(op, out, _by_channel(op, (x, y), names, order))
    return op.activated(out)


def _by_channel(
    op: OnnxLowering, values: tuple[StoredValue, StoredValue], names: list[str], order: Order
) -> tuple[str, str] | None:
    """The names of an image and of a constant with a number for each channel; None for other operands."""
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
    """Replace a product and a sum by channel with the engine's one operator for normalisation."""
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
    """ELU, max(0, x) + min(0, alpha * (exp(x) - 1)): the engine's operator unless alpha is below 0."""
    op.require_real()
    alpha = float(op.number("alpha"))
    require(alpha >= 0, "ELU with alpha below 0")
    return op.same("Elu", op.value("input"), alpha=alpha)


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
    OperationType.GREATER: "Less",
    OperationType.GREATER_EQUAL: "LessOrEqual",
}
#: They are lowered with their inputs exchanged: OpenVINO's Greater and GreaterOrEqual are true for NaN.
_EXCHANGED: Final = frozenset({OperationType.GREATER, OperationType.GREATER_EQUAL})


@lowers(*_COMPARISONS)
def comparison(op: OnnxLowering) -> StoredValue:
    """Comparisons."""
    kind = _COMPARISONS[op.node.type]
    x, y = op.value("input0"), op.value("input1")
    require(x.meta.type is not _T.TENSOR_BOOL8 or kind == "Equal", "an order of BOOL8")
    if op.node.type in _EXCHANGED:
        x, y = y, x
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
