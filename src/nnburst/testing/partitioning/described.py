"""A plan in the words of the file of expected plans."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from nnburst.runtime.planning.models.finished_model import FinishedModel
from nnburst.runtime.planning.plan import (
    CompoundPlan,
    ExecutionStep,
    GotoStep,
    IfStep,
    OperandPair,
    Plan,
    SimplePlan,
    Step,
    StepRole,
    WhileStep,
)


def described(plan: Plan, source: FinishedModel) -> dict[str, Any]:
    """Every field of a plan."""
    if isinstance(plan, SimplePlan):
        return {"kind": "SIMPLE", "device": plan.devices[plan.device]}
    return {
        "kind": "COMPOUND",
        "steps": [_step(step, plan, source) for step in plan.steps],
        "source_models": list(plan.source_models),
        "dynamic_temporaries": [list(operand) for operand, _ in plan.dynamic_temporaries],
        "roles": {"inputs": _roles(plan.input_roles), "outputs": _roles(plan.output_roles)},
    }


def _step(step: Step, plan: CompoundPlan, source: FinishedModel) -> dict[str, Any]:
    if isinstance(step, GotoStep):
        return {"kind": "GOTO", "to": step.target}
    order = source.run_orders[plan.source_models[step.source_model]]
    if isinstance(step, ExecutionStep):
        return {
            "kind": "EXECUTION",
            "model": step.source_model,
            "device": plan.devices[step.device],
            "operations": [order[n] for n in step.operations],
            "model_inputs": _sources(step.model_inputs),
            "model_outputs": _sources(step.model_outputs),
            "temps_in": _sources(step.temps_in),
            "temps_out": _sources(step.temps_out),
            "outputs_in": _sources(step.outputs_in),
            "downstream_outputs": list(step.downstream_outputs),
        }
    common = {
        "model": step.source_model,
        "operation": order[step.operation],
        "outer_inputs": list(step.outer_inputs),
        "outer_outputs": list(step.outer_outputs),
    }
    if isinstance(step, IfStep):
        return {
            "kind": "IF",
            **common,
            "condition": [step.source_model, step.condition],
            "then": step.then_step,
            "else": step.else_step,
            "models": [step.then_model, step.else_model],
        }
    return {"kind": "WHILE", **common, **_while(step)}


def _while(step: WhileStep) -> dict[str, Any]:
    return {
        "cond": step.cond_step,
        "body": step.body_step,
        "exit": step.exit_step,
        "models": [step.cond_model, step.body_model],
    }


def _sources(pairs: Sequence[OperandPair]) -> list[int]:
    return [pair.source for pair in pairs]


def _roles(roles: Sequence[Sequence[StepRole]]) -> list[list[list[object]]]:
    return [sorted([role.step, role.direction.value] for role in found) for found in roles]
