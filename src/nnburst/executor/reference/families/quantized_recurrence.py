"""Small arithmetic that both quantised LSTM operations share.

NNAPI: QuantUtils.h.
"""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt

from nnburst.executor.graph.operation import Node

Int64 = npt.NDArray[np.int64]


def saturate(x: npt.ArrayLike, bits: int) -> Int64:
    """The nearest number that `bits` bits hold."""
    limit = 1 << (bits - 1)
    return np.clip(np.asarray(x, np.int64), -limit, limit - 1)


def scale_exponent(node: Node, name: str) -> int:
    """The e with which operand `name` has the scale 2**e.

    Raises:
        OperationFailed: the scale is not a power of two (NNAPI: within 0.001 of the exponent).
    """
    scale = node.tensor(name).scale
    exponent = math.log2(scale) if scale > 0 else math.nan
    node.require(
        math.isfinite(exponent) and abs(exponent - round(exponent)) < 1e-3,
        f"operand '{name}' has scale {scale}, expected a power of two",
    )
    return round(exponent)
