"""Trailing arguments that only repeat the default, left out so that older drivers take it (RT:M12)."""

from __future__ import annotations

from collections.abc import Sequence
from struct import pack
from typing import Final, NamedTuple

from nnburst.hal.enums import OperandLifeTime, OperandType, OperationType
from nnburst.hal.model import Operand, Operation, Subgraph

_T = OperandType
_O = OperationType


class _Default(NamedTuple):
    type: OperandType
    value: bytes


_FALSE: Final = _Default(_T.BOOL, b"\0")
_ONE: Final = _Default(_T.INT32, pack("<i", 1))
_LAST_AXIS: Final = _Default(_T.INT32, pack("<i", -1))


class _Trailing(NamedTuple):
    """What one form of an operation may leave out.

    Attributes:
        kept: inputs that always stay.
        defaults: of those behind them.
        told_by: position and type of the input that tells this form from another, if any does.
        never: number of inputs that no version has: those behind come or go together.
    """

    kept: int
    defaults: tuple[_Default, ...]
    told_by: tuple[int, OperandType] | None = None
    never: int = 0

    def fits(self, inputs: Sequence[Operand]) -> bool:
        """Whether the operands have this form."""
        if not self.kept < len(inputs) <= self.kept + len(self.defaults):
            return False
        return self.told_by is None or inputs[self.told_by[0]].type == self.told_by[1]


_POOL: Final = (_Trailing(10, (_FALSE,), (7, _T.INT32)), _Trailing(7, (_FALSE,), (7, _T.BOOL)))
_CONV: Final = (_FALSE, _ONE, _ONE)
_FORMS: Final[dict[int, tuple[_Trailing, ...]]] = {
    _O.AVERAGE_POOL_2D: _POOL,
    _O.L2_POOL_2D: _POOL,
    _O.MAX_POOL_2D: _POOL,
    _O.CONV_2D: (
        _Trailing(10, _CONV, (7, _T.INT32), never=12),
        _Trailing(7, _CONV, (7, _T.BOOL), never=9),
    ),
    _O.DEPTHWISE_CONV_2D: (
        _Trailing(11, _CONV, (8, _T.INT32), never=13),
        _Trailing(8, _CONV, (8, _T.BOOL), never=10),
    ),
    _O.DEPTH_TO_SPACE: (_Trailing(2, (_FALSE,)),),
    _O.SPACE_TO_DEPTH: (_Trailing(2, (_FALSE,)),),
    _O.BATCH_TO_SPACE_ND: (_Trailing(2, (_FALSE,)),),
    _O.SPACE_TO_BATCH_ND: (_Trailing(3, (_FALSE,)),),
    _O.L2_NORMALIZATION: (_Trailing(1, (_LAST_AXIS,)),),
    _O.SOFTMAX: (_Trailing(2, (_LAST_AXIS,)),),
    _O.LOCAL_RESPONSE_NORMALIZATION: (_Trailing(5, (_LAST_AXIS,)),),
    _O.RESIZE_BILINEAR: (_Trailing(3, (_FALSE, _FALSE, _FALSE)),),
    _O.RESIZE_NEAREST_NEIGHBOR: (_Trailing(4, (_FALSE, _FALSE)),),
}


def without_trailing_arguments(graph: Subgraph, values: bytes) -> tuple[Operation, ...]:
    """The operations of a valid subgraph, each without trailing inputs that equal their defaults.

    Only values in `values` (CONSTANT_COPY) are looked at, those in memory never.
    """
    return tuple(
        _shortened(operation, graph, values) if operation.type in _FORMS else operation
        for operation in graph.operations
    )


def _shortened(operation: Operation, graph: Subgraph, values: bytes) -> Operation:
    inputs = [graph.operands[index] for index in operation.inputs]
    for form in _FORMS[operation.type]:
        if form.fits(inputs):
            count = _count_without_defaults(form, inputs, values)
            return Operation(operation.type, operation.inputs[:count], operation.outputs)
    return operation


def _count_without_defaults(form: _Trailing, inputs: Sequence[Operand], values: bytes) -> int:
    count = len(inputs)
    while count > form.kept:
        if not _says(inputs[count - 1], form.defaults[count - 1 - form.kept], values):
            break
        count -= 1
    return count + (count == form.never)


def _says(operand: Operand, default: _Default, values: bytes) -> bool:
    if operand.lifetime != OperandLifeTime.CONSTANT_COPY or operand.type != default.type:
        return False
    at = operand.location
    return values[at.offset : at.offset + at.length] == default.value
