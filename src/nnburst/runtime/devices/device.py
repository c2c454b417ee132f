"""Declares the interface of the framework's devices, and handles the devices of one compilation.

A plan names devices by position. `PlacedDevices` asks the listed devices which operations they can run, and
has the devices that the plan names prepare its parts; the CPU comes after the listed ones.
"""

from __future__ import annotations

import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple, Protocol, runtime_checkable

from nnburst.client.compilation_cache import cache_token
from nnburst.client.execution.buffer import Buffer
from nnburst.client.memory import Memory as Pool
from nnburst.hal.enums import DeviceType, ExecutionPreference, Priority
from nnburst.hal.extensions import Extension, ExtensionAttribute
from nnburst.hal.model import Model
from nnburst.hal.types import NumberOfCacheFiles
from nnburst.runtime.argument import PreparedPart
from nnburst.runtime.planning.finished_model import FinishedModel
from nnburst.runtime.planning.plan import DeviceFacts, Direction, ExecutionStep, Part, SimplePlan
from nnburst.runtime.planning.slices import hal_model
from nnburst.tracing.slices import Layer, Phase, trace

#: A use of a buffer: a part that a device has prepared, and which of its inputs or outputs the buffer
#: becomes.
Use = tuple[PreparedPart, Direction, int]


class CacheRequest(NamedTuple):
    """The place of one part of a plan in the compilation cache.

    Attributes:
        directory: directory of the cache files.
        token: 32 bytes that identify the part (RT:K1).
    """

    directory: str
    token: bytes


@runtime_checkable
class Device(DeviceFacts, Protocol):
    """A driver, an engine, or the CPU. Thread-safe."""

    @property
    def type(self) -> DeviceType:
        """Kind of hardware."""

    @property
    def extensions(self) -> tuple[Extension, ...]:
        """The vendor extensions that the device has."""

    @property
    def cache_files(self) -> NumberOfCacheFiles:
        """The numbers of model files and data files in which the device caches a compilation."""

    def supports_extension(self, name: str) -> bool:
        """Whether the device has the extension called `name`."""

    def supported_operations(self, model: Model, pools: Sequence[Pool]) -> Sequence[bool]:
        """For each operation of the main subgraph, whether the device can run it; `pools` are the model's."""

    def prepare(
        self,
        model: Model,
        pools: Sequence[Pool],
        preference: ExecutionPreference = ExecutionPreference.FAST_SINGLE_ANSWER,
        priority: Priority = Priority.MEDIUM,
        deadline_ns: int | None = None,
        cache: CacheRequest | None = None,
        attributes: Sequence[ExtensionAttribute] = (),
    ) -> PreparedPart:
        """Prepare a model or a step.

        Args:
            model: the model to prepare.
            pools: the model's pools, in order.
            preference: the goal to optimise for.
            priority: priority among the models of this program.
            deadline_ns: deadline on CLOCK_BOOTTIME; None for no limit.
            cache: where to cache the compilation; None for no caching.
            attributes: attributes of vendor extensions; unknown ones are ignored.

        Raises:
            NnburstError: the model cannot be prepared.
        """

    def allocate(self, uses: Sequence[Use], dimensions: Sequence[int]) -> Buffer | None:
        """Allocate a buffer of the device for these uses; None if the device uses plain shared memory only.

        Raises:
            NnburstError: the buffer cannot be allocated.
        """

    def wait(self, timeout: float = 30.0) -> None:
        """Wait until the driver is there, at most `timeout` seconds.

        Raises:
            NnburstError: the driver is not there in time.
        """

    def close(self) -> None:
        """End the driver or the connection, if the device has one; twice is fine."""


# -- half of the support ---------------------------------------------------------------------------


def drop_half_of_support(name: str, model: Model, supported: Sequence[bool]) -> list[bool]:
    """Clear a pseudo-random half of the operations that device `name` supports.

    The half depends on the name, and on each operation with the types and extents of its operands, so that
    equal operations are refused in every model.

    NNAPI: debug.nn.sample.supported, which hashes the same.
    """
    operands = model.main.operands
    kept = []
    for answer, operation in zip(supported, model.main.operations, strict=True):
        described = [
            (operands[index].type, operands[index].dimensions)
            for index in (*operation.inputs, *operation.outputs)
        ]
        odd = zlib.crc32(repr((name, operation.type, described)).encode()) & 1
        kept.append(answer and not odd)
    return kept


# -- a device while planning -----------------------------------------------------------------------


class CandidateDevice:
    """A device as a candidate for planning; see `nnburst.runtime.planning.plan`.

    Attributes:
        supports_some: whether the device supports an operation that it was asked about.
    """

    def __init__(
        self, device: Device, pools: Sequence[Pool], *, refuses_half: bool = False
    ) -> None:
        """Ask `device` about a model whose constants lie in `pools`; maybe drop half of its support."""
        self._refuses_half: Final = refuses_half and device.name.startswith("sample")
        self._device: Final = device
        self._pools: Final = pools
        self.name: Final = device.name
        self.version_string: Final = device.version_string
        self.feature_level: Final = device.feature_level
        self.is_cpu: Final = device.is_cpu
        self.capabilities: Final = device.capabilities
        self.supports_some = False

    def supported_operations(self, model: Model, pools: Sequence[int]) -> Sequence[bool]:
        """Which operations of the main subgraph the device can run."""
        found = self._device.supported_operations(model, [self._pools[n] for n in pools])
        if self._refuses_half:
            found = drop_half_of_support(self.name, model, found)
        self.supports_some |= any(found)
        return found


# -- the devices of one compilation ----------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class PartOptions:
    """Options with which the parts of one compilation are prepared.

    Attributes:
        preference: the goal to optimise for.
        priority: priority among the models of this process.
        deadline_ns: deadline on CLOCK_BOOTTIME; None for none.
        limits_steps: whether the deadline holds for steps, too, not for whole models alone (RT:P16).
        caching: directory and token of the cache; None for no caching.
        attributes: attributes of vendor extensions, for the one explicit device.
    """

    preference: ExecutionPreference = ExecutionPreference.FAST_SINGLE_ANSWER
    priority: Priority = Priority.MEDIUM
    deadline_ns: int | None = None
    limits_steps: bool = False
    caching: tuple[str, bytes] | None = None
    attributes: tuple[ExtensionAttribute, ...] = ()


class PlacedDevices:
    """The devices that one model is placed on, with the CPU after them.

    Attributes:
        candidates: the listed devices as candidates for planning.
        cpu: the CPU device as a candidate.
        by_position: the devices by the plan's numbers: the listed ones, then the CPU unless it is listed.
    """

    def __init__(
        self,
        devices: Sequence[Device],
        cpu: Device,
        pools: Sequence[Pool],
        options: PartOptions,
        *,
        refuses_half: bool = False,
    ) -> None:
        """Keep the arguments; no device is asked yet.

        Args:
            devices: the listed devices, in order.
            cpu: the CPU device, listed or not.
            pools: pools of the model.
            options: options for preparing parts.
            refuses_half: whether half of the operations that drivers support is dropped.
        """
        self._pools: Final = pools
        self._options: Final = options
        self.candidates: Final = [
            CandidateDevice(device, pools, refuses_half=refuses_half) for device in devices
        ]
        self.cpu: Final = CandidateDevice(cpu, pools)
        is_listed = any(device.is_cpu for device in devices)
        self.by_position: Final = tuple(devices) if is_listed else (*devices, cpu)
        self._cpu: Final = cpu

    @property
    def drivers_support(self) -> bool:
        """Whether a device other than the CPU supports an operation."""
        return any(each.supports_some for each in self.candidates if not each.is_cpu)

    def prepare(self, part: Part) -> PreparedPart:
        """Have the device of a part prepare the part; a step gets no deadline and no attributes (RT:P16).

        Raises:
            NnburstError: the device refuses or fails.
        """
        whole = isinstance(part, SimplePlan)
        device, options = self.by_position[part.device], self._options
        with trace(Layer.RUNTIME, Phase.COMPILATION, f"prepare a part on {device.name}"):
            return device.prepare(
                part.model,
                [self._pools[n] for n in part.pools],
                options.preference,
                options.priority,
                options.deadline_ns if whole or options.limits_steps else None,
                self._cache(device, part),
                options.attributes if whole else (),
            )

    def _cache(self, device: Device, part: Part) -> CacheRequest | None:
        """The part's place in the cache; None without caching or if the device has no cache files (RT:K2)."""
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

    def prepare_on_cpu(self, source: FinishedModel, step: ExecutionStep | None) -> PreparedPart:
        """Have the CPU prepare a step, or the whole model if `step` is None.

        Preference and priority are the defaults, and there is no deadline (RT:R14).

        Raises:
            NnburstError: the CPU cannot prepare it.
        """
        model, used = hal_model(source) if step is None else (step.model, step.pools)
        return self._cpu.prepare(model, [self._pools[n] for n in used])
