"""Lowers normalisations, softmaxes and reductions to ONNX."""

from __future__ import annotations

from typing import Final

import numpy as np
from msgspec.structs import replace

from nnburst.executor.graph.translation import require
from nnburst.executor.onnxruntime.graph import ELEMENTS, Order, StoredValue
from nnburst.executor.onnxruntime.lowering import NCHW, OnnxLowering, lowers
from nnburst.executor.operations.reduction import axes_of
from nnburst.hal.enums import OperandType, OperationType

#: NNAPI: the smallest divisor.
_SMALLEST_NORM: Final = 1e-6


@lowers(OperationType.SOFTMAX, OperationType.LOG_SOFTMAX)
def softmax(op: OnnxLowering) -> StoredValue:
    """SOFTMAX, LOG_SOFTMAX, with beta multiplied before."""
    op.require_real()
    x, beta = op.value("input"), float(op.number("beta"))
    require(beta > 0, f"beta {beta}")
    if beta != 1:
        x = op.same("Mul", x, op.graph.real(beta))
    kind = "Softmax" if op.node.type is OperationType.SOFTMAX else "LogSoftmax"
    return op.same(kind, x, axis=x.order.index(op.axis(len(x.shape))))


@lowers(OperationType.L2_NORMALIZATION)
def l2_normalization(op: OnnxLowering) -> StoredValue:
    """L2_NORMALIZATION: divides by the norm, which has a lower bound above 0."""
    op.require_real()
    x = op.value("input")
    place = x.order.index(op.axis(len(x.shape)))
    (norm,) = op.graph.node("ReduceL2", [x.name], axes=(place,), keepdims=1)
    (norm,) = op.graph.node("Max", [norm, op.graph.real(_SMALLEST_NORM)])
    return op.same("Div", x, norm)


@lowers(OperationType.LOCAL_RESPONSE_NORMALIZATION)
def local_response_normalization(op: OnnxLowering) -> StoredValue:
    """LOCAL_RESPONSE_NORMALIZATION; the engine divides alpha by the number of neighbours."""
    op.require_real()
    x = op.value("input")
    missing = 4 - len(x.shape)
    axis = op.axis(len(x.shape)) + missing
    image = op.graph.reshaped(x, (1,) * missing + x.shape)
    size = 2 * min(int(op.number("radius")), image.shape[axis]) + 1
    first, *others = (at for at in range(4) if at != axis)
    order = (first, axis, *others)
    bias, alpha, beta = (float(op.number(name)) for name in ("bias", "alpha", "beta"))
    fields = {"size": size, "bias": bias, "alpha": alpha * size, "beta": beta}
    out = op.emit("LRN", [op.graph.ordered(image, order)], image.meta, order, **fields)
    return op.graph.reshaped(out, x.shape)


@lowers(OperationType.INSTANCE_NORMALIZATION)
def instance_normalization(op: OnnxLowering) -> StoredValue:
    """INSTANCE_NORMALIZATION with one factor and one summand for all channels."""
    op.require_real()
    nchw = bool(op.number("nchw"))
    x = op.to_front(op.value("input"), nchw)
    epsilon = float(op.number("epsilon"))
    factors = [
        op.plain(op.constant(np.full(x.shape[3], op.number(name), np.float32)))
        for name in ("gamma", "beta")
    ]
    names = [op.image(x), *factors]
    out = op.emit("InstanceNormalization", names, x.meta, NCHW, epsilon=epsilon)
    return op.to_back(out, nchw)


_REDUCERS: Final = {
    OperationType.MEAN: "ReduceMean",
    OperationType.REDUCE_SUM: "ReduceSum",
    OperationType.REDUCE_PROD: "ReduceProd",
    OperationType.REDUCE_MAX: "ReduceMax",
    OperationType.REDUCE_MIN: "ReduceMin",
    OperationType.REDUCE_ALL: "ReduceMin",
    OperationType.REDUCE_ANY: "ReduceMax",
}
_SPACE: Final = (1, 2)


@lowers(*_REDUCERS)
def reduce(op: OnnxLowering) -> StoredValue:
    """REDUCE_ operations and MEAN; ALL and ANY are computed on integers."""
    x, axes, kind = op.value("input"), axes_of(op.node), _REDUCERS[op.node.type]
    if not axes:
        return op.graph.reshaped(x, op.result().dimensions)
    is_bool = x.meta.type is OperandType.TENSOR_BOOL8
    integer = ELEMENTS[OperandType.TENSOR_INT32]
    name = op.graph.node("Cast", [x.name], to=integer)[0] if is_bool else x.name
    kept = tuple(1 if at in axes else extent for at, extent in enumerate(x.shape))
    meta = replace(x.meta, dimensions=kept)
    if kind == "ReduceMean" and axes == _SPACE and x.order == NCHW:
        out = op.emit("GlobalAveragePool", [name], meta, NCHW)
    else:
        places = tuple(sorted(x.order.index(axis) for axis in axes))
        out = _reduced(op, kind, name, places, StoredValue("", meta, x.order))
    if is_bool:
        out = op.same("Cast", out, to=ELEMENTS[OperandType.TENSOR_BOOL8])
    return op.graph.reshaped(out, op.result().dimensions)


def _reduced(
    op: OnnxLowering, kind: str, name: str, places: Order, like: StoredValue
) -> StoredValue:
    if kind == "ReduceSum":  # its axes are an input since version 13 of the operators
        return op.emit(kind, [name, op.graph.longs(places)], like.meta, like.order, keepdims=1)
    return op.emit(kind, [name], like.meta, like.order, axes=places, keepdims=1)


@lowers(OperationType.ARGMAX, OperationType.ARGMIN)
def arg_extremum(op: OnnxLowering) -> StoredValue:
    """ARGMAX, ARGMIN; the first wins a tie."""
    x = op.value("input")
    require(x.meta.type is not OperandType.TENSOR_BOOL8, "the largest of BOOL8")
    axis = op.axis(len(x.shape))
    kind = "ArgMax" if op.node.type is OperationType.ARGMAX else "ArgMin"
    kept = tuple(1 if at == axis else extent for at, extent in enumerate(x.shape))
    (places,) = op.graph.node(kind, [x.name], axis=x.order.index(axis), keepdims=1)
    meta = replace(op.result(), dimensions=kept)
    integer = ELEMENTS[OperandType.TENSOR_INT32]
    out = op.emit("Cast", [places], meta, x.order, to=integer)
    return op.graph.reshaped(out, op.result().dimensions)
