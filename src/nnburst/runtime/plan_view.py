"""PlanView: a plan as people read it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from nnburst.runtime.planning.drawing.graph import plan_dot, plan_mermaid
from nnburst.runtime.planning.drawing.table import plan_table
from nnburst.runtime.planning.models.finished_model import FinishedModel
from nnburst.runtime.planning.plan import CompoundPlan, GotoStep, Plan, Step


class PlanView:
    """A plan with the model that it is for. Immutable, thread-safe; `str` of it is a table."""

    def __init__(
        self,
        plan: Plan,
        source: FinishedModel,
        estimated: Mapping[int, float | str],
        measured: Mapping[int, float],
    ) -> None:
        """Show a plan.

        Args:
            plan: the plan.
            source: the model that it was made for.
            estimated: what steps should take: seconds, or a text, by index.
            measured: seconds that steps took last, by index.
        """
        self._plan: Final = plan
        self._source: Final = source
        self._estimated: Final = dict(estimated)
        self._measured: Final = dict(measured)

    @property
    def devices(self) -> tuple[str, ...]:
        """Names of the devices that execute, in order of their first step."""
        plan = self._plan
        steps = plan.execution_steps if isinstance(plan, CompoundPlan) else (plan,)
        return tuple(dict.fromkeys(plan.devices[step.device] for step in steps))

    @property
    def steps(self) -> tuple[Step, ...]:
        """The plan's steps without its jumps; empty if one device has the whole model."""
        if not isinstance(self._plan, CompoundPlan):
            return ()
        return tuple(step for step in self._plan.steps if not isinstance(step, GotoStep))

    def __str__(self) -> str:
        """A table, one line a step: device, operations, values, bytes across, times.

        The estimated time is what placement by measurement has timed, else the part of the CPU's time that
        the device reports to take.
        """
        return plan_table(
            self._plan, self._source, estimated=self._estimated, measured=self._measured
        )

    def dot(self) -> str:
        """The plan as a graph in the DOT language."""
        return plan_dot(self._plan, self._source)

    def mermaid(self) -> str:
        """The plan as a mermaid flowchart."""
        return plan_mermaid(self._plan, self._source)
