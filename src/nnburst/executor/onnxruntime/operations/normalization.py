"""SOFTMAX, LOG_SOFTMAX, L2_NORMALIZATION, LOCAL_RESPONSE_NORMALIZATION, INSTANCE_NORMALIZATION."""

from __future__ import annotations

from typing import Final

import numpy as np

from nnburst.executor.graph.translation import require
from nnburst.executor.onnxruntime.graph import StoredValue
from nnburst.executor.onnxruntime.lowering import NCHW, OnnxLowering, lowers
from nnburst.hal.enums import OperationType

#: NNAPI: what is divided by is at least this.
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
    """Divided by the norm, which is not 0."""
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
