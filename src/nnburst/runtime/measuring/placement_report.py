"""PlacementReport: what was measured, and why the plan is what it is."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import NamedTuple

from nnburst.runtime.planning.drawing.rows import text_table
from nnburst.runtime.planning.placement.schedule_search import Schedule


class MeasuredStep(NamedTuple):
    """One step that was timed by itself.

    Attributes:
        device: name of the device.
        operations: positions in run order.
        seconds: of one execution; None if it could not be timed by itself.
        is_new: whether it was timed now; else it was known from before.
    """

    device: str
    operations: tuple[int, ...]
    seconds: float | None
    is_new: bool


@dataclass(slots=True)
class PlacementReport:
    """What placement by measurement has found.

    Attributes:
        devices: names, as schedules number them.
        steps: all steps that were timed, in that order.
        crossing: for each device, seconds that a step costs there besides its operations.
        alone: for each device that can run the whole model, seconds that it takes.
        candidate: the schedule that should be fastest.
        expected: seconds that the candidate should take; None if there is no candidate.
        rounds: seconds of the best single device and of the candidate, executed in turns.
        chosen: the schedule that was taken; empty if measuring decided nothing.
        reason: why it was chosen, in one sentence.
    """

    devices: tuple[str, ...]
    steps: list[MeasuredStep] = field(default_factory=list)
    crossing: dict[str, float] = field(default_factory=dict)
    alone: dict[str, float] = field(default_factory=dict)
    candidate: Schedule = ()
    expected: float | None = None
    rounds: list[tuple[float, float]] = field(default_factory=list)
    chosen: Schedule = ()
    reason: str = ""

    def _seconds_of(self, device: str, operations: Iterable[int]) -> float | None:
        """What a device takes for operations together, by their positions in run order; None if not timed."""
        wanted = sorted(operations)
        times = [
            step.seconds
            for step in self.steps
            if step.device == device and sorted(step.operations) == wanted
        ]
        return times[-1] if times else None

    def __str__(self) -> str:
        """A table of the devices, and the reason."""
        rows = []
        for name in self.devices:
            timed = [step for step in self.steps if step.device == name]
            new = sum(step.is_new for step in timed)
            rows.append(
                (
                    name,
                    _time(self.alone.get(name)),
                    _time(self.crossing.get(name)),
                    str(len(timed)),
                    str(new),
                )
            )
        headings = ("device", "whole model", "each step", "steps timed", "of them now")
        plan = " → ".join(
            f"{self.devices[step.device]} ({len(step.operations)})" for step in self.chosen
        )
        return f"{text_table(headings, rows)}\n{self.reason}\n{plan}".rstrip()


def _time(seconds: float | None) -> str:
    return "-" if seconds is None else f"{1e3 * seconds:.3f} ms"
