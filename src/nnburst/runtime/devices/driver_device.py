"""DriverDevice: a driver in another process, reconnected behind its entry when it has died."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Final

from nnburst.client.compilation_cache import CachedCompilation
from nnburst.client.device import Device as ClientDevice
from nnburst.client.execution.buffer import Buffer
from nnburst.client.memory.memory import Memory as Pool
from nnburst.client.prepared_model import PreparedModel
from nnburst.client.resilient.resilient_device import ResilientDevice
from nnburst.hal.capabilities import Capabilities
from nnburst.hal.configs import NumberOfCacheFiles
from nnburst.hal.enums import DeviceType, ExecutionPreference, FeatureLevel, Priority
from nnburst.hal.errors import NnburstError
from nnburst.hal.extensions import Extension
from nnburst.hal.extensions.attributes import ExtensionAttribute
from nnburst.hal.model import Model
from nnburst.runtime.devices.device import CacheRequest, Use
from nnburst.runtime.devices.driver_part import DriverPart, seconds_left
from nnburst.runtime.planning.plan import Direction


class DriverDevice:
    """A driver. Thread-safe. A driver that has died is connected to again by the next call that needs it.

    NNAPI: RT:D2, D6, DriverDevice in Manager.cpp.

    Attributes:
        name: that it is found under.
        version_string: asked once, like all that follows.
        type: kind of hardware.
        feature_level: the driver's, or the runtime's if that is lower.
        extensions: that it has.
        capabilities: its reported speed.
        cache_files: in how many files it caches a compilation.
    """

    is_cpu: Final = False

    def __init__(
        self,
        connect: Callable[[], ClientDevice],
        *,
        name: str | None = None,
        feature_level: FeatureLevel = FeatureLevel.AIDL_V4,
    ) -> None:
        """Connect, and ask all that is asked once.

        Args:
            connect: makes a connection; called again for each driver that has died.
            name: instead of the driver's own.
            feature_level: the runtime's (RT:D6).

        Raises:
            NnburstError: it cannot be connected to, or answers badly.
        """
        self._driver: Final = ResilientDevice(connect)
        try:
            current = self._driver.current
            self.name: Final = name or current.name
            self.version_string: Final = current.version_string
            self.type: Final[DeviceType] = current.type
            self.feature_level: Final = clamped(current.feature_level, feature_level)
            self.extensions: Final[tuple[Extension, ...]] = current.supported_extensions()
            self.capabilities: Capabilities = current.capabilities
            self.cache_files: Final[NumberOfCacheFiles] = current.number_of_cache_files_needed
        except BaseException:
            self._driver.close()
            raise

    @property
    def pid(self) -> int:
        """Process of the driver that is connected now."""
        return self._driver.current.pid

    def supports_extension(self, name: str) -> bool:
        """Whether it has an extension."""
        return any(extension.name == name for extension in self.extensions)

    def supported_operations(self, model: Model, pools: Sequence[Pool]) -> list[bool]:
        """Which operations of the main subgraph it can run."""
        return self._driver.supported_operations(model, pools=pools)

    def prepare(
        self,
        model: Model,
        pools: Sequence[Pool],
        preference: ExecutionPreference = ExecutionPreference.FAST_SINGLE_ANSWER,
        priority: Priority = Priority.MEDIUM,
        deadline_ns: int | None = None,
        cache: CacheRequest | None = None,
        attributes: Sequence[ExtensionAttribute] = (),
    ) -> DriverPart:
        """Have it prepare a model or a step.

        Raises:
            NnburstError: what it answers.
        """
        options = {
            "preference": preference,
            "priority": priority,
            "num_threads": 0,
            "attributes": tuple(attributes),
        }

        def prepare(driver: ClientDevice) -> PreparedModel:
            seconds = seconds_left(deadline_ns)
            if cache is None:
                return driver.prepare(model, pools=pools, timeout=seconds, **options)  # type: ignore[arg-type]
            cached = CachedCompilation(
                driver, model, cache.directory, cache.token, pools, options, is_final=True
            )
            return cached.prepare(seconds)

        part = DriverPart(
            self._driver.prepare_by(prepare), has_fences=self.feature_level >= FeatureLevel.V1_3
        )
        deadline_ns = None  # the compilation's: what is prepared again later does not have it
        return part

    def allocate(self, uses: Sequence[Use], dimensions: Sequence[int]) -> Buffer:
        """A buffer of its own.

        Raises:
            NnburstError: what it answers.
        """
        roles: dict[Direction, list[tuple[object, int]]] = {
            Direction.INPUT: [],
            Direction.OUTPUT: [],
        }
        for part, direction, index in uses:
            assert isinstance(part, DriverPart)
            roles[direction].append((part.prepared.current, index))
        return self._driver.current.allocate_buffer(
            roles[Direction.INPUT],  # type: ignore[arg-type]
            roles[Direction.OUTPUT],  # type: ignore[arg-type]
            dimensions=dimensions,
        )

    def wait(self, timeout: float = 30.0) -> None:
        """Wait until it is there again (RT:D7).

        Raises:
            DeadObject: it is not there after that time.
        """
        deadline = time.monotonic() + timeout
        while True:
            try:
                self._driver.current  # noqa: B018 - connects again
            except NnburstError:
                if time.monotonic() >= deadline:
                    raise
                time.sleep(0.05)
            else:
                return

    def close(self) -> None:
        """End the connection."""
        self._driver.close()

    def __repr__(self) -> str:
        return f"<nnburst.runtime driver device {self.name}>"


def clamped(level: FeatureLevel, runtime: FeatureLevel) -> FeatureLevel:
    """The level that a device reports: never above the runtime's (RT:D6)."""
    return min(level, runtime)
