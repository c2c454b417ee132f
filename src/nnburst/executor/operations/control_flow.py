"""Declares IF and WHILE, which execute referenced models, by their signatures and shape rules.

NNAPI: CpuExecutor.cpp executeIfOperation, executeWhileOperation. That branches, conditions and
bodies fit their callers is a rule about whole models (validation:P10, P11), not checked here.
"""

from __future__ import annotations

from collections.abc import Sequence

from nnburst.executor.graph.declarations import B8, SUBGRAPH, V1_3, control, data, row, signature
from nnburst.executor.graph.operation import declare
from nnburst.hal.enums import OperandType, OperationType
from nnburst.hal.errors import InvalidArgument
from nnburst.hal.model import ELEMENT_CODES, Operand
from nnburst.hal.signature import Match

_ANY = [kind for kind in ELEMENT_CODES if kind is not OperandType.TENSOR_OEM_BYTE]


def _check_condition(match: Match, inputs: Sequence[Operand], outputs: Sequence[Operand]) -> None:
    del match, outputs
    if inputs[0].dimensions != (1,):
        raise InvalidArgument(
            f"validation:P10: IF: operand 'condition' has dimensions {list(inputs[0].dimensions)},"
            " expected exactly [1]"
        )


declare(
    signature(
        OperationType.IF,
        V1_3,
        "Runs one of two subgraphs, chosen by a condition.",
        inputs=[
            control("condition", B8, rank=(1,)),
            control("then_model", SUBGRAPH),
            control("else_model", SUBGRAPH),
            data("input", "ANY", repeats=0, nullable=True),
        ],
        outputs=[data("output", "ANY", repeats=1)],
        rows=[row(V1_3, ANY=_ANY)],
        check=_check_condition,
    ),
    shape=None,
    zero_sized=True,
)


declare(
    signature(
        OperationType.WHILE,
        V1_3,
        "Runs a body subgraph on its own results as long as a condition subgraph gives true.",
        inputs=[
            control("condition_model", SUBGRAPH),
            control("body_model", SUBGRAPH),
            data("initial", "ANY", repeats=1, nullable=True),
        ],
        outputs=[data("output", "ANY", repeats=1)],
        rows=[row(V1_3, ANY=_ANY)],
    ),
    shape=None,
    zero_sized=True,
)
