"""PlanCompiler: has the parts of plans prepared, and makes them executable."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from nnburst.client.cache_token import cache_token
from nnburst.client.memory.memory import Memory as Pool
from nnburst.hal.enums import ExecutionPreference, OperationType, Priority
from nnburst.hal.extensions.attributes import ExtensionAttribute
from nnburst.runtime.argument import PreparedPart
from nnburst.runtime.devices.asked_device import AskedDevice
from nnburst.runtime.devices.device import CacheRequest, Device
from nnburst.runtime.devices.manager import Manager
from nnburst.runtime.execution.compound_memory import Source
from nnburst.runtime.execution.executable import Executable, Interface
from nnburst.runtime.measuring.measuring import Measuring
from nnburst.runtime.objects.hal_model import pools_of
from nnburst.runtime.objects.model import Model
from nnburst.runtime.planning.models.hal_model import hal_model
from nnburst.runtime.planning.placement.schedule_search import Schedule
from nnburst.runtime.planning.plan import (
    CompoundPlan,
    ExecutionStep,
    Part,
    PartitioningMode,
    Plan,
    SimplePlan,
)
from nnburst.runtime.planning.planned import Planned
from nnburst.runtime.planning.planner import Planner
from nnburst.runtime.records import PlanFacts, PlanRecorder, operand_class
from nnburst.tracing.slices import Layer, Phase, trace

_CONTROL_FLOW: Final = (OperationType.IF, OperationType.WHILE)


@dataclass(frozen=True, slots=True)
class CompileOptions:
    """How a model is compiled.

    Attributes:
        preference: what to optimise for.
        priority: among the models of this process.
        mode: whether parts may run on other devices, and whether the CPU stands behind them.
        deadline_ns: on CLOCK_BOOTTIME; None for none.
        caching: directory and token; None for no caching.
        is_explicit: whether the devices were listed.
        measuring: how placement by measurement goes about it; None to place by what devices report.
        attributes: of vendor extensions, for the one device.
    """

    preference: ExecutionPreference
    priority: Priority
    mode: PartitioningMode
    deadline_ns: int | None
    caching: tuple[str, bytes] | None
    is_explicit: bool
    measuring: Measuring | None = None
    attributes: tuple[ExtensionAttribute, ...] = ()


class _Preparation:
    """Prepares the parts of a plan."""

    def __init__(
        self, devices: Sequence[Device], pools: Sequence[Pool], options: CompileOptions
    ) -> None:
        self._devices = devices
        self._pools = pools
        self._options = options

    def prepare(self, part: Part) -> PreparedPart:
        """Have the part's device prepare it; a step gets no deadline and no attributes (RT:P16)."""
        whole = isinstance(part, SimplePlan)
        device = self._devices[part.device]
        with trace(Layer.RUNTIME, Phase.COMPILATION, f"prepare a part on {device.name}"):
            return device.prepare(
                part.model,
                [self._pools[n] for n in part.pools],
                self._options.preference,
                self._options.priority,
                self._options.deadline_ns if whole else None,
                self._cache(device, part),
                self._options.attributes if whole else (),
            )

    def _cache(self, device: Device, part: Part) -> CacheRequest | None:
        """RT:K2: only if the application wants caching and the device has files."""
        if self._options.caching is None or not any(device.cache_files):
            return None
        directory, token = self._options.caching
        named = cache_token(
            token,
            part.token_operations,
            device.name,
            device.version_string,
            preference=self._options.preference,
            priority=self._options.priority,
            attributes=self._options.attributes,
        )
        return CacheRequest(directory, named)


class PlanCompiler:
    """Places one model on one list of devices, as often as it is asked to."""

    def __init__(
        self, model: Model, devices: Sequence[Device], manager: Manager, options: CompileOptions
    ) -> None:
        """Place nothing yet.

        Args:
            model: finished.
            devices: in order.
            manager: theirs.
            options: how.
        """
        self._model = model
        self._devices = devices
        self._manager = manager
        self._options = options
        self._pools = pools_of(model._memories)
        half = manager._settings.refuses_half
        self.candidates: Final = [
            AskedDevice(device, self._pools, refuses_half=half) for device in devices
        ]
        self._placed: list[Device] = list(devices)
        if not any(device.is_cpu for device in devices):
            self._placed.append(manager.cpu)
        self._preparation = _Preparation(self._placed, self._pools, options)

    def prepare(self, part: Part) -> PreparedPart:
        """Have a part's device prepare it."""
        return self._preparation.prepare(part)

    def planned(self) -> Planned[PreparedPart]:
        """By the rules of the mode (RT:P1, P2).

        Raises:
            InvalidArgument: no device can run an operation.
            NnburstError: what a device answers, if there is no fallback.
        """
        cpu = AskedDevice(self._manager.cpu, self._pools)
        return self._planner().plan(self._options.mode, cpu)

    def following(self, schedule: Schedule) -> Planned[PreparedPart]:
        """By a schedule.

        Raises:
            NnburstError: what a device answers.
        """
        return self._planner().follow(schedule)

    def executable(
        self, planned: Planned[PreparedPart], *, may_fall_back: bool = True
    ) -> Executable:
        """A plan with its prepared parts, ready to compute.

        Args:
            planned: the plan.
            may_fall_back: whether the CPU may compute what a step fails, if the mode allows that.
        """
        options, settings = self._options, self._manager._settings
        falls_back = may_fall_back and options.mode is PartitioningMode.WITH_FALLBACK
        return Executable(
            planned.plan,
            Interface(
                self._model.inputs,
                self._model.outputs,
                options.is_explicit and len(self._devices) == 1,
                settings.starts_inline,
            ),
            self._placed,
            planned.prepared,
            self._prepare_on_cpu if falls_back else None,
            source=Source(
                self._model._finished_model.model, [np.asarray(pool) for pool in self._pools]
            ),
            is_explicit=options.is_explicit,
            fell_back=planned.fell_back,
            drivers_support=any(c.supports_some for c in self.candidates if not c.is_cpu),
            recorder=PlanRecorder(self._manager.records, self.facts(planned.plan)),
        )

    def facts(self, plan: Plan | None) -> PlanFacts:
        """What records say of a plan; None if planning failed."""
        model = self._model._finished_model
        graphs = (model.model.main, *model.model.referenced)
        operations = {operation.type for graph in graphs for operation in graph.operations}
        versions = {f"{device.name}={device.version_string}" for device in self._devices}
        return PlanFacts(
            architecture_hash=model.architecture_hash,
            device_id=",".join(sorted(versions)),
            input_class=operand_class(self._model.inputs),
            output_class=operand_class(self._model.outputs),
            is_explicit=self._options.is_explicit,
            has_caching=self._options.caching is not None,
            has_control_flow=not operations.isdisjoint(_CONTROL_FLOW),
            has_dynamic_temporaries=isinstance(plan, CompoundPlan)
            and bool(plan.dynamic_temporaries),
        )

    def _planner(self) -> Planner[PreparedPart]:
        return Planner(
            self._model._finished_model,
            self.candidates,
            prepare=self.prepare,
            release=PreparedPart.close,
            preference=self._options.preference,
            strict_slicing=self._manager._settings.strict_slicing,
        )

    def _prepare_on_cpu(self, step: ExecutionStep | None) -> PreparedPart:
        """A step, or the whole model, with default preference and priority and no deadline (RT:R14)."""
        model, used = (
            hal_model(self._model._finished_model) if step is None else (step.model, step.pools)
        )
        return self._manager.cpu.prepare(model, [self._pools[n] for n in used])
