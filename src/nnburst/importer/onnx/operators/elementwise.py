"""Translates ONNX's operators on every element: arithmetic, comparison, logic, choice."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import reduce
from typing import Any, Final

import numpy as np

from nnburst.hal.enums import OperandType, OperationType
from nnburst.importer.onnx.node import Node, operator, quantized_type
from nnburst.importer.onnx.tensor import (
    Order,
    Shape,
    Tensor,
    constant,
    identity,
    merged,
    operand_type,
    permuted,
)
from nnburst.importer.subgraph import MOST_AXES, Argument, Value
from nnburst.importer.tensors import Refused, TensorType, integers

_O = OperationType
_T = OperandType


@dataclass(frozen=True, slots=True)
class Together:
    """Operands that broadcast together.

    Attributes:
        values: the operands.
        shape: shape of the result in the file.
        order: order in which the result's axes are stored.
        dims: extents of the result's operand.
    """

    values: list[Value]
    shape: Shape
    order: Order
    dims: Shape


def together(node: Node, tensors: Sequence[Tensor]) -> Together:
    """Bring tensors into one order of axes, so that they broadcast: that of the largest computed tensor."""
    try:
        shape = np.broadcast_shapes(*(tensor.shape for tensor in tensors))
    except ValueError:
        raise Refused(f"shapes {[list(t.shape) for t in tensors]} do not broadcast") from None
    rank = len(shape)
    if 0 in shape:
        raise Refused(f"shape {list(shape)}: NNAPI has no extents of 0 but unknown ones")
    padded = [_padded(tensor, rank) for tensor in tensors]
    leading = max((t for t in padded if not t.is_known), key=lambda t: t.elements, default=None)
    order = identity(rank) if leading is None else leading.order
    shapes = [permuted(t.shape, order) for t in padded]
    dims = permuted(shape, order)
    if rank > MOST_AXES:
        *shapes, dims = merged([*shapes, dims])
        node.require(len(dims) <= MOST_AXES, f"shapes {shapes} need more than {MOST_AXES} axes")
    elif leading is not None and all(s == dims for s in shapes):
        dims = leading.computed().type.dimensions  # whatever extents the operand has
        shapes = [dims for _ in shapes]
    values = [
        node.graph.stored(t, order, _without_leading_ones(s))
        if t.is_known and leading is not None
        else node.graph.stored(t, order, s)
        for t, s in zip(padded, shapes, strict=True)
    ]
    return Together(alike(padded, values), shape, order, dims or (1,))


def alike(tensors: Sequence[Tensor], values: Sequence[Value]) -> list[Value]:
    """Operands of integers so that equal stored ones are equal numbers: constants as the computed ones.

    Raises:
        Refused: computed integers are quantised in different ways.
    """
    whole = [
        t.dtype.kind in "iu" and v.type.is_quantized for t, v in zip(tensors, values, strict=True)
    ]
    kinds = [v.type for v, w in zip(values, whole, strict=True) if w and v.constant is None]
    for kind in kinds[1:]:
        if not kind.same_quantization(kinds[0]):
            steps = f"{kinds[0].scale:g} from {kinds[0].zero_point} and {kind.scale:g} from {kind.zero_point}"
            raise Refused(f"integers in steps of {steps}, expected one quantisation")
    return [
        _quantized(v, kinds[0]) if w and kinds else v for v, w in zip(values, whole, strict=True)
    ]


def _quantized(value: Value, like: TensorType) -> Value:
    """A constant of integers with the quantisation of others; a computed operand itself."""
    if value.constant is None:
        return value
    kind = replace(value.type, scale=like.scale, zero_point=like.zero_point)
    return Value(kind, None, value.constant.retyped(kind))


def _without_leading_ones(dims: Shape) -> Shape:
    """Drop a constant's leading extents of 1, which broadcasting adds by itself."""
    at = 0
    while at < len(dims) - 1 and dims[at] == 1:
        at += 1
    return dims[at:]


def _padded(tensor: Tensor, rank: int) -> Tensor:
    more = rank - tensor.rank
    if not more:
        return tensor
    shape = (1,) * more + tensor.shape
    if tensor.constant is not None:
        return constant(tensor.constant.reshape(shape))
    if tensor.quantized is not None:
        return constant(tensor.array().reshape(shape))
    order = (*range(more), *(axis + more for axis in tensor.order))
    return tensor.seen_as(shape, order)


def broadcast(
    node: Node,
    kind: OperationType,
    tensors: Sequence[Tensor],
    *further: Argument,
    dtype: np.dtype[Any] | None = None,
) -> Tensor:
    """Append one operation on tensors that broadcast.

    Args:
        node: the node that is translated.
        kind: the operation.
        tensors: its first inputs.
        further: its other inputs.
        dtype: type of the result; by default that of the tensors.
    """
    dtype = tensors[0].dtype if dtype is None else dtype
    form = together(node, tensors)
    like = form.values[0].type
    result = TensorType(operand_type(dtype), form.dims, scale=1.0 if dtype.kind == "u" else 0.0)
    if dtype == tensors[0].dtype:
        result = replace(like, dimensions=form.dims)
    value = node.emit(kind, [*form.values, *further], result)
    return Tensor(form.shape, dtype, value=value, order=form.order)


def unary(node: Node, kind: OperationType, tensor: Tensor, *further: Argument) -> Tensor:
    """Append one operation on each element of a tensor, in any form."""
    value = node.graph.any_form(tensor)
    order = identity(tensor.rank) if tensor.is_known else tensor.order
    made = node.emit(kind, [value, *further], value.type)
    return Tensor(tensor.shape, tensor.dtype, value=made, order=order)


def filled(value: float, like: Tensor) -> Tensor:
    """A constant of a tensor's type, to be broadcast; infinite if the type cannot hold the number."""
    with np.errstate(over="ignore"):
        return constant(np.array(value, like.dtype))


_UNARY: Final = {
    "Abs": (_O.ABS, "fi"),
    "Exp": (_O.EXP, "f"),
    "Floor": (_O.FLOOR, "f"),
    "Log": (_O.LOG, "f"),
    "Neg": (_O.NEG, "fi"),
    "Sin": (_O.SIN, "f"),
    "Sqrt": (_O.SQRT, "f"),
}
_BINARY: Final = {"Add": _O.ADD, "Sub": _O.SUB, "Mul": _O.MUL, "Div": _O.DIV}
_COMPARISONS: Final = {
    "Equal": _O.EQUAL,
    "Greater": _O.GREATER,
    "GreaterOrEqual": _O.GREATER_EQUAL,
    "Less": _O.LESS,
    "LessOrEqual": _O.LESS_EQUAL,
}
_LOGIC: Final = {"And": _O.LOGICAL_AND, "Or": _O.LOGICAL_OR, "Xor": _O.NOT_EQUAL}


def require_plain(node: Node, *tensors: Tensor) -> None:
    """Refuse integer types that NNAPI's arithmetic reads as quantised numbers."""
    for tensor in tensors:
        node.require(
            tensor.dtype.itemsize > 1 or tensor.dtype.kind == "b",
            f"arithmetic of {tensor.dtype}, which overflows and NNAPI's does not",
        )


@operator(*_UNARY)
def _unary(node: Node) -> None:
    kind, kinds = _UNARY[node.kind]
    x = node.graph.real(node.input())
    node.require_kind(x, kinds)
    require_plain(node, x)
    node.put(unary(node, kind, x))


@operator(*_BINARY)
def _binary(node: Node) -> None:
    x, y = node.input(0), node.input(1)
    if node.version < 7:
        raise Refused(f"version {node.version}, whose broadcasting is another one")
    if quantized_binary(node, _BINARY[node.kind], x, y):
        return
    x, y = node.graph.real(x), node.graph.real(y)
    node.require_kind(x, "fi")
    require_plain(node, x, y)
    if node.kind == "Div" and x.dtype.kind == "i":
        node.put(_cut_division(node, x, y))
        return
    node.put(broadcast(node, _BINARY[node.kind], [x, y], 0))


def _cut_division(node: Node, x: Tensor, y: Tensor) -> Tensor:
    """Divide integers towards 0, by magnitudes and then the sign, since NNAPI rounds down."""
    quotient = broadcast(node, _O.DIV, [_size(node, x), _size(node, y)], 0)
    sign = broadcast(node, _O.MUL, [_sign(node, x), _sign(node, y)], 0)
    return broadcast(node, _O.MUL, [quotient, sign], 0)


def _size(node: Node, x: Tensor) -> Tensor:
    return constant(np.abs(x.array())) if x.is_known else unary(node, _O.ABS, x)


def _sign(node: Node, x: Tensor) -> Tensor:
    """The sign of integers: -1, 0 or 1."""
    if x.is_known:
        return constant(np.sign(x.array()))
    one = filled(1, x)
    return broadcast(node, _O.MAXIMUM, [broadcast(node, _O.MINIMUM, [x, one]), filled(-1, x)])


def quantized_binary(node: Node, kind: OperationType, x: Tensor, y: Tensor) -> bool:
    """Append one operation on integers, if both inputs and the output are quantised; whether they are."""
    into = node.quantization
    if into is None or kind not in (_O.ADD, _O.SUB, _O.MUL):
        return False
    if not (x.is_quantized_real and y.is_quantized_real) or (x.is_known and y.is_known):
        return False
    scales = [_scale(tensor) for tensor in (x, y)]
    if None in scales:
        return False
    if kind == _O.MUL and not np.float32(into.scale) > np.prod(np.array(scales, np.float32)):
        return False
    if {_type_of(x), _type_of(y)} != {into.type}:
        return False
    form = together(node, [_integers(x), _integers(y)])
    values = [
        _as_integers(tensor, value) for tensor, value in zip((x, y), form.values, strict=True)
    ]
    made = node.emit(kind, [*values, 0], quantized_type(into, form.dims))
    node.result(made, form.shape, np.dtype(np.float32), form.order)
    return True


def _scale(tensor: Tensor) -> float | None:
    if tensor.quantized is not None:
        scale = tensor.quantized.scale
        return float(scale.reshape(-1)[0]) if scale.size == 1 else None
    return tensor.computed().type.scale


def _type_of(tensor: Tensor) -> OperandType:
    if tensor.quantized is not None:
        return operand_type(tensor.quantized.stored.dtype)
    return tensor.computed().type.type


def _integers(tensor: Tensor) -> Tensor:
    """The integers of a known quantised tensor; a computed tensor itself."""
    return constant(tensor.quantized.stored) if tensor.quantized is not None else tensor


def _as_integers(tensor: Tensor, value: Value) -> Value:
    """The operand with the quantisation of the known integers."""
    found = tensor.quantized
    if found is None:
        return value
    zero = int(found.zero_point.reshape(-1)[0]) if found.zero_point.size else 0
    scale = float(found.scale.reshape(-1)[0])
    return _quantized(value, replace(value.type, scale=scale, zero_point=zero))


@operator(*_COMPARISONS)
def _compare(node: Node) -> None:
    x, y = node.graph.real(node.input(0)), node.graph.real(node.input(1))
    node.put(broadcast(node, _COMPARISONS[node.kind], [x, y], dtype=np.dtype(np.bool_)))


@operator(*_LOGIC)
def _logic(node: Node) -> None:
    node.require_kind(node.input(), "b")
    node.put(broadcast(node, _LOGIC[node.kind], node.inputs()))


@operator("Not")
def _not(node: Node) -> None:
    node.require_kind(node.input(), "b")
    node.put(unary(node, _O.LOGICAL_NOT, node.input()))


def _several(node: Node, kinds: str) -> list[Tensor]:
    tensors = [node.graph.real(tensor) for tensor in node.inputs()]
    node.require(bool(tensors), "it has 0 inputs, expected at least one")
    node.require_kind(tensors[0], kinds)
    return tensors


@operator("Max", "Min")
def _extreme(node: Node) -> None:
    kind = _O.MAXIMUM if node.kind == "Max" else _O.MINIMUM
    node.put(reduce(lambda x, y: broadcast(node, kind, [x, y]), _several(node, "fiu")))


@operator("Sum", "Mean")
def _sum(node: Node) -> None:
    tensors = _several(node, "fi")
    require_plain(node, *tensors)
    total = reduce(lambda x, y: broadcast(node, _O.ADD, [x, y], 0), tensors)
    if node.kind == "Mean" and len(tensors) > 1:
        node.require_kind(total, "f")
        total = broadcast(node, _O.MUL, [total, filled(1 / len(tensors), total)], 0)
    node.put(total)


@operator("Pow")
def _pow(node: Node) -> None:
    x, y = node.real(0), node.graph.real(node.input(1))
    if y.is_known:
        exponent = y.array()
        if exponent.size == 1 and exponent.ndim <= x.rank and float(exponent.reshape(-1)[0]) == 2.0:
            node.put(broadcast(node, _O.MUL, [x, x], 0))
            return
        y = constant(exponent.astype(x.dtype))
    elif y.dtype != x.dtype:
        node.require(y.dtype.kind == "i" and y.dtype.itemsize > 1, f"an exponent of {y.dtype}")
        y = Tensor(
            y.shape,
            x.dtype,
            value=node.graph.cast(y.computed(), operand_type(x.dtype)),
            order=y.order,
        )
    node.put(broadcast(node, _O.POW, [x, y]))


@operator("Mod")
def _mod(node: Node) -> None:
    """Mod is x - floor(x / y) * y, with the divisor's sign; with fmod, by magnitudes and the sign of x."""
    x, y = node.graph.real(node.input(0)), node.graph.real(node.input(1))
    node.require_kind(x, "i", "input of Mod by parts")
    require_plain(node, x, y)
    fmod = bool(node.integer("fmod"))
    quotient = _cut_division(node, x, y) if fmod else broadcast(node, _O.DIV, [x, y], 0)
    node.put(broadcast(node, _O.SUB, [x, broadcast(node, _O.MUL, [quotient, y], 0)], 0))


@operator("PRelu")
def _prelu(node: Node) -> None:
    node.put(broadcast(node, _O.PRELU, [node.real(0), node.real(1)]))


@operator("Where")
def _where(node: Node) -> None:
    condition, x, y = node.input(0), node.graph.real(node.input(1)), node.graph.real(node.input(2))
    node.require_kind(condition, "b", "condition")
    node.require(x.dtype.kind != "b", "truth values are chosen, expected numbers")
    shape = np.broadcast_shapes(condition.shape, x.shape, y.shape)
    every = [expanded(node, tensor, shape) for tensor in (condition, x, y)]
    form = together(node, every)
    values = [
        node.graph.stored(t, form.order, form.dims) if t.is_known else v
        for t, v in zip(every, form.values, strict=True)
    ]
    values = alike(every, values)
    kind = replace(values[1].type, dimensions=form.dims)
    made = node.emit(_O.SELECT, values, kind)
    node.result(made, form.shape, x.dtype, form.order)


def expanded(node: Node, tensor: Tensor, shape: Shape) -> Tensor:
    """Repeat a tensor to a shape that it broadcasts to."""
    if tensor.shape == shape:
        return tensor
    if tensor.is_known:
        node.graph.budget.spend(int(np.prod(shape)) * tensor.dtype.itemsize)
        return constant(np.ascontiguousarray(np.broadcast_to(tensor.array(), shape)))
    tensor = _padded(tensor, len(shape))
    if tensor.shape == shape:
        return tensor
    if tensor.dtype.kind == "b":
        node.graph.budget.spend(int(np.prod(shape)))
        return broadcast(node, _O.LOGICAL_AND, [tensor, constant(np.ones(shape, np.bool_))])
    have, want = merged([permuted(tensor.shape, tensor.order), permuted(shape, tensor.order)])
    node.require(len(have) <= MOST_AXES, f"{list(tensor.shape)} expanded to {list(shape)}")
    value = node.graph.stored(tensor, tensor.order, have)
    times = [b // a for a, b in zip(have, want, strict=True)]
    made = node.emit(_O.TILE, [value, integers(times)], replace(value.type, dimensions=want))
    return Tensor(shape, tensor.dtype, value=made, order=tensor.order)


@operator("Expand")
def _expand(node: Node) -> None:
    wanted = tuple(node.integers(1, "shape"))
    shape = np.broadcast_shapes(node.input().shape, wanted)
    node.put(expanded(node, node.input(), shape))


@operator("Clip")
def _clip(node: Node) -> None:
    """Translate Clip to RELU, RELU6 or RELU1 if the bounds are theirs, else to MINIMUM and MAXIMUM."""
    x = node.input()
    if node.version < 11:
        given = [node.attribute(name) for name in ("min", "max")]
        bounds = [None if b is None else constant(np.array(b, x.dtype)) for b in given]
    else:
        bounds = [node.optional(1), node.optional(2)]
    known = tuple(
        float(b.array().reshape(-1)[0]) if b is not None and b.is_known and b.elements == 1 else b
        for b in bounds
    )
    fused: dict[object, OperationType] = {
        (0.0, None): _O.RELU,
        (0.0, 6.0): _O.RELU6,
        (-1.0, 1.0): _O.RELU1,
    }
    if x.dtype.kind == "f" and all(b is None or isinstance(b, float) for b in known):
        kind = fused.get((known[0], known[1]))
        if kind is not None:
            node.put(activated(node, kind, x))
            return
    x = node.graph.real(x)
    node.require(x.dtype.kind in "fiu", f"bounds of {x.dtype}")
    for bound, kind in zip(bounds, (_O.MAXIMUM, _O.MINIMUM), strict=True):
        if bound is not None:
            x = broadcast(node, kind, [x, bound])
    node.put(x)


def activated(node: Node, kind: OperationType, x: Tensor) -> Tensor:
    """Append RELU, RELU6 or RELU1: on integers if the output has the input's quantisation."""
    into = node.quantization
    if x.is_quantized_real and not x.is_known:
        if into is None or into.matches(x.computed().type):
            return unary(node, kind, x)
        x = node.graph.real(x)
    return unary(node, kind, x)
