"""Lowers operations on single elements to LiteRT, some of them fused into one.

A fused operation is one step of the engine and several of the model: normalisation, hard swish. Fusing
changes the order in which float32 is rounded, nothing else.
"""

from __future__ import annotations

from typing import Final

from msgspec.structs import replace

from nnburst.executor.graph.tensor import Array, TensorType
from nnburst.executor.graph.translation import require
from nnburst.executor.litert.graph import GraphWriter, Value, Written
from nnburst.executor.litert.lowering import Q8, QUANTISED, Lowering, lowers
from nnburst.hal import late_numpy as np
from nnburst.hal.enums import FusedActivationFunc, OperandType, OperationType

#: Dimension of the filter that an operator's output channels come from.
_CHANNELS: Final = {"CONV_2D": 0, "DEPTHWISE_CONV_2D": 3, "FULLY_CONNECTED": 0}
_NONE: Final = int(FusedActivationFunc.NONE)
_RELU6: Final = int(FusedActivationFunc.RELU6)


def scaled(graph: GraphWriter, value: Value, factor: Array) -> bool:
    """Multiply filter and bias of the convolution that writes `value` by channel; False without one.

    No other operator may read `value`, now or later.
    """
    found = _with_weights(graph, value, factor)
    if found is None:
        return False
    written, kernel, bias, each = found
    axis = _CHANNELS[written.name]
    shape = [1] * kernel.ndim
    shape[axis] = kernel.shape[axis]
    with np.errstate(over="ignore", invalid="ignore"):
        return _exchanged(graph, value, kernel * each.reshape(shape), bias * each)


def moved(graph: GraphWriter, value: Value, summand: Array) -> bool:
    """Add to the bias of the convolution that writes `value`; False without one; see `scaled`."""
    found = _with_weights(graph, value, summand)
    if found is None:
        return False
    _, _, bias, each = found
    with np.errstate(over="ignore", invalid="ignore"):
        return _exchanged(graph, value, None, bias + each)


def _with_weights(
    graph: GraphWriter, value: Value, each: Array
) -> tuple[Written, Array, Array, Array] | None:
    """The convolution that writes `value`, its filter and bias, and `each` as one number per channel."""
    written = graph.producer(value)
    if written is None or written.name not in _CHANNELS or written.activation != _NONE:
        return None
    if graph.is_read(value) or len(written.inputs) != 3:
        return None
    if any(x.meta.type is not OperandType.TENSOR_FLOAT32 for x in written.inputs):
        return None
    kernel, bias = graph.array(written.inputs[1]), graph.array(written.inputs[2])
    count = value.shape[-1]
    if kernel is None or bias is None or each.size not in (1, count):
        return None
    if each.size == count and each.shape[-1:] != (count,):
        return None
    return written, kernel, bias, np.broadcast_to(each.reshape(-1), (count,))


def _exchanged(graph: GraphWriter, value: Value, kernel: Array | None, bias: Array) -> bool:
    """Replace the convolution's weights, unless they exceed float32; whether they were replaced."""
    written = graph.producer(value)
    assert written is not None
    if not np.isfinite(bias).all() or (kernel is not None and not np.isfinite(kernel).all()):
        return False
    image, old, offsets = written.inputs
    new = old if kernel is None else graph.constant(kernel, old.meta)
    graph.exchange(value, [image, new, graph.constant(bias, offsets.meta)])
    return True


def hard_swish_of(graph: GraphWriter, x: Value, y: Value) -> Value | None:
    """Return x if y is its hard sigmoid: min(max(x + 3, 0), 6) / 6, or x / 6 + 1 / 2 limited to 0 and 1."""
    sixth = _times(graph, y, 1 / 6)
    if sixth is not None and _is_raised(graph, sixth, x):
        return x
    return x if _is_limited(graph, y, x) else None


def divided_hard_swish(graph: GraphWriter, value: Value, factor: float) -> Value | None:
    """Find the x for which `value` · `factor` is x · min(max(x + 3, 0), 6) / 6; None if not found."""
    written = graph.producer(value)
    if not _is(factor, 1 / 6) or written is None or written.name != "MUL":
        return None
    if written.activation != _NONE:
        return None
    first, second = written.inputs
    for x, y in ((first, second), (second, first)):
        if _is_raised(graph, y, x):
            return x
    return None


def _is(number: float, wanted: float) -> bool:
    return bool(np.isclose(number, wanted, rtol=1e-6, atol=0))


def _number(graph: GraphWriter, value: Value) -> float | None:
    """The only element of a constant."""
    array = graph.array(value)
    is_real = value.meta.type is OperandType.TENSOR_FLOAT32
    return (
        float(array.reshape(-1)[0]) if array is not None and array.size == 1 and is_real else None
    )


def _with_number(
    graph: GraphWriter, value: Value, names: tuple[str, ...]
) -> tuple[Written, Value, float] | None:
    """The operator that writes `value` from a computed operand and one number."""
    written = graph.producer(value)
    if written is None or written.name not in names or len(written.inputs) != 2:
        return None
    first, second = written.inputs
    for x, y in ((first, second), (second, first)):
        number = _number(graph, y)
        if number is not None and x.shape == value.shape:
            return None if written.name == "DIV" and y is first else (written, x, number)
    return None


def _times(graph: GraphWriter, value: Value, factor: float) -> Value | None:
    """Find the x for which `value` is x · `factor`, by MUL or DIV without an activation."""
    found = _with_number(graph, value, ("MUL", "DIV"))
    if found is None or found[0].activation != _NONE or not found[2]:
        return None
    written, x, number = found
    return x if _is(1 / number if written.name == "DIV" else number, factor) else None


def _is_raised(graph: GraphWriter, value: Value, x: Value) -> bool:
    """Whether `value` is min(max(x + 3, 0), 6)."""
    found = _with_number(graph, value, ("ADD",))
    return found is not None and found[0].activation == _RELU6 and found[1] == x and found[2] == 3


def _is_limited(graph: GraphWriter, value: Value, x: Value) -> bool:
    """Whether `value` is x / 6 + 1 / 2, limited to 0 and 1."""
    least = _with_number(graph, value, ("MINIMUM",))
    most = None if least is None or least[2] != 1 else _with_number(graph, least[1], ("MAXIMUM",))
    line = None if most is None or most[2] != 0 else _with_number(graph, most[1], ("ADD",))
    if line is None or line[0].activation != _NONE or not _is(line[2], 0.5):
        return False
    return _times(graph, line[1], 1 / 6) == x


# -- elementwise -----------------------------------------------------------------------------------


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
    values = [op.value("input0"), op.value("input1")]
    rank = len(op.result().dimensions)
    if kind in QUANTISED and any(x.shape == (1,) * rank for x in values):
        # With an activation, also one that is fused later, the engine drops axes that only a constant of one
        # element has.
        values = [op.reshape(x, (1,) * (rank - len(x.shape)) + x.shape) for x in values]
    return op.emit(name, values, op.result(), name.capitalize(), fusedActivationFunction=activation)


def _fused(op: Lowering, name: str, activation: int) -> Value | None:
    """The result, if the operation can be fused with the one before it or is a hard swish; else None."""
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
    """Fuse constants into a convolution's weights, or with the rest of a hard swish; None if neither fits."""
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
        graph.fuse(value, activation)  # `value` has no activation and no reader yet
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
    """RSQRT; quantised values are computed in float32, in which 0 becomes the largest value."""
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
    """RELU, RELU1, RELU6: fused with the operator before, if no other operator reads its result."""
    name, activation = _CLAMPS[op.node.type]
    x = op.value("input")
    if op.read_once("input") and op.graph.fuse(x, activation):
        return x
    return op.emit(name, [x], op.result())


@lowers(OperationType.ELU)
def elu(op: Lowering) -> Value:
    """ELU; the engine's operator has an alpha of 1, so the negative part is scaled afterwards."""
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
    """Scale · (q − zero point), rounded once: DEQUANTIZE may be off by a step, which decides equality."""
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
    {(a, b) for a in (_FLOAT, _INT, Q8) for b in (_FLOAT, _INT)}  # to Q8: kernels wrap around
)


@lowers(OperationType.CAST)
def cast(op: Lowering) -> Value:
    """CAST of plain integers: scale and zero point are ignored."""
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
