"""Kernels of IF and WHILE, which run other graphs of the model.

NNAPI: CpuExecutor.cpp executeIfOperation, executeWhileOperation. That branches, conditions and
bodies fit their callers is a rule about whole models (validation:P10, P11), not checked here.

DEVIATES: the original's verbose log has the value of each condition. No line of this log has data; lines name
    the subgraphs that a condition chooses from.
"""

from __future__ import annotations

import time

from nnburst.executor.graph.operation import Node, kernel
from nnburst.executor.graph.tensor import Tensor
from nnburst.hal import vlog
from nnburst.hal.enums import ErrorStatus, OperationType


def _is_true(node: Node, condition: Tensor) -> bool:
    """Whether the condition's one byte is true: any value but 0."""
    node.require(
        condition.array.size == 1, f"the condition has {condition.array.size} elements, not 1"
    )
    return bool(condition.array.reshape(-1)[0])


@kernel(OperationType.IF, half=True)
def if_(node: Node) -> list[Tensor]:
    """Run the chosen branch only; its outputs are declared as the operation's own."""
    branches = node.value("then_model"), node.value("else_model")
    vlog.write("cpuexe", "IF: subgraph %d or %d by a condition", *branches)
    chosen = branches[0 if _is_true(node, node.tensor("condition")) else 1]
    return node.evaluation.call(chosen, node.inputs[3:], node.outputs_declared)


@kernel(OperationType.WHILE, half=True)
def while_(node: Node) -> list[Tensor]:
    """Loop until the condition is false, or the loop has taken longer than it may.

    The time is checked between a true condition and the body; each WHILE measures its own time.
    """
    evaluation = node.evaluation
    condition, body = node.value("condition_model"), node.value("body_model")
    vlog.write("cpuexe", "WHILE: subgraph %d as long as %d gives true", body, condition)
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
