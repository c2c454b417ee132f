"""Declares the framework's view of devices, and of those of a compilation while it is planned.

A plan names devices by position: `PlacedDevices` asks the listed ones what they can run, has those that a
plan names prepare its parts, and has the CPU behind them.
"""

from __future__ import annotations

import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple, Protocol

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

#: A use of a buffer: what a device has prepared, and which of its inputs or outputs.
Use = tuple[PreparedPart, Direction, int]


class CacheRequest(NamedTuple):
    """Where one part of a plan is cached.

    Attributes:
        directory: of the files.
        token: 32 bytes that name the part (RT:K1).
    """

    directory: str
    token: bytes


class Device(DeviceFacts, Protocol):
    """A driver, an engine, or the CPU. Thread-safe."""

    @property
    def type(self) -> DeviceType:
        """Kind of hardware."""

    @property
    def extensions(self) -> tuple[Extension, ...]:
        """The vendor extensions that it has."""

    @property
    def cache_files(self) -> NumberOfCacheFiles:
        """The numbers of files that it caches a compilation in."""

    def supports_extension(self, name: str) -> bool:
        """Whether it has the extension called `name`."""

    def supported_operations(self, model: Model, pools: Sequence[Pool]) -> Sequence[bool]:
        """Which operations of the main subgraph it can run, in their order; `pools` are the model's."""

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
            model: what to prepare.
            pools: the model's pools, in order.
            preference: what to optimise for.
            priority: among the models of this program.
            deadline_ns: moment on CLOCK_BOOTTIME at which to give up; None for no limit.
            cache: files to keep the compilation in; None for no caching.
            attributes: of vendor extensions; unknown ones are ignored.

        Raises:
            NnburstError: why it cannot be prepared.
        """

    def allocate(self, uses: Sequence[Use], dimensions: Sequence[int]) -> Buffer | None:
        """A buffer of its own for these uses; None if it allocates plain shared memory only.

        Raises:
            NnburstError: why it cannot be allocated.
        """

    def wait(self, timeout: float = 30.0) -> None:
        """Wait until its driver is there, `timeout` seconds at most.

        Raises:
            NnburstError: it is not there in time.
        """

    def close(self) -> None:
        """End its driver or connection, if it has one; twice is fine."""


# -- half of the support ---------------------------------------------------------------------------


def drop_half_of_support(name: str, model: Model, supported: Sequence[bool]) -> list[bool]:
    """The answer of device `name` less a pseudo-random half.

    Which half depends on the name, and on each operation with types and extents of its operands, so that the
    same operation is refused wherever it is.

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
    """A candidate of planning's; see `nnburst.runtime.planning.plan`.

    Attributes:
        supports_some: whether it has taken an operation that it was asked about.
    """

    def __init__(
        self, device: Device, pools: Sequence[Pool], *, refuses_half: bool = False
    ) -> None:
        """Ask `device` about a model whose constants lie in `pools`; half of what it takes may be dropped."""
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
        preference: what to optimise for.
        priority: among the models of this process.
        deadline_ns: on CLOCK_BOOTTIME; None for none.
        limits_steps: whether the deadline is that of steps, too; else of whole models alone (RT:P16).
        caching: directory and token; None for no caching.
        attributes: of vendor extensions, for the one device.
    """

    preference: ExecutionPreference = ExecutionPreference.FAST_SINGLE_ANSWER
    priority: Priority = Priority.MEDIUM
    deadline_ns: int | None = None
    limits_steps: bool = False
    caching: tuple[str, bytes] | None = None
    attributes: tuple[ExtensionAttribute, ...] = ()


class PlacedDevices:
    """The devices that one model is placed on, with the CPU behind them.

    Attributes:
        candidates: the listed devices as planning asks them.
        cpu: the CPU device likewise.
        by_position: the devices as plans number them: the listed ones, and the CPU unless it is one of them.
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
        """Ask nothing yet.

        Args:
            devices: in order.
            cpu: the CPU device, listed or not.
            pools: those of the model.
            options: how parts are prepared.
            refuses_half: whether half of what drivers take is dropped.
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
        """Whether a device that is not the CPU has taken an operation."""
        return any(each.supports_some for each in self.candidates if not each.is_cpu)

    def prepare(self, part: Part) -> PreparedPart:
        """Have a part's device prepare it; a step gets no deadline and no attributes (RT:P16).

        Raises:
            NnburstError: what the device answers.
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

    def prepare_on_cpu(self, source: FinishedModel, step: ExecutionStep | None) -> PreparedPart:
        """Have the CPU prepare a step, or for None the whole model.

        With default preference and priority and no deadline (RT:R14).

        Raises:
            NnburstError: it cannot.
        """
        model, used = hal_model(source) if step is None else (step.model, step.pools)
        return self._cpu.prepare(model, [self._pools[n] for n in used])
