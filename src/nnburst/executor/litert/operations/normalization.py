"""Lowers normalisations, softmaxes and reductions to LiteRT."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from msgspec.structs import replace

from nnburst.executor.graph.translation import require
from nnburst.executor.litert.graph import Value
from nnburst.executor.litert.lowering import Lowering, lowers
from nnburst.hal.enums import OperationType


def _along_last(op: Lowering, x: Value, run: Callable[[Value], Value]) -> Value:
    """Apply `run` along the operation's axis, moved to the end: the engine's operators need the last axis."""
    axis, last = op.axis(len(x.shape)), len(x.shape) - 1
    order = [i for i in range(last + 1) if i != axis] + [axis]
    back = [order.index(i) for i in range(last + 1)]
    return op.transpose(run(op.transpose(x, order)), back)


@lowers(OperationType.SOFTMAX)
def softmax(op: Lowering) -> Value:
    """SOFTMAX."""
    beta = float(op.number("beta"))
    require(beta > 0, "SOFTMAX with beta not above 0")

    def run(x: Value) -> Value:
        meta = replace(op.result(), dimensions=x.shape)
        return op.emit("SOFTMAX", [x], meta, "Softmax", beta=beta)

    return _along_last(op, op.value("input"), run)


@lowers(OperationType.LOG_SOFTMAX)
def log_softmax(op: Lowering) -> Value:
    """LOG_SOFTMAX, with beta multiplied before."""
    beta = float(op.number("beta"))
    x = op.value("input")
    if beta != 1:
        x = op.binary("MUL", x, op.real(beta))
    return _along_last(op, x, lambda y: op.emit("LOG_SOFTMAX", [y], y.meta, "LogSoftmax"))


@lowers(OperationType.L2_NORMALIZATION)
def l2_normalization(op: Lowering) -> Value:
    """L2_NORMALIZATION."""

    def run(x: Value) -> Value:
        meta = replace(op.result(), dimensions=x.shape)
        return op.emit("L2_NORMALIZATION", [x], meta, "L2Norm")

    return _along_last(op, op.value("input"), run)


@lowers(OperationType.LOCAL_RESPONSE_NORMALIZATION)
def local_response_normalization(op: Lowering) -> Value:
    """LOCAL_RESPONSE_NORMALIZATION of rank 4."""
    fields = {name: float(op.number(name)) for name in ("bias", "alpha", "beta")}
    radius = int(op.number("radius"))

    def run(x: Value) -> Value:
        image = op.reshape(x, (*(1,) * (4 - len(x.shape)), *x.shape))
        capped = min(radius, x.shape[-1])
        out = op.emit(
            "LOCAL_RESPONSE_NORMALIZATION",
            [image],
            image.meta,
            "LocalResponseNormalization",
            radius=capped,
            **fields,
        )
        return op.reshape(out, x.shape)

    return _along_last(op, op.value("input"), run)


@lowers(OperationType.INSTANCE_NORMALIZATION)
def instance_normalization(op: Lowering) -> Value:
    """INSTANCE_NORMALIZATION: mean and variance of each image and channel, by elementwise operators."""
    x = op.value("input")
    axes = (2, 3) if op.number("nchw") else (1, 2)

    def mean(y: Value) -> Value:
        kept = tuple(1 if i in axes else n for i, n in enumerate(y.shape))
        meta = replace(y.meta, dimensions=kept)
        return op.emit("MEAN", [y, op.integers(axes)], meta, "Reducer", keepDims=True)

    centred = op.binary("SUB", x, mean(x))
    variance = mean(op.binary("MUL", centred, centred))
    variance = op.binary("ADD", variance, op.real(float(op.number("epsilon"))))
    scale = op.emit("RSQRT", [variance], variance.meta)
    scale = op.binary("MUL", scale, op.real(float(op.number("gamma"))))
    return op.binary("ADD", op.binary("MUL", centred, scale), op.real(float(op.number("beta"))))


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
