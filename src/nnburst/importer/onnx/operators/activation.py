"""Translates ONNX's activation functions: by NNAPI's operation if there is one, else by several."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Final

import numpy as np

from nnburst.hal.enums import OperandType, OperationType
from nnburst.importer.onnx.node import Node, operator, quantized_type
from nnburst.importer.onnx.operators.elementwise import activated, broadcast, filled, unary
from nnburst.importer.onnx.operators.shape import along
from nnburst.importer.onnx.tensor import Tensor, constant, identity, permuted
from nnburst.importer.subgraph import Argument
from nnburst.importer.tensors import TensorType

_O = OperationType
_T = OperandType


def add(node: Node, x: Tensor, y: Tensor | float) -> Tensor:
    """Add x and y."""
    return broadcast(node, _O.ADD, [x, y if isinstance(y, Tensor) else filled(y, x)], 0)


def sub(node: Node, x: Tensor | float, y: Tensor) -> Tensor:
    """Subtract y from x."""
    return broadcast(node, _O.SUB, [x if isinstance(x, Tensor) else filled(x, y), y], 0)


def mul(node: Node, x: Tensor, y: Tensor | float) -> Tensor:
    """Multiply x by y."""
    return broadcast(node, _O.MUL, [x, y if isinstance(y, Tensor) else filled(y, x)], 0)


def div(node: Node, x: Tensor | float, y: Tensor) -> Tensor:
    """Divide x by y."""
    return broadcast(node, _O.DIV, [x if isinstance(x, Tensor) else filled(x, y), y], 0)


def limited(node: Node, x: Tensor, low: float, high: float) -> Tensor:
    """Limit x to two bounds."""
    return broadcast(
        node, _O.MINIMUM, [broadcast(node, _O.MAXIMUM, [x, filled(low, x)]), filled(high, x)]
    )


@operator("Relu")
def _relu(node: Node) -> None:
    node.require_kind(node.input(), "f")
    node.put(activated(node, _O.RELU, node.input()))


#: NNAPI: step and zero point of the quantised output of these operations.
_FIXED: Final = {
    _O.LOGISTIC: {
        _T.TENSOR_QUANT8_ASYMM: (1 / 256, 0),
        _T.TENSOR_QUANT8_ASYMM_SIGNED: (1 / 256, -128),
    },
    _O.TANH: {_T.TENSOR_QUANT8_ASYMM: (1 / 128, 128), _T.TENSOR_QUANT8_ASYMM_SIGNED: (1 / 128, 0)},
    _O.SOFTMAX: {
        _T.TENSOR_QUANT8_ASYMM: (1 / 256, 0),
        _T.TENSOR_QUANT8_ASYMM_SIGNED: (1 / 256, -128),
    },
}


def integers_fit(node: Node, kind: OperationType, x: Tensor) -> bool:
    """Whether an operation can compute on integers: input and output have the types and steps it needs."""
    into = node.quantization
    if into is None or x.is_known or not x.is_quantized_real:
        return False
    fixed = _FIXED[kind].get(into.type)
    return x.computed().type.type == into.type and fixed == (into.scale, into.zero_point)


@operator("Sigmoid", "Tanh")
def _saturating(node: Node) -> None:
    kind = _O.LOGISTIC if node.kind == "Sigmoid" else _O.TANH
    x = node.input()
    node.require_kind(x, "f")
    if integers_fit(node, kind, x):
        assert node.quantization is not None
        value = x.computed()
        made = node.emit(kind, [value], quantized_type(node.quantization, value.type.dimensions))
        node.give(made, x)
        return
    node.put(unary(node, kind, node.graph.real(x)))


@operator("HardSwish")
def _hard_swish(node: Node) -> None:
    node.put(unary(node, _O.HARD_SWISH, node.real()))


@operator("Elu")
def _elu(node: Node) -> None:
    node.put(_exponential(node, node.real(), node.real_number("alpha", 1.0)))


def _exponential(node: Node, x: Tensor, alpha: float) -> Tensor:
    """Append ELU, which is max(0, x) + min(0, alpha * (exp(x) - 1)): ONNX's Elu unless alpha is below 0."""
    node.require(alpha >= 0, f"alpha is {alpha:g}, expected 0 or more")
    like = node.graph.any_form(x).type
    return unary(node, _O.ELU, x, node.graph.number(alpha, like))


@operator("LeakyRelu")
def _leaky_relu(node: Node) -> None:
    x = node.real()
    slope = constant(np.array([node.real_number("alpha", 0.01)], x.dtype))
    node.put(broadcast(node, _O.PRELU, [x, slope]))


@operator("Selu")
def _selu(node: Node) -> None:
    """Translate Selu to gamma times ELU."""
    alpha = node.real_number("alpha", 1.67326319217681884765625)
    gamma = node.real_number("gamma", 1.05070102214813232421875)
    node.put(mul(node, _exponential(node, node.real(), alpha), gamma))


@operator("Celu")
def _celu(node: Node) -> None:
    """Translate Celu to alpha times the ELU of x / alpha with an alpha of 1."""
    alpha = node.real_number("alpha", 1.0)
    node.require(alpha > 0, f"alpha is {alpha:g}, expected more than 0")
    node.put(mul(node, _exponential(node, mul(node, node.real(), 1 / alpha), 1.0), alpha))


@operator("HardSigmoid")
def _hard_sigmoid(node: Node) -> None:
    alpha, beta = node.real_number("alpha", 0.2), node.real_number("beta", 0.5)
    node.put(limited(node, add(node, mul(node, node.real(), alpha), beta), 0, 1))


@operator("ThresholdedRelu")
def _thresholded_relu(node: Node) -> None:
    x = node.real()
    above = broadcast(
        node, _O.GREATER, [x, filled(node.real_number("alpha", 1.0), x)], dtype=np.dtype(np.bool_)
    )
    node.put(chosen(node, above, x, 0.0))


def chosen(node: Node, condition: Tensor, x: Tensor, otherwise: Tensor | float) -> Tensor:
    """Select x if the condition is true, else the other; all have one shape."""
    node.graph.budget.spend(x.elements * x.dtype.itemsize)
    if not isinstance(otherwise, Tensor):
        otherwise = constant(np.full(x.shape, otherwise, x.dtype))
    return broadcast_same(node, _O.SELECT, [condition, x, otherwise], x)


def broadcast_same(node: Node, kind: OperationType, tensors: list[Tensor], like: Tensor) -> Tensor:
    """Append an operation that does not broadcast, on tensors that are expanded to one shape."""
    order = identity(like.rank) if like.is_known else like.order
    dims = permuted(like.shape, order) if like.is_known else like.computed().type.dimensions
    values = [node.graph.stored(tensor, order, dims) for tensor in tensors]
    made = node.emit(kind, values, replace(values[1].type, dimensions=dims or (1,)))
    return Tensor(like.shape, like.dtype, value=made, order=order)


@operator("Softplus")
def _softplus(node: Node) -> None:
    node.put(_soft_plus(node, node.real()))


def _soft_plus(node: Node, x: Tensor) -> Tensor:
    """Softplus as relu(x) + log(1 + exp(-|x|)), which does not overflow."""
    small = unary(node, _O.EXP, unary(node, _O.NEG, unary(node, _O.ABS, x)))
    return add(node, unary(node, _O.RELU, x), unary(node, _O.LOG, add(node, small, 1.0)))


@operator("Softsign")
def _softsign(node: Node) -> None:
    x = node.real()
    node.put(div(node, x, add(node, unary(node, _O.ABS, x), 1.0)))


@operator("Mish")
def _mish(node: Node) -> None:
    """Mish, x * tanh(softplus(x)), as x * n / (n + 2), n = e (e + 2), e = exp(x): exact for small n.

    For x beyond 20 the factor is 1 in 32 bits; in 16 bits, for x beyond 5.
    """
    x = node.real()
    most = 20.0 if x.dtype == np.float32 else 5.0
    power = unary(node, _O.EXP, broadcast(node, _O.MINIMUM, [x, filled(most, x)]))
    n = mul(node, power, add(node, power, 2.0))
    node.put(mul(node, x, div(node, n, add(node, n, 2.0))))


@operator("Swish")
def _swish(node: Node) -> None:
    x, alpha = node.real(), node.real_number("alpha", 1.0)
    scaled = x if alpha == 1.0 else mul(node, x, alpha)
    node.put(mul(node, x, unary(node, _O.LOGISTIC, scaled)))


@operator("Erf")
def _erf(node: Node) -> None:
    node.put(erf(node, node.real()))


#: Abramowitz and Stegun 7.1.26: within 1.5e-7 of erf(|x|).
_ERF: Final = (0.254829592, -0.284496736, 1.421413741, -1.453152027, 1.061405429)
_ERF_P: Final = 0.3275911


def erf(node: Node, x: Tensor) -> Tensor:
    """Compose the error function of several operations, within 5e-7.

    It is 1 - (a1 t + … + a5 t^5) exp(-x²) with t = 1 / (1 + p |x|), with the sign of x.
    """
    size = unary(node, _O.ABS, x)
    t = div(node, 1.0, add(node, mul(node, size, _ERF_P), 1.0))
    total = mul(node, t, _ERF[-1])
    for factor in reversed(_ERF[:-1]):
        total = mul(node, add(node, total, factor), t)
    decay = unary(node, _O.EXP, unary(node, _O.NEG, mul(node, x, x)))
    result = sub(node, 1.0, mul(node, total, decay))
    return mul(node, result, sign(node, x))


def sign(node: Node, x: Tensor) -> Tensor:
    """The sign -1, 0 or 1: x is scaled beyond these bounds unless it is 0, and then limited to them."""
    huge = 3e38 if x.dtype == np.float32 else 6e4
    return limited(node, mul(node, mul(node, limited(node, x, -1, 1), huge), huge), -1, 1)


@operator("Gelu")
def _gelu(node: Node) -> None:
    x = node.real()
    if node.string("approximate", "none") == "tanh":
        cubed = mul(node, mul(node, x, x), x)
        inner = mul(node, add(node, x, mul(node, cubed, 0.044715)), math.sqrt(2 / math.pi))
        weight = unary(node, _O.TANH, inner)
    else:
        weight = erf(node, div(node, x, filled(math.sqrt(2.0), x)))
    node.put(mul(node, mul(node, x, add(node, weight, 1.0)), 0.5))


@operator("Sign")
def _sign(node: Node) -> None:
    x = node.input()
    if x.dtype.kind == "f":
        node.put(sign(node, node.real()))
        return
    node.require(x.dtype.kind == "i" and x.dtype.itemsize > 1, f"the sign of {x.dtype}")
    node.put(limited(node, x, -1, 1))


@operator("Reciprocal")
def _reciprocal(node: Node) -> None:
    node.put(div(node, 1.0, node.real()))


@operator("Ceil")
def _ceil(node: Node) -> None:
    """Translate Ceil to -floor(-x)."""
    node.put(unary(node, _O.NEG, unary(node, _O.FLOOR, unary(node, _O.NEG, node.real()))))


@operator("Round")
def _round(node: Node) -> None:
    """Round halves to the even number: compare x - floor(x) with 0.5, as x + 0.5 is rounded if x is large."""
    x = node.real()
    down = unary(node, _O.FLOOR, x)
    rest = sub(node, x, down)
    up = add(node, down, 1.0)
    even = mul(node, unary(node, _O.FLOOR, mul(node, up, 0.5)), 2.0)
    half, above = (
        broadcast(node, kind, [rest, filled(0.5, x)], dtype=np.dtype(np.bool_))
        for kind in (_O.EQUAL, _O.GREATER)
    )
    node.put(chosen(node, above, up, chosen(node, half, even, down)))


@operator("Cos")
def _cos(node: Node) -> None:
    """Translate Cos to 1 - 2 sin²(x / 2): x / 2 is exact, a sum with pi / 2 is rounded if x is large."""
    half = unary(node, _O.SIN, mul(node, node.real(), 0.5))
    node.put(sub(node, 1.0, mul(node, mul(node, half, half), 2.0)))


def softmax(node: Node, x: Tensor) -> Tensor:
    """The softmax of real numbers along the last axis."""
    form = along(node, x, [x.rank - 1])
    one = node.graph.number(1.0, TensorType(_float_of(x), ()))
    return form.restored(node.emit(_O.SOFTMAX, [form.value, one, form.axis], form.value.type))


@operator("Softmax", "LogSoftmax")
def _softmax(node: Node) -> None:
    """Before version 13, softmax is over all axes from the given one on."""
    x = node.input()
    node.require_kind(x, "f")
    kind = _O.SOFTMAX if node.kind == "Softmax" else _O.LOG_SOFTMAX
    axis = node.axis(node.integer("axis", -1 if node.version >= 13 else 1), x.rank)
    last = axis if node.version >= 13 else x.rank - 1
    quantized = kind == _O.SOFTMAX and integers_fit(node, kind, x)
    x = x if quantized else node.graph.real(x)
    form = along(node, x, list(range(axis, last + 1)))
    like = form.value.type
    result: TensorType = like
    if quantized:
        assert node.quantization is not None
        result = quantized_type(node.quantization, like.dimensions)
    further: list[Argument] = [node.graph.number(1.0, TensorType(_float_of(x), ())), form.axis]
    node.put(form.restored(node.emit(kind, [form.value, *further], result)))


def _float_of(x: Tensor) -> OperandType:
    return _T.TENSOR_FLOAT16 if x.dtype == np.float16 else _T.TENSOR_FLOAT32
