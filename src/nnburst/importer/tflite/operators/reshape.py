"""Operators that give the same elements another shape or another order."""

from __future__ import annotations

from nnburst.hal.enums import OperationType
from nnburst.importer.constants import integers
from nnburst.importer.subgraph import Value
from nnburst.importer.tflite.operator import FLOAT, INT32, QUANT8, Operator, operator


@operator("RESHAPE", "SQUEEZE", "EXPAND_DIMS")
def _reshape(op: Operator) -> None:
    """Shapes are known in the file, so what the operand declares about them is not looked at."""
    x, kind = op.input(), op.output_type()
    op.require_type(x, FLOAT | QUANT8 | INT32, "input")
    reshape(op, x, kind.dimensions)


def reshape(op: Operator, x: Value, dimensions: tuple[int, ...], position: int = 0) -> None:
    """Let output `position` be the elements of `x` in another shape."""
    kind = op.output_type(position)
    op.require(
        kind.elements == x.type.elements and kind.dimensions == dimensions,
        f"{x.type.dimensions} does not have the elements of {kind.dimensions}",
    )
    op.emit(OperationType.RESHAPE, [x, integers(dimensions)], [op.output(position)])


@operator("TRANSPOSE")
def _transpose(op: Operator) -> None:
    op.require_type(op.input(), FLOAT | QUANT8, "input")
    permutation = op.integers(1, "permutation")
    op.emit(OperationType.TRANSPOSE, [op.input(), integers(permutation)])


@operator("REVERSE_V2")
def _reverse(op: Operator) -> None:
    op.require_type(op.input(), FLOAT | QUANT8 | INT32, "input")
    axis = op.axis(op.integer(1, "axis"), len(op.input().type.dimensions))
    op.emit(OperationType.REVERSE, [op.input(), integers([axis])])


@operator("SHAPE")
def _shape(op: Operator) -> None:
    """Shapes are known in the file: a constant."""
    shape = integers(op.input().type.dimensions)
    op.require_type(Value(op.output_type()), INT32, "output")
    op.becomes(Value(shape.type, None, shape))


@operator("RANK")
def _rank(op: Operator) -> None:
    rank = integers([len(op.input().type.dimensions)])
    op.becomes(Value(rank.type, None, rank))


@operator("FILL")
def _fill(op: Operator) -> None:
    dimensions = op.integers(0, "dimensions")
    op.require_type(op.input(1), FLOAT | INT32, "value")
    value = op.constant_scalar(1, "value").item()
    scalar = int(value) if op.input(1).type.type in INT32 else op.real(value, op.input(1))
    op.emit(OperationType.FILL, [integers(dimensions), scalar])
