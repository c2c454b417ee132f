"""Has a device of the framework that computes in this process and is quick to make."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

from nnburst.client.memory import Memory as Pool
from nnburst.hal.enums import DeviceType, ExecutionPreference, FeatureLevel, Priority
from nnburst.hal.errors import NnburstError
from nnburst.hal.extensions import Extension, ExtensionAttribute
from nnburst.hal.model import Model, Operation
from nnburst.hal.types import Capabilities, NumberOfCacheFiles
from nnburst.runtime.argument import Argument, Options, Outcome, PreparedPart
from nnburst.runtime.devices.cpu_device import CpuDevice
from nnburst.runtime.devices.device import CacheRequest, Use
from nnburst.testing.partitioning.run import uniform

Supports = Callable[[Operation, Model], bool]


class ComputingDevice:
    """Supports what a function accepts, and computes by the reference executor. Thread-safe.

    Attributes:
        executed: how many executions it has had.
        on_execute: the outcome of each execution instead of a result; None computes. May be set at any time.
        on_prepare: the error of each preparation; None prepares.
    """

    is_cpu: Final = False
    type: Final = DeviceType.ACCELERATOR
    version_string: Final = "1"
    extensions: tuple[Extension, ...] = ()
    cache_files: Final = NumberOfCacheFiles(0, 0)

    def __init__(
        self,
        name: str,
        supports: Supports,
        cost: float = 0.5,
        feature_level: FeatureLevel = FeatureLevel.AIDL_V4,
    ) -> None:
        """Begin a device with these answers."""
        self.name: Final = name
        self.feature_level: Final = feature_level
        self.capabilities: Final[Capabilities] = uniform(cost)
        self._supports: Final = supports
        self._cpu: Final = CpuDevice()
        self.executed = 0
        self.on_execute: Callable[[Model], Outcome | None] = lambda _model: None
        self.on_prepare: Callable[[Model], NnburstError | None] = lambda _model: None

    def supports_extension(self, name: str) -> bool:  # noqa: ARG002
        """False: the device has no extensions."""
        return False

    def supported_operations(self, model: Model, pools: Sequence[Pool]) -> list[bool]:  # noqa: ARG002
        """Return what the function returns."""
        return [self._supports(operation, model) for operation in model.main.operations]

    def prepare(
        self,
        model: Model,
        pools: Sequence[Pool],
        preference: ExecutionPreference = ExecutionPreference.FAST_SINGLE_ANSWER,
        priority: Priority = Priority.MEDIUM,
        deadline_ns: int | None = None,
        cache: CacheRequest | None = None,  # noqa: ARG002
        attributes: Sequence[ExtensionAttribute] = (),  # noqa: ARG002
    ) -> PreparedPart:
        """Prepare by the reference executor, unless it is to fail."""
        error = self.on_prepare(model)
        if error is not None:
            raise error
        return _ComputingPart(
            self, model, self._cpu.prepare(model, pools, preference, priority, deadline_ns)
        )

    def allocate(self, uses: Sequence[Use], dimensions: Sequence[int]) -> None:  # noqa: ARG002
        """None: plain shared memory."""
        return

    def wait(self, timeout: float = 30.0) -> None:
        """Return at once."""

    def close(self) -> None:
        """Do nothing, since the device holds no resources."""


class _ComputingPart:
    def __init__(self, device: ComputingDevice, model: Model, part: PreparedPart) -> None:
        self._device = device
        self._model = model
        self._part = part

    died_ns: Final = None

    def revive(self) -> None:
        """Do nothing, since the device cannot die."""

    def execute(self, inputs: list[Argument], outputs: list[Argument], options: Options) -> Outcome:
        self._device.executed += 1
        told = self._device.on_execute(self._model)
        return told if told is not None else self._part.execute(inputs, outputs, options)

    def open_burst(self) -> None:
        return None

    def close(self) -> None:
        self._part.close()
