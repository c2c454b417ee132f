"""Compiles a model: takes settings, and in `finish` places the model and has it prepared."""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Sequence
from functools import partial
from typing import Final

import numpy as np

from nnburst.client.arguments import boottime_deadline_ns
from nnburst.hal import vlog
from nnburst.hal.enums import NDK_PRIORITIES, ExecutionPreference, ResultCode
from nnburst.hal.environment import GRAPH_DIR
from nnburst.hal.errors import BadState, InvalidArgument, NnburstError, UnexpectedNull
from nnburst.hal.graph_dump import write_picture
from nnburst.hal.model import Operand
from nnburst.hal.utils import lasting_path
from nnburst.hal.validation.operation import CONTROL_FLOW
from nnburst.hal.validation.values import validate_cache_token
from nnburst.runtime.argument import PreparedPart
from nnburst.runtime.devices.device import Device, PartOptions, PlacedDevices
from nnburst.runtime.devices.manager import Manager
from nnburst.runtime.execution.executable import Executable, Interface
from nnburst.runtime.execution.temporaries import Source
from nnburst.runtime.extensions import AttributeList
from nnburst.runtime.measured_placement import (
    MeasuredPlacement,
    Measuring,
    PlacementReport,
    WholePlan,
    may_round_at_weights,
    within,
)
from nnburst.runtime.objects.burst import Burst
from nnburst.runtime.objects.execution import Execution
from nnburst.runtime.objects.execution_settings import nanoseconds
from nnburst.runtime.objects.model import Model, pools_of
from nnburst.runtime.part_timer import CostFile, PartTimer
from nnburst.runtime.planning.drawing import plan_dot, plan_table
from nnburst.runtime.planning.placement import reported_estimates, shares
from nnburst.runtime.planning.plan import (
    CompoundPlan,
    Direction,
    MemoryPreference,
    PartitioningMode,
    Plan,
)
from nnburst.runtime.planning.planner import DeclaredPlacement, Placement, Planner, PreparedPlan
from nnburst.runtime.records import CompilationRecord, PlanFacts, PlanRecorder, operand_class
from nnburst.runtime.runtime_object import RuntimeObject
from nnburst.tracing.recording import record_if_asked
from nnburst.tracing.slices import Layer, Phase, trace

_log: Final = logging.getLogger("nnburst.runtime")
#: Limits of trying engines on a whole model: seconds in all, and executions of each. Many are needed: the
#: first hundred executions of a small network may take twice as long as later ones.
_TRIAL_SECONDS: Final = 10.0
_TRIAL_ROUNDS: Final = 10_000
_PRIORITIES: Final = {code: priority for priority, code in NDK_PRIORITIES.items()}


class Compilation(RuntimeObject):
    """A model that is placed on devices and prepared (NNAPI: ANeuralNetworksCompilation).

    Not thread-safe until it is finished; then executions of it may compute on any threads.

    NNAPI: RT:C1 to C4, CompilationBuilder.cpp.

    Attributes:
        model: the model to compile; kept alive.
        devices: the devices that may be used, in order. There is no fallback if the caller listed them.
    """

    def __init__(
        self,
        model: Model,
        devices: Sequence[Device] | None = None,
        *,
        manager: Manager | None = None,
    ) -> None:
        """Begin a compilation; `finish` compiles.

        Args:
            model: a finished model.
            devices: the devices to use, without fallback; by default all of the manager's.
            manager: the manager; that of this process unless given.

        Raises:
            UnexpectedNull: the model, or an entry of the list, is None.
            InvalidArgument: the list is empty, or has a device twice or one that the manager lacks; BAD_DATA.
            BadState: the model is not finished, or not valid; or this is a forked child, and the manager is
                its parent's.
            Closed: the manager is closed.
        """
        super().__init__()
        if model is None:
            raise UnexpectedNull("model: it is None")
        self._manager: Final = Manager.of_process() if manager is None else manager
        self._manager._check_open()
        listed = None if devices is None else self._manager._check_devices(devices)
        model._check_open()
        model._finished_model  # noqa: B018 - checks the state
        self.model: Final = model
        self._is_explicit: Final = listed is not None
        self.devices: Final = tuple(self._manager.devices if listed is None else listed)
        self._preference = ExecutionPreference.FAST_SINGLE_ANSWER
        self._priority = 100
        self._timeout_ns: int | None = None
        self._caching: tuple[str, bytes] | None = None
        self._completed = False
        self._measuring: Measuring | None = None
        self._may_fall_back = self._waits_for_drivers = True
        self._limits_steps = self._tries_engines = False
        self._attributes: Final = AttributeList()
        self._placement_report: PlacementReport | None = None
        self._executable: Executable | None = None

    # -- settings --------------------------------------------------------------------------------------------

    @property
    def preference(self) -> int:
        """The goal to optimise for, an `ExecutionPreference`; FAST_SINGLE_ANSWER unless set.

        Raises:
            BadState: the preference is set after the compilation was finished.
            InvalidArgument: the preference is set to an unknown value; BAD_DATA.
        """
        return self._preference

    @preference.setter
    def preference(self, value: int) -> None:
        self._check_building("preference")
        try:
            self._preference = ExecutionPreference(value)
        except ValueError:
            raise InvalidArgument(f"preference: {value}, expected 0, 1 or 2") from None

    @property
    def priority(self) -> int:
        """The priority: 90 (LOW), 100 (MEDIUM, the default) or 110 (HIGH).

        Raises:
            BadState: the priority is set after the compilation was finished.
            InvalidArgument: the priority is set to another value; BAD_DATA.
        """
        return self._priority

    @priority.setter
    def priority(self, value: int) -> None:
        self._check_building("priority")
        if value not in _PRIORITIES:
            raise InvalidArgument(f"priority: {value}, expected 90, 100 or 110")
        self._priority = value

    @property
    def timeout(self) -> float | None:
        """Seconds that `finish` may take; None and 0 for no limit. Needs one explicit device.

        Raises:
            BadState: the timeout is set after the compilation was finished.
            InvalidArgument: the timeout is set to less than 0, or without one explicit device; BAD_DATA.
        """
        return None if self._timeout_ns is None else self._timeout_ns / 1e9

    @timeout.setter
    def timeout(self, seconds: float | None) -> None:
        self._check_building("timeout")
        self._check_one_device("timeout")
        self._timeout_ns = nanoseconds("timeout", seconds)

    def limit(self, seconds: float) -> None:
        """Limit the time of `finish`, for any devices; steps still get no deadline (RT:P16).

        Args:
            seconds: seconds that `finish` may take; 0 for no limit.

        Raises:
            BadState: the compilation is finished.
            InvalidArgument: `seconds` is less than 0; BAD_DATA.
        """
        self._check_building("limit")
        self._timeout_ns = nanoseconds("limit", seconds)

    def set_caching(self, directory: str | os.PathLike[str], token: bytes) -> None:
        """Let devices keep cache files in `directory`; `token` identifies the model (RT:K1 to K4).

        Raises:
            UnexpectedNull: an argument is None.
            BadState: the compilation is finished.
            InvalidArgument: the token does not have 32 bytes; BAD_DATA.
        """
        if directory is None or token is None:
            raise UnexpectedNull("set_caching: directory or token is None")
        self._check_building("set_caching")
        validate_cache_token(token)
        self._caching = lasting_path(os.fsdecode(directory)), bytes(token)

    def add_extension_attribute(
        self, extension: str, code: int, value: bytes | memoryview = b""
    ) -> None:
        """Give the device an attribute of a vendor extension for this compilation.

        Needs one explicit device, which reads or ignores the attribute. A device below level 8 never gets it,
        which is logged.

        Args:
            extension: name of the extension.
            code: code of the attribute, 16 bits.
            value: bytes of the attribute.

        Raises:
            UnexpectedNull: `extension` or `value` is None.
            InvalidArgument: there is not one explicit device, no device has the extension, or the code was
                added before or has more than 16 bits; BAD_DATA.
            BadState: the compilation is finished.
        """
        self._attributes.check_given(extension, value)
        self._check_one_device("add_extension_attribute")
        self._check_building("add_extension_attribute")
        self._attributes.add(extension, code, value)

    def place_by_measurement(self, measuring: Measuring | None = None) -> None:
        """Let `finish` place the model by measured times instead of the costs that devices report.

        Args:
            measuring: limits and figures; by default at most 30 s, with the figures of earlier measurements.

        Raises:
            BadState: the compilation is finished.
            InvalidArgument: `measuring` is no `Measuring`.
        """
        self._check_building("place_by_measurement")
        if not isinstance(measuring, Measuring | None):
            raise InvalidArgument(f"measuring: {measuring!r}, expected a Measuring")
        self._measuring = Measuring() if measuring is None else measuring

    def _behave(self, *, may_fall_back: bool, waits_for_drivers: bool) -> None:
        """Set the options of `nnburst.compile`; `limit` then holds for steps, too."""
        self._may_fall_back, self._waits_for_drivers = may_fall_back, waits_for_drivers
        self._limits_steps = True

    def _try_engines(self) -> None:
        """Let `finish` time installed engines on the whole model, and take the fastest."""
        self._tries_engines = True

    def finish(self) -> None:
        """Place the model and have its parts prepared.

        Raises:
            BadState: `finish` was called before, with or without success.
            InvalidArgument: no device can run an operation; BAD_DATA.
            MissedDeadline: `finish` took longer than `timeout` or `limit`.
            NnburstError: planning or a device failed, and there is no fallback (RT:P2).
        """
        self._check_building("finish")
        self._completed = True
        began_ns, code = time.monotonic_ns(), ResultCode.OP_FAILED
        try:
            self._executable, self._placement_report = self._placed_and_prepared()
            code = ResultCode.NO_ERROR
        except NnburstError as error:
            code = error.code
            raise
        finally:
            self._record(code, time.monotonic_ns() - began_ns)

    def _placed_and_prepared(self) -> tuple[Executable, PlacementReport | None]:
        """The plan, ready to execute (RT:P1 to P20), and the report if the placement measures."""
        record_if_asked()
        deadline_ns = None
        if self._timeout_ns is not None:
            deadline_ns = time.clock_gettime_ns(time.CLOCK_BOOTTIME) + self._timeout_ns
        tried = self._tried(deadline_ns) if self._tries_engines else None
        if tried is not None:
            return tried
        devices = self._placed(self.devices, deadline_ns, limits_steps=self._limits_steps)
        planner = self._planner(devices)
        declared = DeclaredPlacement(self._mode, devices.cpu)
        if self._measuring is None:
            placement: Placement = declared
            report = None
        else:
            measuring = within(self._measuring, deadline_ns)
            placement = measured = self._measured(
                measuring, PartTimer(), devices, planner, declared
            )
            report = measured.report
        with trace(Layer.RUNTIME, Phase.COMPILATION, "place and prepare"):
            prepared = placement.place(planner)
        return self._shown(prepared, devices), report

    def _tried(self, deadline_ns: int | None) -> tuple[Executable, PlacementReport] | None:
        """The whole model on the fastest engine, and the report; None if there is nothing to choose."""
        if self._mode is PartitioningMode.NONE or self._preference == ExecutionPreference.LOW_POWER:
            return None
        if may_round_at_weights(self.model._built_model.model):
            return None
        with self._manager._contenders() as contenders:
            if len(contenders) < 2:
                return None
            budget = within(Measuring(budget=_TRIAL_SECONDS), deadline_ns)
            end_ns = boottime_deadline_ns(budget.budget)
            devices = self._placed(contenders, end_ns, limits_steps=True)
            timer = PartTimer(rounds=_TRIAL_ROUNDS, deadline_ns=end_ns)
            with trace(Layer.RUNTIME, Phase.COMPILATION, "try engines on the whole model"):
                trial = self._measured(budget, timer, devices, self._planner(devices))
                schedule = trial.find_whole()
            if not schedule:
                return None
            best = self._manager._keep(contenders[schedule[0].device])
            devices = self._placed([best], deadline_ns, limits_steps=self._limits_steps)
            try:
                prepared = self._planner(devices).follow((schedule[0]._replace(device=0),))
            except NnburstError as error:
                _log.warning(
                    "%s is the fastest and cannot prepare the model, reports place it: %s",
                    best.name,
                    error,
                )
                return None
            return self._shown(prepared, devices), trial.report

    def _placed(
        self, devices: Sequence[Device], deadline_ns: int | None, *, limits_steps: bool
    ) -> PlacedDevices:
        """The devices for this model, with the CPU after them."""
        return PlacedDevices(
            devices,
            self._manager.cpu,
            pools_of(self.model._memories),
            PartOptions(
                self._preference,
                _PRIORITIES[self._priority],
                deadline_ns,
                limits_steps,
                self._caching,
                self._attributes.added,
            ),
            refuses_half=self._manager._settings.refuses_half,
        )

    def _planner(self, devices: PlacedDevices) -> Planner[PreparedPart]:
        return Planner(
            self.model._finished_model,
            devices.candidates,
            prepare=devices.prepare,
            release=PreparedPart.close,
            preference=self._preference,
            strict_slicing=self._manager._settings.strict_slicing,
        )

    def _shown(self, prepared: PreparedPlan[PreparedPart], devices: PlacedDevices) -> Executable:
        """Make a chosen plan ready to execute; log and draw it if the environment asks for that."""
        executable = self._executable_of(
            prepared, devices, may_fall_back=self._mode is PartitioningMode.WITH_FALLBACK
        )
        plan = prepared.plan
        if vlog.on("compilation"):
            vlog.write_all("compilation", plan_table(plan, self.model._finished_model))
        if GRAPH_DIR.is_set:
            write_picture("plan", plan_dot(plan, self.model._finished_model))
        return executable

    @property
    def _mode(self) -> PartitioningMode:
        """Whether the model may be split over devices, and whether the CPU is the fallback."""
        if self._is_explicit or not self._may_fall_back:
            return PartitioningMode.WITHOUT_FALLBACK
        return self._manager._settings.partitioning

    def _measured(
        self,
        measuring: Measuring,
        timer: PartTimer,
        devices: PlacedDevices,
        planner: Planner[PreparedPart],
        declared: DeclaredPlacement | None = None,
    ) -> MeasuredPlacement:
        """Make the placement by measurement; plans that are only timed have no fallback."""
        return MeasuredPlacement(
            self.model._finished_model,
            devices.candidates,
            prepare=devices.prepare,
            assemble=lambda schedule: WholePlan(
                self._executable_of(planner.follow(schedule), devices, may_fall_back=False)
            ),
            timer=timer,
            files=[
                CostFile(measuring.directory, each.name, each.version_string)
                for each in devices.candidates
            ],
            budget=measuring.budget,
            progress=measuring.progress,
            otherwise=declared,
        )

    def _executable_of(
        self, prepared: PreparedPlan[PreparedPart], devices: PlacedDevices, *, may_fall_back: bool
    ) -> Executable:
        """Make the executable of a plan and its parts; with `may_fall_back` the CPU computes failed steps."""
        source = self.model._finished_model
        return Executable(
            prepared.plan,
            Interface(
                self.model.inputs,
                self.model.outputs,
                self._is_explicit and len(self.devices) == 1,
                self._manager._settings.starts_inline,
            ),
            devices.by_position,
            prepared.prepared,
            partial(devices.prepare_on_cpu, source) if may_fall_back else None,
            source=Source(
                source.model, [np.asarray(pool) for pool in pools_of(self.model._memories)]
            ),
            is_explicit=self._is_explicit,
            fell_back=prepared.fell_back,
            waits_for_drivers=self._waits_for_drivers,
            drivers_support=devices.drivers_support,
            recorder=PlanRecorder(self._manager.records, self._facts(prepared.plan)),
        )

    def _record(self, code: ResultCode, duration_ns: int) -> None:
        """Give the application a record of `finish`, if it takes records."""
        if self._manager.records.callback is None:
            return
        executable = self._executable
        record = CompilationRecord(
            facts=self._facts(None if executable is None else executable.plan),
            code=code,
            duration_ns=duration_ns,
            fell_back_to_cpu=executable is not None and executable.fell_back,
        )
        self._manager.records._emit(record)

    def _facts(self, plan: Plan | None) -> PlanFacts:
        """The facts of a plan for records; the plan is None if planning failed."""
        source = self.model._finished_model
        graphs = (source.model.main, *source.model.referenced)
        operations = {operation.type for graph in graphs for operation in graph.operations}
        versions = {f"{device.name}={device.version_string}" for device in self.devices}
        return PlanFacts(
            architecture_hash=source.architecture_hash,
            device_id=",".join(sorted(versions)),
            input_class=operand_class(self.model.inputs),
            output_class=operand_class(self.model.outputs),
            is_explicit=self._is_explicit,
            has_caching=self._caching is not None,
            has_control_flow=not operations.isdisjoint(CONTROL_FLOW),
            has_dynamic_temporaries=isinstance(plan, CompoundPlan)
            and bool(plan.dynamic_temporaries),
        )

    # -- results ---------------------------------------------------------------------------------------------

    @property
    def _finished_executable(self) -> Executable:
        """The plan with its prepared parts.

        Raises:
            BadState: the compilation is not finished, or `finish` has failed.
        """
        self._check_open()
        if self._executable is None:
            state = "finishing it failed" if self._completed else "it is not finished"
            raise BadState(f"compilation: {state}")
        return self._executable

    def _estimates(self) -> dict[int, float | str]:
        """Estimated times of the steps: seconds if the placement measured them, else from reported costs."""
        executable = self._finished_executable
        plan, source = executable.plan, self.model._finished_model
        capabilities = [device.capabilities for device in executable.devices]
        found: dict[int, float | str] = {}
        found |= reported_estimates(
            plan, source, capabilities, ExecutionPreference(self._preference)
        )
        if self._placement_report is not None:
            for share in shares(plan, source):
                name = plan.devices[share.device]
                seconds = self._placement_report._seconds_of(name, share.operations)
                if seconds is not None:
                    found[share.step] = seconds
        return found

    @property
    def is_finished(self) -> bool:
        """Whether `finish` has succeeded."""
        return self._executable is not None

    @property
    def placement_report(self) -> PlacementReport | None:
        """The findings of placement by measurement; None if the model was not placed by it."""
        return self._placement_report

    @property
    def plan(self) -> Plan:
        """The plan: which device runs which operations.

        Raises:
            BadState: the compilation is not finished.
        """
        return self._finished_executable.plan

    def _operands(self, direction: Direction) -> tuple[Operand, ...]:
        """The model's inputs or outputs."""
        return self.model.inputs if direction == Direction.INPUT else self.model.outputs

    def _operand(self, direction: Direction, index: int) -> Operand:
        """The input or output number `index`.

        Raises:
            InvalidArgument: there is no such input or output.
        """
        operands = self._operands(direction)
        if not 0 <= index < len(operands):
            name = direction.value.lower()
            raise InvalidArgument(f"index: {name} {index} of {len(operands)}")
        return operands[index]

    def memory_preference(self, direction: Direction, index: int) -> MemoryPreference:
        """Alignment and padding that the devices prefer for an argument (RT:P19).

        Args:
            direction: whether `index` counts inputs or outputs.
            index: index of the argument.

        Raises:
            BadState: the compilation is not finished.
            InvalidArgument: there is no such argument, or `direction` is no `Direction`.
        """
        executable = self._finished_executable
        if not isinstance(direction, Direction):
            raise InvalidArgument(f"direction: {direction!r}, expected a Direction")
        self._operand(direction, index)
        return executable.memory_preference(direction, index)

    def execution(self) -> Execution:
        """Make a new execution.

        Raises:
            BadState: the compilation is not finished.
        """
        return Execution(self._finished_executable)

    def burst(self) -> Burst:
        """Open a new burst, with a burst for each step whose device has bursts (RT:B1).

        Raises:
            BadState: the compilation is not finished.
        """
        return Burst(self._finished_executable)

    def _check_one_device(self, what: str) -> None:
        """Refuse the feature `what` unless the caller listed exactly one device (RT:E6)."""
        self._check_open()
        if not self._is_explicit or len(self.devices) != 1:
            raise InvalidArgument(f"{what}: needs a compilation for one explicit device")

    def _check_building(self, call: str) -> None:
        self._check_open()
        if self._completed:
            raise BadState(f"{call}: the compilation is finished and cannot change")

    def _summary(self) -> str:
        state = "not finished" if self._executable is None else "finished"
        return f"for {', '.join(device.name for device in self.devices)}, {state}"

    def _release(self) -> None:
        if self._executable is not None:
            self._executable.close()
