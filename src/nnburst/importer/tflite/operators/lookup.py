"""Operators that look rows up: GATHER, EMBEDDING_LOOKUP, HASHTABLE_LOOKUP."""

from __future__ import annotations

from nnburst.hal.enums import OperandType, OperationType
from nnburst.importer.tflite.operator import FLOAT, INT32, QUANT8, Operator, operator


@operator("GATHER")
def _gather(op: Operator) -> None:
    x, indexes = op.input(0), op.input(1)
    op.require_type(x, FLOAT | QUANT8 | INT32, "input")
    op.require_type(indexes, INT32, "indexes")
    options = op.options("GatherOptions")
    op.require(options.BatchDims() == 0, f"{options.BatchDims()} batch dimensions")
    axis = op.axis(options.Axis(), len(x.type.dimensions))
    op.emit(OperationType.GATHER, [x, axis, indexes])


@operator("EMBEDDING_LOOKUP")
def _embedding_lookup(op: Operator) -> None:
    op.require_type(op.input(0), INT32, "lookups")
    values = op.input(1)
    op.require_type(values, FLOAT | QUANT8 | INT32, "values")
    op.require(op.output_type().type == values.type.type, "values and output differ in type")
    op.emit(OperationType.EMBEDDING_LOOKUP, [op.input(0), values])


@operator("HASHTABLE_LOOKUP")
def _hashtable_lookup(op: Operator) -> None:
    op.require_type(op.input(0), INT32, "lookups")
    op.require_type(op.input(1), INT32, "keys")
    values = op.input(2)
    unsigned = frozenset({OperandType.TENSOR_FLOAT32, OperandType.TENSOR_QUANT8_ASYMM})
    op.require_type(values, unsigned | INT32, "values")
    op.emit(OperationType.HASHTABLE_LOOKUP, op.inputs())
