"""What steps should take, by what devices report of their speed."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from nnburst.compat.layouts.performance import FLT_MAX
from nnburst.hal.capabilities import Capabilities
from nnburst.hal.enums import ExecutionPreference
from nnburst.runtime.planning.models.finished_model import FinishedModel
from nnburst.runtime.planning.placement.cost import CostModel
from nnburst.runtime.planning.plan import Plan, SimplePlan


class Share(NamedTuple):
    """What a step does.

    Attributes:
        step: its index; 0 for a simple plan.
        device: position among the planned devices.
        subgraph: that its operations belong to.
        operations: their positions in run order.
    """

    step: int
    device: int
    subgraph: int
    operations: tuple[int, ...]


def shares(plan: Plan, source: FinishedModel) -> list[Share]:
    """Of all steps that devices execute."""
    if isinstance(plan, SimplePlan):
        return [Share(0, plan.device, 0, tuple(range(len(source.model.main.operations))))]
    return [
        Share(step.index, step.device, plan.source_models[step.source_model], step.operations)
        for step in plan.execution_steps
    ]


def reported_estimates(
    plan: Plan,
    source: FinishedModel,
    capabilities: Sequence[Capabilities],
    preference: ExecutionPreference,
) -> dict[int, str]:
    """For each step the mean of what its operations cost, as a part of what the CPU takes (RT:P5).

    Args:
        plan: the plan.
        source: the model that it was made for.
        capabilities: of the plan's devices, in their order.
        preference: that the model was placed by: with LOW_POWER the parts are of power, else of time.

    Returns:
        Texts like "0.50 × CPU" by the index of the step; none for a step whose device reports nothing.
    """
    found = {}
    for index, device, subgraph, positions in shares(plan, source):
        model = CostModel(source, capabilities[device], preference)
        operations = source.subgraph(subgraph).operations
        costs = [model.cost(operations[position], subgraph) for position in positions]
        mean = sum(costs) / len(costs) if costs else FLT_MAX
        if mean < FLT_MAX / max(len(costs), 1):
            found[index] = f"{mean:.2f} × CPU"
    return found
