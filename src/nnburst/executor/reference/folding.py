"""Weights that DEQUANTIZE makes real, computed once for a prepared model and not in every execution."""

from __future__ import annotations

import numpy as np
from msgspec.structs import replace

from nnburst.executor.graph.binding import bind, infer
from nnburst.executor.graph.operation import Binding, OperationFailed
from nnburst.executor.graph.plan import Graph, Plan, Step
from nnburst.executor.graph.tensor import Tensor, read_only
from nnburst.hal.enums import OperationType


def folded(plan: Plan) -> Plan:
    """A plan without the DEQUANTIZE operations whose input is a constant: their outputs are constants.

    An output of a subgraph that one of them writes is still computed.
    """
    return plan.with_graphs(_folded(plan.main), tuple(map(_folded, plan.referenced)))


def _folded(graph: Graph) -> Graph:
    made: dict[int, Tensor] = {}
    steps = []
    for step in graph.steps:
        value = None if step.outputs[0] in graph.outputs else _value(graph, step)
        if value is None:
            steps.append(step)
        else:
            made[step.outputs[0]] = value
    if not made:
        return graph
    return graph.with_steps(
        tuple(_with_constants(step, made) for step in steps), {**graph.constants, **made}
    )


def _value(graph: Graph, step: Step) -> Tensor | None:
    if step.type is not OperationType.DEQUANTIZE or not step.constants:
        return None
    given = [graph.constants[step.inputs[0]]]
    declared = [graph.declared[step.outputs[0]]]
    try:
        [meta] = infer(step, given, declared, [False])
        out = Tensor(meta, np.empty(meta.dimensions, meta.dtype))
        bind(step, given, [out], declared, Binding(constants=step.constants))()
    except OperationFailed:
        return None  # it fails where it always did: when an execution is bound
    return Tensor(meta, read_only(out.array))


def _with_constants(step: Step, made: dict[int, Tensor]) -> Step:
    more = frozenset(at for at, index in enumerate(step.inputs) if index in made)
    return replace(step, constants=step.constants | more) if more else step
