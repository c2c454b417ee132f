"""IF and WHILE: they run subgraphs of the model.

NNAPI: CpuExecutor.cpp executeIfOperation, executeWhileOperation. That branches, conditions and
bodies fit their callers is a rule about whole models (validation:P10, P11), not checked here.
"""

from __future__ import annotations

import time
from collections.abc import Sequence

from nnburst.executor.graph.operation import Node, operation
from nnburst.executor.graph.signatures import (
    B8,
    SUBGRAPH,
    V1_3,
    control,
    data,
    row,
    signature,
)
from nnburst.executor.graph.tensor import Tensor
from nnburst.hal.enums import ErrorStatus, OperandType, OperationType
from nnburst.hal.errors import InvalidArgument
from nnburst.hal.model import Operand
from nnburst.hal.operand_types import DTYPES
from nnburst.hal.signature import Match

_ANY = [kind for kind in DTYPES if kind is not OperandType.TENSOR_OEM_BYTE]


def _check_condition(match: Match, inputs: Sequence[Operand], outputs: Sequence[Operand]) -> None:
    del match, outputs
    if inputs[0].dimensions != (1,):
        raise InvalidArgument(
            f"validation:P10: IF: operand 'condition' has dimensions {list(inputs[0].dimensions)},"
            " expected exactly [1]"
        )


def _is_true(node: Node, condition: Tensor) -> bool:
    """The condition's one byte: any value but 0 is true."""
    node.require(
        condition.array.size == 1, f"the condition has {condition.array.size} elements, not 1"
    )
    return bool(condition.array.reshape(-1)[0])


@operation(
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
    half=True,
    zero_sized=True,
)
def if_(node: Node) -> list[Tensor]:
    """Run the chosen branch only; its outputs are declared as the operation's own."""
    chosen = "then_model" if _is_true(node, node.tensor("condition")) else "else_model"
    return node.evaluation.call(node.value(chosen), node.inputs[3:], node.outputs_declared)


@operation(
    signature(
        OperationType.WHILE,
        V1_3,
        "Runs a body subgraph on its own results as long as a condition subgraph says so.",
        inputs=[
            control("condition_model", SUBGRAPH),
            control("body_model", SUBGRAPH),
            data("initial", "ANY", repeats=1, nullable=True),
        ],
        outputs=[data("output", "ANY", repeats=1)],
        rows=[row(V1_3, ANY=_ANY)],
    ),
    shape=None,
    half=True,
    zero_sized=True,
)
def while_(node: Node) -> list[Tensor]:
    """Loop until the condition is false, or the loop has taken longer than it may.

    The time is looked at between a true condition and the body, and each WHILE measures its own.
    """
    evaluation = node.evaluation
    condition, body = node.value("condition_model"), node.value("body_model")
    values = list(node.inputs[2:])
    # A condition that runs the body's subgraph, too, overwrites what the body has returned.
    overwritten = evaluation.reaches(condition, body)
    started = time.monotonic_ns()
    while _is_true(node, evaluation.call(condition, values)[0]):
        if time.monotonic_ns() - started > evaluation.loop_timeout_ns:
            raise node.failure(
                f"the loop ran longer than {evaluation.loop_timeout_ns} ns",
                ErrorStatus.MISSED_DEADLINE_TRANSIENT,
            )
        results = evaluation.call(body, values)
        if overwritten:
            results = [Tensor(result.meta, result.array.copy()) for result in results]
        values[: len(results)] = results
    return [_present(node, value) for value in values[: len(node.outputs_declared)]]


def _present(node: Node, value: Tensor | None) -> Tensor:
    if value is None:
        raise node.failure("an output of a loop without iterations is omitted")
    return value
