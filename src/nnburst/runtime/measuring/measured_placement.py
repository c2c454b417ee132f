"""MeasuredPlacement: the plan of least latency by what devices really take (framework, point 6)."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from itertools import groupby
from math import inf
from typing import Final

from nnburst.hal.errors import NnburstError
from nnburst.runtime.argument import PreparedPart
from nnburst.runtime.measuring.cost_file import CostFile
from nnburst.runtime.measuring.part_signature import part_signature
from nnburst.runtime.measuring.part_timer import PartTimer, TimedPart
from nnburst.runtime.measuring.placement_report import MeasuredStep, PlacementReport
from nnburst.runtime.planning.candidate import Candidate
from nnburst.runtime.planning.models.finished_model import FinishedModel
from nnburst.runtime.planning.models.hal_model import hal_model
from nnburst.runtime.planning.models.slices import SliceableModel
from nnburst.runtime.planning.placement.schedule_search import (
    Schedule,
    ScheduledStep,
    StepCosts,
    best_schedule,
)
from nnburst.runtime.planning.placement.support import supported_operations
from nnburst.runtime.planning.plan import ExecutionStep
from nnburst.runtime.planning.steps.scheduled_steps import lone_step, readers_wait

#: Has a device prepare a step that is only timed.
PrepareStep = Callable[[ExecutionStep], PreparedPart]
#: A whole plan by a schedule, as something that executes like a prepared part.
Assemble = Callable[[Schedule], PreparedPart]
#: Told how many steps are timed, and how many there are as far as is known.
Progress = Callable[[int, int], None]

#: Alternating executions of two plans, and in how many of them the compound one must be the faster.
ROUNDS: Final = 10
NEEDED: Final = 8
_WARM_UP: Final = 2


class MeasuredPlacement:
    """Times operations and steps, searches, and compares what it finds with the best single device.

    Steps are timed if it matters: each device's longest runs, each operation once by its signature, then
    what the best schedule so far consists of, until nothing in it is a guess or the budget is spent.
    """

    def __init__(
        self,
        source: FinishedModel,
        devices: Sequence[Candidate],
        *,
        prepare: PrepareStep,
        assemble: Assemble,
        timer: PartTimer,
        files: Sequence[CostFile],
        budget: float = 30.0,
        progress: Progress | None = None,
    ) -> None:
        """Measure nothing yet.

        Args:
            source: the model.
            devices: in the order of the list.
            prepare: has a device prepare a step.
            assemble: makes a whole plan of a schedule.
            timer: what times.
            files: of each device what is known from before.
            budget: seconds after which nothing new is timed.
            progress: called after each step.
        """
        self._source = source
        self._devices = devices
        self._prepare = prepare
        self._assemble = assemble
        self._timer = timer
        self._files = files
        self._budget = budget
        self._progress = progress
        self._began = timer.clock()
        self._expected = 0
        self._timed: dict[ScheduledStep, float | None] = {}
        self._whole, self._pools = hal_model(source)
        self.report: Final = PlacementReport(tuple(device.name for device in devices))

    def find(self) -> Schedule:
        """The schedule to follow; empty if no schedule runs the model. `report` has the reason."""
        support = self._support()
        self._expected = sum(map(sum, support)) + 2 * len(support)
        runs = self._time_runs(support)
        singles = self._time_singles(support)
        costs = self._costs(support, singles, runs)
        waits = readers_wait(self._source)
        schedule = best_schedule(waits, costs)
        while schedule and (new := [step for step in schedule if step not in self._timed]):
            if self._is_spent:
                break
            for step in new:
                seconds = self._time(step)
                costs.known[step.device, step.mask] = inf if seconds is None else seconds
            schedule = best_schedule(waits, costs)
        for file in self._files:
            file.save()
        self.report.candidate = schedule
        self.report.expected = sum(map(costs.of, schedule)) if schedule else None
        self.report.chosen = self._decide(schedule, support)
        return self.report.chosen

    @property
    def _is_spent(self) -> bool:
        return self._timer.clock() - self._began > self._budget

    def _support(self) -> list[list[bool]]:
        sliceable = SliceableModel(self._whole)
        return [supported_operations(device, sliceable, self._pools) for device in self._devices]

    def _time_singles(self, support: Sequence[Sequence[bool]]) -> list[dict[int, float]]:
        """Of each device, what each of its operations takes as a step of its own."""
        found: list[dict[int, float]] = []
        for device, supported in enumerate(support):
            taken = {}
            for number, can in enumerate(supported):
                seconds = self._time(ScheduledStep(device, (number,))) if can else None
                if seconds is not None:
                    taken[number] = seconds
            found.append(taken)
        return found

    def _time_runs(self, support: Sequence[Sequence[bool]]) -> dict[ScheduledStep, float]:
        """What each device's longest runs of operations take; the whole model if it supports all."""
        found = {}
        for device, supported in enumerate(support):
            for run in _runs(supported):
                step = ScheduledStep(device, run)
                seconds = self._time(step)
                if seconds is not None:
                    found[step] = seconds
                    if len(run) == len(supported):
                        self.report.alone[self._devices[device].name] = seconds
        return found

    def _costs(
        self,
        support: Sequence[Sequence[bool]],
        singles: Sequence[dict[int, float]],
        runs: dict[ScheduledStep, float],
    ) -> StepCosts:
        """Fixed and single costs that explain the measurements; what could not be timed costs nothing."""
        costs = StepCosts([], [])
        for device, (supported, taken) in enumerate(zip(support, singles, strict=True)):
            fixed = _fixed_cost(taken, {s: t for s, t in runs.items() if s.device == device})
            self.report.crossing[self._devices[device].name] = fixed
            costs.fixed.append(fixed)
            costs.single.append(
                [
                    max(taken.get(number, fixed) - fixed, 0.0) if can else inf
                    for number, can in enumerate(supported)
                ]
            )
        for step, seconds in self._timed.items():
            if seconds is not None:
                costs.known[step.device, step.mask] = seconds
        return costs

    def _time(self, step: ScheduledStep) -> float | None:
        """What a step takes by itself; None if it cannot be timed, or the budget is spent."""
        if step in self._timed:
            return self._timed[step]
        if self._is_spent:
            return None
        seconds, is_new = None, False
        try:
            part = lone_step(self._source, step, self._devices[step.device])
            signature, file = part_signature(part.model), self._files[step.device]
            seconds = file.get(signature)
            if seconds is None:
                is_new = True
                seconds = self._measure(part)
                file.put(signature, seconds)
        except NnburstError:
            pass  # such a step has no time of its own; a plan with it is compared as a whole
        self._timed[step] = seconds
        name = self._devices[step.device].name
        self.report.steps.append(MeasuredStep(name, step.operations, seconds, is_new))
        if self._progress is not None:
            self._progress(len(self._timed), max(len(self._timed), self._expected))
        return seconds

    def _measure(self, step: ExecutionStep) -> float:
        part = self._prepare(step)
        try:
            # No plan with a step that takes longer than a whole model elsewhere can be the best.
            hopeless = min(self.report.alone.values(), default=inf)
            return self._timer.seconds(step.model, part, hopeless)
        finally:
            part.close()

    def _decide(self, schedule: Schedule, support: Sequence[Sequence[bool]]) -> Schedule:
        """The candidate, unless one device alone is as fast; notes why."""
        report = self.report
        alone = [n for n, device in enumerate(self._devices) if device.name in report.alone]
        if not schedule or (not alone and any(map(all, support))):
            report.reason = (
                "The model could not be timed: it is placed by the costs that devices report."
            )
            return ()
        if len(schedule) == 1:
            report.reason = f"{self._name(schedule)} alone is the fastest."
            return schedule
        if not alone:
            report.reason = "No device can run the whole model: this is the fastest plan found."
            return schedule
        best = min(alone, key=lambda n: report.alone[self._devices[n].name])
        whole: Schedule = (ScheduledStep(best, tuple(range(len(support[best])))),)
        return schedule if self._is_faster(schedule, whole) else whole

    def _is_faster(self, schedule: Schedule, whole: Schedule) -> bool:
        """Whether alternating executions show that a plan beats its best single device."""
        report = self.report
        try:
            for one, several in self._alternate(whole, schedule):
                report.rounds.append((one, several))
        except NnburstError as error:
            report.reason = (
                f"{self._name(whole)} alone: the plan of several steps failed ({error})."
            )
            return False
        faster = sum(several < one for one, several in report.rounds)
        medians = [statistics.median(column) for column in zip(*report.rounds, strict=True)]
        shown = faster >= NEEDED and medians[1] < medians[0]
        verdict = "beats" if shown else "does not beat"
        report.reason = (
            f"A plan of {len(schedule)} steps {verdict} {self._name(whole)} alone: faster in {faster} of"
            f" {len(report.rounds)} alternating runs, {1e3 * medians[1]:.3f} ms against"
            f" {1e3 * medians[0]:.3f} ms."
        )
        return shown

    def _alternate(self, first: Schedule, second: Schedule) -> Iterator[tuple[float, float]]:
        with ExitStack() as stack:
            timed = []
            for schedule in (first, second):
                part = self._assemble(schedule)
                stack.callback(part.close)
                timed.append(stack.enter_context(TimedPart(self._whole, part, self._timer.clock)))
            for _ in range(_WARM_UP):
                for one in timed:
                    one.seconds()
            for _ in range(ROUNDS):
                yield timed[0].seconds(), timed[1].seconds()

    def _name(self, schedule: Schedule) -> str:
        return self._devices[schedule[0].device].name


def _runs(supported: Sequence[bool]) -> list[tuple[int, ...]]:
    """Runs of two and more operations of the run order that a device supports; a lone whole model, too."""
    runs = []
    for can, group in groupby(enumerate(supported), key=lambda pair: pair[1]):
        run = tuple(number for number, _ in group)
        if can and (len(run) > 1 or len(run) == len(supported)):
            runs.append(run)
    return runs


def _fixed_cost(singles: dict[int, float], runs: dict[ScheduledStep, float]) -> float:
    """What a step costs besides its operations: what runs save against their operations one by one."""
    saved = [
        (sum(singles[number] for number in step.operations) - seconds) / (len(step.operations) - 1)
        for step, seconds in runs.items()
        if len(step.operations) > 1 and all(number in singles for number in step.operations)
    ]
    if not saved:
        return 0.0
    return min(max(statistics.median(saved), 0.0), min(singles.values()))
