"""Operators that put tensors together or take them apart."""

from __future__ import annotations

from nnburst.hal.enums import OperationType
from nnburst.importer.constants import integers
from nnburst.importer.tflite.operator import FLOAT, INT32, QUANT8, Operator, operator
from nnburst.importer.tflite.operators.reshape import reshape

_TYPES = FLOAT | QUANT8 | INT32


@operator("CONCATENATION")
def _concatenation(op: Operator) -> None:
    values = op.inputs()
    op.require(bool(values), "it has 0 inputs, expected at least one")
    op.require_type(values[0], FLOAT | QUANT8, "input 0")
    options = op.options("ConcatenationOptions")
    op.require(op.activation(options) == 0, "an activation is fused, expected NONE")
    axis = op.axis(options.Axis(), len(values[0].type.dimensions))
    op.emit(OperationType.CONCATENATION, [*values, axis])


@operator("PACK")
def _pack(op: Operator) -> None:
    values = op.inputs()
    op.require(bool(values), "it has 0 inputs, expected at least one")
    op.require_type(values[0], _TYPES, "input 0")
    axis = op.axis(op.options("PackOptions").Axis(), len(op.output_type().dimensions))
    op.emit(OperationType.PACK, [axis, *values])


@operator("UNPACK")
def _unpack(op: Operator) -> None:
    """SPLIT, and a RESHAPE of each part that drops the axis."""
    x = op.input()
    op.require_type(x, _TYPES, "input")
    count = len(op.output_tensors)
    axis = op.axis(op.options("UnpackOptions").Axis(), len(x.type.dimensions))
    op.require(x.type.dimensions[axis] == count, f"{count} outputs, shape {x.type.dimensions}")
    shape = tuple(1 if i == axis else extent for i, extent in enumerate(x.type.dimensions))
    parts = [op.temporary(x.type.reshaped(*shape)) for _ in range(count)]
    op.emit(OperationType.SPLIT, [x, axis, count], parts)
    for position, part in enumerate(parts):
        reshape(op, part, op.output_type(position).dimensions, position)


@operator("SPLIT")
def _split(op: Operator) -> None:
    x = op.input(1)
    op.require_type(x, _TYPES, "input")
    axis = op.axis(op.integer(0, "axis"), len(x.type.dimensions))
    op.emit(OperationType.SPLIT, [x, axis, len(op.output_tensors)])


@operator("SPLIT_V")
def _split_v(op: Operator) -> None:
    """One SLICE for each output: NNAPI splits into equal parts only."""
    x = op.input(0)
    op.require_type(x, _TYPES, "input")
    rank = len(x.type.dimensions)
    axis = op.axis(op.integer(2, "axis"), rank)
    begin = [0] * rank
    for position in range(len(op.output_tensors)):
        part = op.output(position)
        op.require(len(part.type.dimensions) == rank, f"output {position} has another rank")
        size = integers(part.type.dimensions)
        op.emit(OperationType.SLICE, [x, integers(begin), size], [part])
        begin[axis] += part.type.dimensions[axis]


@operator("TILE")
def _tile(op: Operator) -> None:
    op.require_type(op.input(0), _TYPES, "input")
    op.require_type(op.input(1), INT32, "multiples")
    op.emit(OperationType.TILE, [op.input(0), op.input(1)])
