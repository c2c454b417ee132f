"""Placing a finished model on devices: by what they report, or by what they are measured to take."""

from __future__ import annotations

import logging
import time
from collections.abc import Sequence
from dataclasses import replace
from typing import Final

from nnburst.client.memory.arguments import seconds_until
from nnburst.hal.diagnostics import vlog
from nnburst.hal.diagnostics.graph_files import write_picture
from nnburst.hal.enums import ResultCode
from nnburst.hal.environment import GRAPH_DIR
from nnburst.hal.errors import NnburstError
from nnburst.runtime.argument import Argument, BurstController, Options, Outcome
from nnburst.runtime.devices.device import Device
from nnburst.runtime.devices.manager import Manager
from nnburst.runtime.execution.executable import Executable
from nnburst.runtime.measuring.cost_file import CostFile
from nnburst.runtime.measuring.measured_placement import MeasuredPlacement
from nnburst.runtime.measuring.measuring import Measuring
from nnburst.runtime.measuring.part_timer import PartTimer
from nnburst.runtime.measuring.placement_report import PlacementReport
from nnburst.runtime.objects.model import Model
from nnburst.runtime.objects.plan_compiler import CompileOptions, PlanCompiler
from nnburst.runtime.planning.drawing.graph import plan_dot
from nnburst.runtime.planning.drawing.table import plan_table
from nnburst.runtime.planning.placement.schedule_search import Schedule
from nnburst.runtime.planning.plan import Plan
from nnburst.runtime.records import CompilationRecord
from nnburst.tracing.recording import record_if_asked
from nnburst.tracing.slices import Layer, Phase, trace

_log: Final = logging.getLogger("nnburst.runtime")


def recorded_plan(
    model: Model, devices: Sequence[Device], manager: Manager, options: CompileOptions
) -> tuple[Executable, PlacementReport | None]:
    """Place and prepare a model (RT:P1 to P20), and record it; with it what was measured, if it was.

    Raises:
        InvalidArgument: no device can run an operation.
        NnburstError: what a device answers, if there is no fallback.
    """
    compiler = PlanCompiler(model, devices, manager, options)
    began_ns = time.monotonic_ns()
    code, executable = ResultCode.OP_FAILED, None
    try:
        executable, report = _compiled(compiler, model, options)
        code = ResultCode.NO_ERROR
    except NnburstError as error:
        code = error.code
        raise
    finally:
        if manager.records.callback is not None:
            record = CompilationRecord(
                facts=compiler.facts(None if executable is None else executable.plan),
                code=code,
                duration_ns=time.monotonic_ns() - began_ns,
                fell_back_to_cpu=executable is not None and executable.fell_back,
            )
            manager.records._emit(record)
    return executable, report


def _compiled(
    compiler: PlanCompiler, model: Model, options: CompileOptions
) -> tuple[Executable, PlacementReport | None]:
    record_if_asked()
    if options.measuring is None:
        with trace(Layer.RUNTIME, Phase.COMPILATION, "place and prepare"):
            found = compiler.executable(compiler.planned()), None
        _show(found[0].plan, model)
        return found
    with trace(Layer.RUNTIME, Phase.COMPILATION, "place by measurement"):
        return measured_plan(compiler, model, _within(options.measuring, options.deadline_ns))


def _show(plan: Plan, model: Model) -> None:
    """Log the plan and draw it, if that was asked for."""
    if vlog.on("compilation"):
        vlog.write_all("compilation", plan_table(plan, model._finished_model))
    if GRAPH_DIR.is_set:
        write_picture("plan", plan_dot(plan, model._finished_model))


def measured_plan(
    compiler: PlanCompiler, model: Model, measuring: Measuring
) -> tuple[Executable, PlacementReport]:
    """The plan of least latency; by what devices report if measuring decides nothing."""
    candidates = compiler.candidates
    placement = MeasuredPlacement(
        model._finished_model,
        candidates,
        prepare=compiler.prepare,
        assemble=lambda schedule: WholePlan(compiler, schedule),
        timer=PartTimer(),
        files=[CostFile(measuring.directory, d.name, d.version_string) for d in candidates],
        budget=measuring.budget,
        progress=measuring.progress,
    )
    schedule = placement.find()
    if schedule:
        try:
            return compiler.executable(compiler.following(schedule)), placement.report
        except NnburstError as error:
            _log.warning(
                "the measured plan fails, so devices' own figures place the model: %s", error
            )
            placement.report.reason += f" It failed to prepare: {error}"
    return compiler.executable(compiler.planned()), placement.report


def _within(measuring: Measuring, deadline_ns: int | None) -> Measuring:
    """Half of the time that is left for measuring, at most: the plan is still to be prepared."""
    if deadline_ns is None:
        return measuring
    left = max(seconds_until(deadline_ns), 0)
    return replace(measuring, budget=min(measuring.budget, left / 2))


class WholePlan:
    """A whole plan as something that executes like a prepared part. A step that fails makes it fail."""

    def __init__(self, compiler: PlanCompiler, schedule: Schedule) -> None:
        """Prepare it."""
        planned = compiler.following(schedule)
        self._executable = compiler.executable(planned, may_fall_back=False)

    def revive(self, seconds: float | None, began_ns: int | None) -> None:
        """Nothing: a plan that is being measured fails if a driver dies."""

    def execute(self, inputs: list[Argument], outputs: list[Argument], options: Options) -> Outcome:
        """Execute once, without bursts."""
        return self._executable.execute(inputs, outputs, options)

    def open_burst(self) -> BurstController:
        """Bursts on all steps."""
        return _PlanBurst(self._executable)

    def close(self) -> None:
        """Release it."""
        self._executable.close()


class _PlanBurst:
    def __init__(self, executable: Executable) -> None:
        self._executable = executable
        self._bursts = executable.open_bursts()

    def revive(self, seconds: float | None, began_ns: int | None) -> None:
        """Nothing, as for the whole plan."""

    def execute(self, inputs: list[Argument], outputs: list[Argument], options: Options) -> Outcome:
        return self._executable.execute(inputs, outputs, options, self._bursts.of_parts)

    def close(self) -> None:
        self._bursts.close()
