"""MEAN, REDUCE_*, ARGMAX, ARGMIN."""

from __future__ import annotations

from typing import Final

from msgspec.structs import replace

from nnburst.executor.graph.translation import require
from nnburst.executor.onnxruntime.graph import ELEMENTS, Order, StoredValue
from nnburst.executor.onnxruntime.lowering import NCHW, OnnxLowering, lowers
from nnburst.executor.operations.reduce import axes_of
from nnburst.hal.enums import OperandType, OperationType

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
    """Reductions; those of conditions on integers."""
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
