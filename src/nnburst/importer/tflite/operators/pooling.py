"""AVERAGE_POOL_2D, MAX_POOL_2D, L2_POOL_2D."""

from __future__ import annotations

from typing import Final

from nnburst.hal.enums import OperationType
from nnburst.importer.tflite.operator import FLOAT, QUANT8, Operator, operator

_POOLS: Final = {
    "AVERAGE_POOL_2D": (OperationType.AVERAGE_POOL_2D, FLOAT | QUANT8),
    "MAX_POOL_2D": (OperationType.MAX_POOL_2D, FLOAT | QUANT8),
    "L2_POOL_2D": (OperationType.L2_POOL_2D, FLOAT),
}


@operator(*_POOLS)
def _pool(op: Operator) -> None:
    kind, types = _POOLS[op.name]
    op.require_type(op.input(), types, "input")
    options = op.options("Pool2DOptions")
    window = [
        op.padding(options),
        options.StrideW(),
        options.StrideH(),
        options.FilterWidth(),
        options.FilterHeight(),
    ]
    op.emit(kind, [op.input(), *window, op.activation(options)])
