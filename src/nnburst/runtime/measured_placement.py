"""Places a model by the measured times of devices, and reports the measurements."""

from __future__ import annotations

import logging
import os
import statistics
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from itertools import groupby
from math import inf
from typing import Final, NamedTuple, TypeVar

from nnburst.client.arguments import check_callable, seconds_until
from nnburst.hal.enums import ExecutionPreference, OperationType
from nnburst.hal.errors import DeadObject, InvalidArgument, NnburstError
from nnburst.hal.model import Model
from nnburst.hal.utils import check_path, is_number
from nnburst.runtime.argument import Argument, BurstController, Options, Outcome, PreparedPart
from nnburst.runtime.execution.executable import Executable
from nnburst.runtime.part_timer import (
    CostFile,
    PartTimer,
    TimedPart,
    cost_directory,
    part_signature,
)
from nnburst.runtime.planning.drawing import text_table
from nnburst.runtime.planning.finished_model import FinishedModel
from nnburst.runtime.planning.placement import CostModel, supported_operations
from nnburst.runtime.planning.plan import Candidate, ExecutionStep
from nnburst.runtime.planning.planner import DeclaredPlacement, Planner, PreparedPlan
from nnburst.runtime.planning.slices import SliceableModel, hal_model
from nnburst.runtime.planning.steps import (
    Schedule,
    ScheduledStep,
    StepCosts,
    best_schedule,
    lone_step,
    readers_wait,
)


class MeasuredStep(NamedTuple):
    """One step that was timed by itself.

    Attributes:
        device: name of the device.
        operations: positions in run order.
        seconds: seconds of one execution; None if the step could not be timed by itself.
        is_new: whether the step was timed now; otherwise the figure is from an earlier measurement.
    """

    device: str
    operations: tuple[int, ...]
    seconds: float | None
    is_new: bool


@dataclass(slots=True)
class PlacementReport:
    """The findings of placement by measurement.

    Attributes:
        devices: names of the devices, by the numbers that schedules use.
        steps: all timed steps, in the order of timing.
        crossing: for each device, seconds that a step costs besides its operations.
        alone: for each device that can run the whole model, seconds of an execution.
        candidate: the schedule with the least expected time.
        expected: expected seconds of the candidate; None if there is no candidate.
        rounds: pairs of seconds of the best single device and of the candidate, executed in turns.
        chosen: the schedule that was taken; empty if the measurement decided nothing.
        reason: the reason for the choice, in one sentence.
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
        """Seconds of a device's step with these operations (positions in run order); None if not timed."""
        wanted = sorted(operations)
        times = [
            step.seconds
            for step in self.steps
            if step.device == device and sorted(step.operations) == wanted
        ]
        return times[-1] if times else None

    def __str__(self) -> str:
        """A table of the devices, and the reason of the choice."""
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


# -- a whole plan that is timed --------------------------------------------------------------------


class WholePlan:
    """A whole plan that executes like a prepared part. If a step fails, the plan fails."""

    died_ns: Final = None

    def __init__(self, executable: Executable) -> None:
        """Own a plan without fallback."""
        self._executable = executable

    def revive(self) -> None:
        """Do nothing: a plan that is measured fails if a driver dies."""

    def execute(self, inputs: list[Argument], outputs: list[Argument], options: Options) -> Outcome:
        """Execute once, without bursts."""
        return self._executable.execute(inputs, outputs, options)

    def open_burst(self) -> BurstController:
        """Open bursts on all steps."""
        return _PlanBurst(self._executable)

    def close(self) -> None:
        """Release the plan."""
        self._executable.close()


class _PlanBurst:
    died_ns: Final = None

    def __init__(self, executable: Executable) -> None:
        self._executable = executable
        self._bursts = executable.open_bursts()

    def revive(self) -> None:
        """Do nothing, as for the whole plan."""

    def execute(self, inputs: list[Argument], outputs: list[Argument], options: Options) -> Outcome:
        return self._executable.execute(inputs, outputs, options, self._bursts)

    def close(self) -> None:
        self._bursts.close()


# -- measured placement ----------------------------------------------------------------------------


_log: Final = logging.getLogger("nnburst.runtime")
T = TypeVar("T")
#: Has a device prepare a step that is only timed.
PrepareStep = Callable[[ExecutionStep], PreparedPart]
#: Makes a whole plan from a schedule; the plan executes like a prepared part.
Assemble = Callable[[Schedule], PreparedPart]
#: Called with the number of timed steps, and the number of steps as far as it is known.
Progress = Callable[[int, int], None]

#: Pairs of executions of two plans, and the number of pairs in which the compound plan must be faster.
ROUNDS: Final = 10
NEEDED: Final = 8
_WARM_UP: Final = 2

#: Devices whose reported cost is at most this multiple of the least cost are tried on a whole model.
_NEAR: Final = 2.0
#: The first device keeps a model if its time is at most this multiple of the least time.
_AS_GOOD: Final = 1.02


def may_round_at_weights(model: Model) -> bool:
    """Whether a model's real numbers may be rounded to 8 bits where they are combined with 8-bit weights.

    Such a model stays on the device with the best report, even if another one is faster. Among the engines
    this is LiteRT, which such files were made for (ADR 29). Other engines round in the same way, but may
    round a number between two steps to the other side, and later layers amplify the difference.
    """
    main = model.main
    return model.relax_computation_float32_to_float16 and any(
        operation.type == OperationType.DEQUANTIZE
        and main.operands[operation.inputs[0]].is_constant
        for operation in main.operations
    )


class MeasuredPlacement:
    """Times operations and steps, searches the best schedule, and compares it with the best single device.

    Only steps that matter are timed: each device's longest runs, each operation once for its signature, then
    the steps of the best schedule so far, until all of them are timed or the budget is spent.

    Attributes:
        report: the measurements so far.
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
        otherwise: DeclaredPlacement | None = None,
    ) -> None:
        """Keep the arguments; nothing is measured yet.

        Args:
            source: the model.
            devices: the devices, in the order of the list.
            prepare: has a device prepare a step.
            assemble: makes a whole plan from a schedule.
            timer: times the parts.
            files: for each device, the figures of earlier measurements.
            budget: seconds after which nothing new is timed.
            progress: called after each timed step.
            otherwise: places the model if the measurement decides nothing, or if the measured plan fails;
                `find` does not need it.
        """
        self._otherwise = otherwise
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

    def place(self, planner: Planner[T]) -> PreparedPlan[T]:
        """Make the plan of least latency; place by declared costs if the measurement decides nothing.

        Raises:
            NnburstError: the plan by declared costs fails, too.
        """
        schedule = self.find()
        if schedule:
            try:
                return planner.follow(schedule)
            except NnburstError as error:
                _log.warning(
                    "the measured plan fails, so devices' own figures place the model: %s", error
                )
                self.report.reason += f" It failed to prepare: {error}"
        assert self._otherwise is not None
        return self._otherwise.place(planner)

    def find(self) -> Schedule:
        """Find the schedule to follow; empty if no schedule runs the model. `report` has the reason."""
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

    def find_whole(self) -> Schedule:
        """Find the fastest device for the whole model; empty if there is no other to compare with the first.

        Each device is timed once on this kind of machine. A device that reports a much higher cost than the
        best one is not tried: starting it would cost more than it can gain.
        """
        report = self.report
        everything = tuple(range(len(self._source.model.main.operations)))
        costs = [
            CostModel(self._source, each.capabilities, ExecutionPreference.FAST_SINGLE_ANSWER).whole
            for each in self._devices
        ]
        near = [n for n, cost in enumerate(costs) if cost <= _NEAR * min(costs)]
        if len(near) < 2:
            return ()
        timed = {}
        for device in near:
            seconds = self._time(ScheduledStep(device, everything))
            if seconds is not None:
                timed[device] = seconds
        report.alone.update({self._devices[n].name: seconds for n, seconds in timed.items()})
        for file in self._files:
            file.save()
        if timed.keys() <= {0}:
            return ()
        best = min(timed, key=lambda n: timed[n])
        if 0 in timed and timed[0] <= _AS_GOOD * timed[best]:
            best = 0
        report.candidate = report.chosen = (ScheduledStep(best, everything),)
        report.expected = timed[best]
        report.reason = (
            f"{self._devices[best].name} is the fastest for the whole model, or as fast."
        )
        return report.chosen

    @property
    def _is_spent(self) -> bool:
        return self._timer.clock() - self._began > self._budget

    def _support(self) -> list[list[bool]]:
        sliceable = SliceableModel(self._whole)
        return [supported_operations(device, sliceable, self._pools) for device in self._devices]

    def _time_singles(self, support: Sequence[Sequence[bool]]) -> list[dict[int, float]]:
        """For each device, the seconds of each operation as a step of its own."""
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
        """Time each device's longest runs of operations: the whole model if it supports all."""
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
        """Estimate fixed and single costs from the measurements; operations that were not timed cost 0."""
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
        """Seconds that a step takes by itself; None if it cannot be timed, or the budget is spent."""
        if step in self._timed:
            return self._timed[step]
        if self._is_spent:
            return None
        seconds, is_new = None, False
        name = self._devices[step.device].name
        try:
            part = lone_step(self._source, step, self._devices[step.device])
            signature, file = part_signature(part.model), self._files[step.device]
            seconds = file.get(signature)
            if seconds is None and not file.is_refused(signature):
                is_new = True
                try:
                    seconds = self._measure(part)
                    file.put(signature, seconds)
                except InvalidArgument:
                    file.put(signature)
                    raise
        except DeadObject as error:
            _log.warning(
                "device %s is not compared for this model until it is compiled again: its driver died"
                " while it was timed: %s",
                name,
                error,
            )
        except NnburstError:
            pass  # such a step cannot be timed by itself; a plan with it is compared as a whole
        self._timed[step] = seconds
        self.report.steps.append(MeasuredStep(name, step.operations, seconds, is_new))
        if self._progress is not None:
            self._progress(len(self._timed), max(len(self._timed), self._expected))
        return seconds

    def _measure(self, step: ExecutionStep) -> float:
        part = self._prepare(step)
        try:
            # A plan is not the best if one of its steps takes longer than another device takes for all.
            hopeless = min(self.report.alone.values(), default=inf)
            return self._timer.seconds(step.model, part, hopeless)
        finally:
            part.close()

    def _decide(self, schedule: Schedule, support: Sequence[Sequence[bool]]) -> Schedule:
        """The candidate, unless one device alone is as fast; put the reason into the report."""
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
    """Runs of two or more supported operations in run order; the whole model even if it is one operation."""
    runs = []
    for can, group in groupby(enumerate(supported), key=lambda pair: pair[1]):
        run = tuple(number for number, _ in group)
        if can and (len(run) > 1 or len(run) == len(supported)):
            runs.append(run)
    return runs


def _fixed_cost(singles: dict[int, float], runs: dict[ScheduledStep, float]) -> float:
    """The cost of a step besides its operations: the time that runs save over their single operations."""
    saved = [
        (sum(singles[number] for number in step.operations) - seconds) / (len(step.operations) - 1)
        for step, seconds in runs.items()
        if len(step.operations) > 1 and all(number in singles for number in step.operations)
    ]
    if not saved:
        return 0.0
    return min(max(statistics.median(saved), 0.0), min(singles.values()))


# -- how to measure --------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Measuring:
    """Options of placement by measurement.

    Attributes:
        budget: seconds after which nothing new is timed.
        progress: called after each timed step, with the number of steps timed so far and the expected number.
        directory: directory that keeps the figures for later measurements; None to keep nothing. By
            default `nnburst/costs` in the user's cache directory.
    """

    budget: float = 30.0
    progress: Progress | None = None
    directory: str | os.PathLike[str] | None = field(default_factory=cost_directory)

    def __post_init__(self) -> None:
        """Check the options.

        Raises:
            InvalidArgument: one is of the wrong kind, or the budget is negative.
        """
        if isinstance(self.budget, bool) or not is_number(self.budget) or not self.budget >= 0:
            raise InvalidArgument(f"budget is {self.budget!r}, expected a number of seconds from 0")
        if self.progress is not None:
            check_callable("progress", self.progress)
        if self.directory is not None:
            check_path("directory", self.directory)


def within(measuring: Measuring, deadline_ns: int | None) -> Measuring:
    """Limit the budget to half of the time left, since the plan must still be prepared."""
    if deadline_ns is None:
        return measuring
    left = max(seconds_until(deadline_ns), 0)
    return replace(measuring, budget=min(measuring.budget, left / 2))
