"""MEAN, REDUCE_*, ARGMAX, ARGMIN."""

from __future__ import annotations

from typing import Final

from msgspec.structs import replace

from nnburst.executor.litert.graph import Value
from nnburst.executor.litert.lowering import Lowering, lowers
from nnburst.hal.enums import OperationType

_REDUCERS: Final = {
    OperationType.MEAN: "MEAN",
    OperationType.REDUCE_SUM: "SUM",
    OperationType.REDUCE_PROD: "REDUCE_PROD",
    OperationType.REDUCE_MAX: "REDUCE_MAX",
    OperationType.REDUCE_MIN: "REDUCE_MIN",
    OperationType.REDUCE_ALL: "REDUCE_ALL",
    OperationType.REDUCE_ANY: "REDUCE_ANY",
}


@lowers(*_REDUCERS)
def reduce(op: Lowering) -> Value:
    """Reductions keep their dimensions in the engine; RESHAPE drops those that are not kept."""
    x = op.value("input")
    rank = len(x.shape)
    axes = sorted({axis % rank for axis in op.numbers("axes")})
    if not axes:
        return x
    kept = tuple(1 if i in axes else n for i, n in enumerate(x.shape))
    result = replace(op.result(), dimensions=kept)
    name = _REDUCERS[op.node.type]
    out = op.emit(name, [x, op.integers(axes)], result, "Reducer", keepDims=True)
    return op.reshape(out, op.result().dimensions)


@lowers(OperationType.ARGMAX, OperationType.ARGMIN)
def arg_extremum(op: Lowering) -> Value:
    """ARG_MAX, ARG_MIN."""
    x = op.value("input")
    axis = op.axis(len(x.shape))
    largest = op.node.type is OperationType.ARGMAX
    dropped = tuple(n for i, n in enumerate(x.shape) if i != axis)
    out = op.emit(
        "ARG_MAX" if largest else "ARG_MIN",
        [x, op.integers([axis])],
        replace(op.result(), dimensions=dropped),
        "ArgMax" if largest else "ArgMin",
        outputType=2,
    )
    return op.reshape(out, op.result().dimensions)
