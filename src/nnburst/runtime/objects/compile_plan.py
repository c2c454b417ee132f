"""Placing a finished model on devices and having its parts prepared."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from nnburst.client.memory.memory import Memory as Pool
from nnburst.hal.enums import ExecutionPreference, Priority
from nnburst.runtime.argument import PreparedPart
from nnburst.runtime.devices.device import CacheRequest, Device
from nnburst.runtime.devices.manager import Manager
from nnburst.runtime.execution.compound_memory import Source
from nnburst.runtime.execution.executable import Executable, Interface
from nnburst.runtime.objects.asked_device import AskedDevice
from nnburst.runtime.objects.hal_model import pools_of
from nnburst.runtime.objects.model import Model
from nnburst.runtime.planning.cache_token import cache_token
from nnburst.runtime.planning.candidate import Candidate
from nnburst.runtime.planning.models.hal_model import hal_model
from nnburst.runtime.planning.plan import ExecutionStep, Part, PartitioningMode, SimplePlan
from nnburst.runtime.planning.planner import Planner


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
    """

    preference: ExecutionPreference
    priority: Priority
    mode: PartitioningMode
    deadline_ns: int | None
    caching: tuple[str, bytes] | None
    is_explicit: bool


class _Preparation:
    """Prepares the parts of a plan."""

    def __init__(
        self, devices: Sequence[Device], pools: Sequence[Pool], options: CompileOptions
    ) -> None:
        self._devices = devices
        self._pools = pools
        self._options = options

    def prepare(self, part: Part) -> PreparedPart:
        """Have the part's device prepare it; a step gets no deadline (RT:P16)."""
        whole = isinstance(part, SimplePlan)
        device = self._devices[part.device]
        return device.prepare(
            part.model,
            [self._pools[n] for n in part.pools],
            self._options.preference,
            self._options.priority,
            self._options.deadline_ns if whole else None,
            self._cache(device, part),
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
        )
        return CacheRequest(directory, named)


def compile_plan(
    model: Model, devices: Sequence[Device], manager: Manager, options: CompileOptions
) -> Executable:
    """Place and prepare a model (RT:P1 to P20).

    Raises:
        InvalidArgument: no device can run an operation.
        NnburstError: what a device says, if there is no fallback.
    """
    pools = pools_of(model.memories)
    finished = model.finished
    cpu = manager.cpu
    placed: list[Device] = list(devices)
    if not any(device.is_cpu for device in devices):
        placed.append(cpu)
    half = manager.settings.refuses_half
    candidates: list[Candidate] = [
        AskedDevice(device, pools, refuses_half=half) for device in devices
    ]
    planner: Planner[PreparedPart] = Planner(
        finished,
        candidates,
        prepare=_Preparation(placed, pools, options).prepare,
        discard=PreparedPart.close,
        preference=options.preference,
        strict_slicing=manager.settings.strict_slicing,
    )
    planned = planner.plan(options.mode, AskedDevice(cpu, pools))
    falls_back = options.mode is PartitioningMode.WITH_FALLBACK

    def prepare_on_cpu(step: ExecutionStep | None) -> PreparedPart:
        """A step, or the whole model, with default preference and priority and no deadline (RT:R14)."""
        model, used = hal_model(finished) if step is None else (step.model, step.pools)
        return cpu.prepare(model, [pools[n] for n in used])

    return Executable(
        planned.plan,
        Interface(
            model.inputs,
            model.outputs,
            options.is_explicit and len(devices) == 1,
            manager.settings.starts_inline,
        ),
        placed,
        planned.prepared,
        prepare_on_cpu if falls_back else None,
        source=Source(finished.model, [np.asarray(pool) for pool in pools]),
        is_explicit=options.is_explicit,
        fell_back=planned.fell_back,
    )
