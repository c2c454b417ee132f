"""Provides devices for installed executors, whose drivers start when they are needed."""

from __future__ import annotations

import importlib.metadata
import logging
import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final
from urllib.parse import quote

import msgspec

from nnburst._version import __version__
from nnburst.client.execution.buffer import Buffer
from nnburst.client.launch import launch
from nnburst.client.memory import Memory as Pool
from nnburst.control.address import (
    cache_directory,
    config_directory,
    replace_file,
    state_directory,
)
from nnburst.hal.enums import DeviceType, ExecutionPreference, FeatureLevel, Priority
from nnburst.hal.environment import OF_EXECUTORS, ONNXRUNTIME_PROVIDER, OPENVINO_DEVICE
from nnburst.hal.errors import Closed, GeneralFailure
from nnburst.hal.extensions import GROUP, Extension, ExtensionAttribute
from nnburst.hal.model import Model
from nnburst.hal.regular_file import read_regular_file
from nnburst.hal.types import Capabilities, NumberOfCacheFiles
from nnburst.hal.utils import ENGINES, has_engine
from nnburst.hal.validation.values import validate_capabilities, validate_extensions
from nnburst.runtime.devices.cpu_device import CPU_NAME, CpuDevice
from nnburst.runtime.devices.device import CacheRequest, Use
from nnburst.runtime.devices.driver_device import DriverDevice, DriverPart, clamped
from nnburst.runtime.extensions import TYPES

logger = logging.getLogger("nnburst.runtime")

#: The distribution whose version is part of a built-in executor's version.
_DISTRIBUTIONS: Final = {
    "litert": "ai-edge-litert",
    "onnxruntime": "onnxruntime",
    "openvino": "openvino",
    "reference": "",
    "null": "",
}
#: The variables that choose the hardware of a built-in executor. Facts are cached for one choice.
_HARDWARE: Final = {"onnxruntime": ONNXRUNTIME_PROVIDER, "openvino": OPENVINO_DEVICE}
#: Group of entry points: name of an executor to its `module:attribute`.
_EXECUTORS: Final = "nnburst.executors"
#: Begins every stamp; increased when drivers of the same version report other facts.
_FACTS: Final = "2"


class EngineFacts(msgspec.Struct, frozen=True):
    """The facts that an engine's driver reports of itself, cached by its last start.

    Attributes:
        stamp: identifies the versions, the installed extensions, the hardware and the files with the engine's
            speed that the facts are of.
        version_string: the driver's version.
        type: kind of hardware.
        feature_level: the driver's feature level.
        extensions: the vendor extensions that the driver has.
        capabilities: the speed that the driver reports.
        cache_files: the numbers of files in which the driver caches a compilation.
    """

    stamp: str
    version_string: str
    type: DeviceType
    feature_level: FeatureLevel
    extensions: tuple[Extension, ...]
    capabilities: Capabilities
    cache_files: tuple[int, int]


_decode: Final = msgspec.json.Decoder(EngineFacts).decode


class EngineDevice:
    """A device whose driver is launched by the first call that needs it. Thread-safe.

    Attributes:
        name: name of the device.
        executor: name of the executor that the driver runs.
    """

    is_cpu: Final = False

    def __init__(
        self, name: str, executor: str, feature_level: FeatureLevel = FeatureLevel.AIDL_V4
    ) -> None:
        """Read the facts that the engine's last start has cached; if nothing is cached, start it now.

        Nothing is cached for an executor `module:attribute`: no version shows that its module has changed.

        Raises:
            NnburstError: the driver does not start, or a variable that its executor reads is not valid.
        """
        for variable in OF_EXECUTORS.get(executor, ()):
            variable.read()  # refused here, not by the driver that some later call starts
        self.name: Final = name
        self.executor: Final = executor
        self._level: Final = feature_level
        # Reentrant: a signal handler may compute while its thread is in here.
        self._lock: Final = threading.RLock()
        self._started: DriverDevice | None = None
        self._closed = False
        self._has_version: Final = ":" not in executor
        facts = _load(name, _stamp(name, executor)) if self._has_version else None
        self._facts: EngineFacts
        if facts is None:
            self.driver  # noqa: B018 - its start learns the facts
        else:
            self._facts = facts

    @property
    def driver(self) -> DriverDevice:
        """The driver, which is launched if necessary.

        Raises:
            NnburstError: the driver does not start.
            Closed: `close` was called.
        """
        with self._lock:
            if self._closed:
                raise Closed(f"device {self.name} is closed")
            if self._started is None:
                started = DriverDevice(
                    lambda: launch(self.executor, name=self.name),
                    name=self.name,
                    feature_level=self._level,
                )
                self._started = self._started or started
                if self._started is started:
                    self._learn(started)
                else:  # a signal handler has started one meanwhile
                    started.close()
            return self._started

    @property
    def pid(self) -> int:
        """The process ID of the driver."""
        return self.driver.pid

    @property
    def version_string(self) -> str:
        """The version, an opaque text that is part of cache tokens."""
        return self._facts.version_string

    @property
    def type(self) -> DeviceType:
        """Kind of hardware."""
        return self._facts.type

    @property
    def feature_level(self) -> FeatureLevel:
        """The feature level, limited to the runtime's."""
        return clamped(self._facts.feature_level, self._level)

    @property
    def extensions(self) -> tuple[Extension, ...]:
        """The vendor extensions that the driver has."""
        return self._facts.extensions

    @property
    def capabilities(self) -> Capabilities:
        """The speed that the driver reports."""
        return self._facts.capabilities

    @property
    def cache_files(self) -> NumberOfCacheFiles:
        """The numbers of files in which the driver caches a compilation."""
        return NumberOfCacheFiles(*self._facts.cache_files)

    def supports_extension(self, name: str) -> bool:
        """Whether the driver has an extension."""
        return any(extension.name == name for extension in self.extensions)

    def supported_operations(self, model: Model, pools: Sequence[Pool]) -> list[bool]:
        """For each operation of the main subgraph, whether the driver can run it."""
        return self.driver.supported_operations(model, pools)

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
        """Have the driver prepare a model or a step."""
        return self.driver.prepare(
            model, pools, preference, priority, deadline_ns, cache, attributes
        )

    def allocate(self, uses: Sequence[Use], dimensions: Sequence[int]) -> Buffer:
        """Allocate a buffer of the driver."""
        return self.driver.allocate(uses, dimensions)

    def wait(self, timeout: float = 30.0) -> None:
        """Wait until the driver is there; return at once if it was not launched yet."""
        if self._started is not None:
            self._started.wait(timeout)

    def close(self) -> None:
        """End the driver."""
        with self._lock:
            self._closed = True
            if self._started is not None:
                self._started.close()

    def _learn(self, driver: DriverDevice) -> None:
        """Keep the facts that the driver reports of itself, and cache them for programs that start later."""
        stamp = _stamp(self.name, self.executor)
        facts = EngineFacts(
            stamp,
            driver.version_string,
            driver.type,
            driver.feature_level,
            driver.extensions,
            driver.capabilities,
            (driver.cache_files.model_cache, driver.cache_files.data_cache),
        )
        if self._has_version and facts != _load(self.name, stamp):
            _store(self.name, facts)
        self._facts = facts
        for extension in self.extensions:
            TYPES.register(extension, self.name)

    def __repr__(self) -> str:
        return f"<nnburst.runtime engine device {self.name} ({self.executor})>"


def is_installed(executor: str) -> bool:
    """Whether an executor is available: its engine is installed, or it is an entry point or a path."""
    if executor in ENGINES:
        return has_engine(executor)
    if executor in _DISTRIBUTIONS:
        distribution = _DISTRIBUTIONS[executor]
        return not distribution or _version_of(distribution) != ""
    if ":" in executor:
        return True
    return executor in importlib.metadata.entry_points(group=_EXECUTORS).names


def _version_of(distribution: str) -> str:
    try:
        return importlib.metadata.version(distribution)
    except importlib.metadata.PackageNotFoundError:
        return ""


def _stamp(name: str, executor: str) -> str:
    """The stamp of facts.

    It has versions, those of installed extensions and executors among them, the hardware that the environment
    chooses, and the times at which the files with the engine's speed were changed.

    Raises:
        InvalidArgument: the variable for the hardware is not valid.
    """
    parts = [_FACTS, __version__, executor]
    if distribution := _DISTRIBUTIONS.get(executor):
        parts.append(_version_of(distribution))
    if hardware := _HARDWARE.get(executor):
        parts.append(hardware.read())
    points = importlib.metadata.entry_points()
    found = [*points.select(group=GROUP), *points.select(group=_EXECUTORS, name=executor)]
    parts += sorted(
        f"{point.name}={point.value}@{point.dist.version if point.dist else ''}" for point in found
    )
    folders = config_directory, state_directory
    return " ".join([*parts, *(_changed(_in(folder, "capabilities", name)) for folder in folders)])


def _changed(path: Path | None) -> str:
    """The time at which a file was changed last; "" if there is no file that this user can see."""
    try:
        return "" if path is None else str(path.stat().st_mtime_ns)
    except OSError:
        return ""


def _in(folder: Callable[[], Path], room: str, name: str) -> Path | None:
    try:
        return folder() / room / f"{quote(name, safe='')}.json"
    except GeneralFailure:
        return None


def _load(name: str, stamp: str) -> EngineFacts | None:
    """Read the cached facts; None if they have another stamp or cannot be read."""
    path = _in(cache_directory, "devices", name)
    try:
        if path is None:
            return None
        facts = _decode(read_regular_file(path))
        validate_capabilities(facts.capabilities)
        validate_extensions(facts.extensions)
    except (OSError, ValueError, RecursionError):
        return None
    return facts if facts.stamp == stamp else None


def _store(name: str, facts: EngineFacts) -> None:
    path = _in(cache_directory, "devices", name)
    if path is None:
        return
    try:
        replace_file(path, msgspec.json.encode(facts))
    except OSError as error:
        logger.info("the facts about %s are not kept, the next start asks again: %s", name, error)


class CpuDriver(EngineDevice):
    """The reference executor in another process, so that its crash does not end the program. Thread-safe.

    It reports the same of itself as `CpuDevice`; tensors without elements fail, as with any driver.
    """

    is_cpu: Final = True  # type: ignore[misc]
    capabilities = CpuDevice.capabilities
    cache_files = CpuDevice.cache_files
    extensions = ()

    def __init__(self, feature_level: FeatureLevel = FeatureLevel.AIDL_V4) -> None:
        """Keep the level; the first call that needs the driver launches it."""
        super().__init__(CPU_NAME, "reference", feature_level)

    supported_operations = CpuDevice.supported_operations
