"""Operators that make fewer elements along axes: sums, extremes, positions of extremes."""

from __future__ import annotations

from typing import Final

from nnburst.hal.enums import OperationType
from nnburst.importer.constants import integers
from nnburst.importer.subgraph import Value
from nnburst.importer.tflite.operator import BOOL8, FLOAT, INT32, QUANT8, Operator, operator

_REDUCTIONS: Final = {
    "MEAN": (OperationType.MEAN, FLOAT | QUANT8),
    "SUM": (OperationType.REDUCE_SUM, FLOAT),
    "REDUCE_PROD": (OperationType.REDUCE_PROD, FLOAT),
    "REDUCE_MAX": (OperationType.REDUCE_MAX, FLOAT | QUANT8),
    "REDUCE_MIN": (OperationType.REDUCE_MIN, FLOAT | QUANT8),
    "REDUCE_ANY": (OperationType.REDUCE_ANY, BOOL8),
    "REDUCE_ALL": (OperationType.REDUCE_ALL, BOOL8),
}
_POSITIONS: Final = {"ARG_MAX": OperationType.ARGMAX, "ARG_MIN": OperationType.ARGMIN}


@operator(*_REDUCTIONS)
def _reduce(op: Operator) -> None:
    kind, types = _REDUCTIONS[op.name]
    x = op.input(0)
    op.require_type(x, types, "input")
    axes = [op.axis(axis, len(x.type.dimensions)) for axis in op.integers(1, "axes")]
    keep = bool(op.options("ReducerOptions").KeepDims())
    flag = int(keep) if kind == OperationType.MEAN else keep  # NNAPI: an INT32 for MEAN alone
    op.emit(kind, [x, integers(axes), flag])


@operator(*_POSITIONS)
def _position(op: Operator) -> None:
    x = op.input(0)
    op.require_type(x, FLOAT | QUANT8 | INT32, "input")
    op.require_type(Value(op.output_type()), INT32, "output")
    axis = op.axis(op.integer(1, "axis"), len(x.type.dimensions))
    op.emit(_POSITIONS[op.name], [x, axis])


@operator("TOPK_V2")
def _top_k(op: Operator) -> None:
    op.require_type(op.input(0), FLOAT | QUANT8 | INT32, "input")
    op.emit(OperationType.TOPK_V2, [op.input(0), op.integer(1, "k")])
