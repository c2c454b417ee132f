"""IF and WHILE, whose subgraphs become referenced subgraphs of the model."""

from __future__ import annotations

from nnburst.hal.enums import OperationType
from nnburst.importer.subgraph import SubgraphIndex
from nnburst.importer.tflite.operator import BOOL8, Operator, operator


@operator("IF")
def _if(op: Operator) -> None:
    options = op.options("IfOptions")
    condition, *values = op.inputs() or [op.input()]
    op.require_type(condition, BOOL8, "condition")
    branches = [
        SubgraphIndex(op.reference(index))
        for index in (options.ThenSubgraphIndex(), options.ElseSubgraphIndex())
    ]
    op.emit(OperationType.IF, [condition, *branches, *values])


@operator("WHILE")
def _while(op: Operator) -> None:
    options = op.options("WhileOptions")
    parts = [
        SubgraphIndex(op.reference(index))
        for index in (options.CondSubgraphIndex(), options.BodySubgraphIndex())
    ]
    op.emit(OperationType.WHILE, [*parts, *op.inputs()])
