"""Finds the devices of this process."""

from __future__ import annotations

import logging
import os
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from re import Pattern
from typing import ClassVar, Final

from nnburst.client.connect import connect
from nnburst.control.address import SUFFIX, directory
from nnburst.hal import environment, vlog
from nnburst.hal.enums import FeatureLevel
from nnburst.hal.errors import InvalidArgument, NnburstError, UnexpectedNull
from nnburst.hal.utils import AUTO, ENGINES, chosen_executor, listed
from nnburst.hal.whole_graph import GRAPH_ENGINES
from nnburst.runtime.devices.cpu_device import CPU_NAME, CpuDevice
from nnburst.runtime.devices.device import Device
from nnburst.runtime.devices.driver_device import DriverDevice
from nnburst.runtime.devices.engine_device import CpuDriver, EngineDevice, is_installed
from nnburst.runtime.extensions import TYPES
from nnburst.runtime.planning.plan import PartitioningMode
from nnburst.runtime.records import Records
from nnburst.runtime.runtime_object import RuntimeObject

logger = logging.getLogger("nnburst.runtime")

#: Seconds within which a listening driver must answer.
_PATIENCE: Final = 5.0


@dataclass(frozen=True, slots=True)
class Settings:
    """The rules by which a manager discovers devices and compilations place models (RT:D8).

    Attributes:
        partitioning: the mode of compilations without an explicit list (RT:P1).
        cpu_only: whether the CPU is the only device.
        enabled: what the whole name of a device must match.
        engines: device name and executor of each engine; "auto" stands for the best installed one, and
            lets the others be tried on whole models.
        strict_slicing: whether a slice that is not valid is an error (RT:S6).
        starts_inline: whether `Execution.start` computes before it returns.
        refuses_half: whether devices named sample… refuse half of what they support.
        cpu_driver: whether the CPU device is a driver.
        cpu_inline: whether the CPU computes on the caller's thread, not on one of its own each time.
        feature_level: the runtime's feature level (RT:D5).
    """

    partitioning: PartitioningMode = PartitioningMode.WITH_FALLBACK
    cpu_only: bool = False
    enabled: Pattern[str] | None = None
    engines: tuple[tuple[str, str], ...] = ()
    strict_slicing: bool = False
    starts_inline: bool = False
    refuses_half: bool = False
    cpu_driver: bool = False
    cpu_inline: bool = True
    feature_level: FeatureLevel = FeatureLevel.AIDL_V4

    @classmethod
    def of_environment(cls) -> Settings:
        """Read the settings from the `NNBURST_…` variables.

        Raises:
            InvalidArgument: the value of a variable is not valid.
        """
        return cls(
            PartitioningMode(environment.PARTITION.read()),
            environment.CPUONLY.read(),
            environment.ENABLED_DEVICES.read(),
            environment.DEVICES.read(),
            environment.STRICT_SLICING.read(),
            environment.SYNCEXEC_RUNTIME.read(),
            environment.REFUSE_HALF.read(),
            environment.CPU_DRIVER.read(),
            environment.SYNCEXEC_CPU.read(),
        )


class Manager(RuntimeObject):
    """The devices that models can be placed on, the CPU last (RT:D1). Thread-safe.

    It finds the running drivers of this user, sorted by name, then installed engines. Of devices of the same
    name the first counts, and only the CPU may be called nnapi-reference. A process needs only one manager:
    `of_process`.

    NNAPI: RT:D1 to D8, DeviceManager in Manager.cpp.

    Attributes:
        cpu: the CPU device, `nnapi-reference`.
    """

    _one: ClassVar[Manager | None] = None
    # Reentrant: a signal handler of the program may compile while its thread is in here.
    _one_lock: ClassVar[threading.RLock] = threading.RLock()

    def __init__(
        self, devices: Sequence[Device] | None = None, *, settings: Settings | None = None
    ) -> None:
        """Look for devices, or take the given ones; the CPU comes after them.

        Args:
            devices: the devices to use instead of found ones; closed with the manager.
            settings: rules of finding and placing; by default from the environment, unless devices are given.

        Raises:
            InvalidArgument: the value of an environment variable is not valid; or one of `devices` is not of
                the runtime, or its name is not allowed.
        """
        super().__init__()
        if settings is None:
            settings = Settings.of_environment() if devices is None else Settings()
        self._settings: Final = settings
        self._records: Final = Records()
        level = settings.feature_level
        self.cpu: Final[Device] = (
            CpuDriver(level)
            if settings.cpu_driver
            else CpuDevice(level, inline=settings.cpu_inline)
        )
        self._lock = threading.RLock()  # likewise
        self._drivers: list[Device] = []
        self._further: dict[str, EngineDevice] = {}
        #: The engines that compilations try now, and how many compilations try each.
        self._trials: Final[dict[EngineDevice, int]] = {}
        if devices is None:
            self.refresh()
        else:
            for position, device in enumerate(listed("devices", devices)):
                if not isinstance(device, Device):
                    raise InvalidArgument(
                        f"devices[{position}] is {device!r}, expected a device of the runtime, such as a"
                        " DriverDevice; without `devices` the drivers that run are found"
                    )
                self._take(device)

    @classmethod
    def of_process(cls) -> Manager:
        """The manager of this process, which the first call makes.

        Raises:
            InvalidArgument: the value of an environment variable is not valid.
        """
        with cls._one_lock:
            if (one := cls._usable_one()) is None:
                one = cls()
                if (others := cls._usable_one()) is None:
                    cls._one = one
                else:  # a signal handler has made one meanwhile
                    one.close()
                    one = others
            return one

    @classmethod
    def _usable_one(cls) -> Manager | None:
        one = cls._one
        return None if one is None or one.closed or one._process != os.getpid() else one

    @property
    def records(self) -> Records:
        """The receiver of records of compilations and executions: set its `callback`."""
        return self._records

    @property
    def devices(self) -> list[Device]:
        """All devices, the CPU last."""
        return [*self._drivers, self.cpu]

    def _summary(self) -> str:
        return ", ".join(device.name for device in self.devices)

    def refresh(self) -> list[Device]:
        """Add drivers and engines that are new; known devices stay, even dead ones.

        Returns:
            All devices, the CPU last.

        Raises:
            Closed: this is closed.
        """
        self._check_open()
        with self._lock:
            if not self._settings.cpu_only:
                for name, make in self._found():
                    if self._may_be(name):
                        self._try(name, make)
        return self.devices

    def _found(self) -> Iterator[tuple[str, Callable[[], Device]]]:
        """For each possible device, its name and a function that makes it."""
        level = self._settings.feature_level
        for path in _sockets():
            name = path.name.removesuffix(SUFFIX)
            yield (
                name,
                lambda path=path, name=name: DriverDevice(  # type: ignore[misc]
                    lambda: connect(path, timeout=_PATIENCE), name=name, feature_level=level
                ),
            )
        for given, called in self._settings.engines:
            executor = chosen_executor(called)
            name = given if given != AUTO else executor
            if is_installed(executor) and (called != AUTO or executor in ENGINES):
                yield name, lambda n=name, e=executor: EngineDevice(n, e, level)  # type: ignore[misc]

    def _may_be(self, name: str) -> bool:
        if any(name == device.name for device in self._drivers):
            return False
        if name == CPU_NAME:
            logger.warning("a driver has the CPU's name, %s: it is left out", name)
            return False
        enabled = self._settings.enabled
        return enabled is None or enabled.fullmatch(name) is not None

    def _try(self, name: str, make: Callable[[], Device]) -> None:
        try:
            device = make()
        except NnburstError as error:
            logger.warning("device %s is left out: %s", name, error)
            return
        if any(name == known.name for known in self._drivers):
            device.close()  # a signal handler has added it meanwhile
        else:
            self._take(device)

    def _take(self, device: Device) -> None:
        if device.name == CPU_NAME or any(device.name == known.name for known in self._drivers):
            raise InvalidArgument(f"devices: the name {device.name} is taken")
        for extension in device.extensions:
            TYPES.register(extension, device.name)
        self._drivers.append(device)
        level = device.feature_level.name
        vlog.write("manager", "device %s %s, level %s", device.name, device.version_string, level)

    def device(self, name: str) -> Device:
        """The device called `name`.

        Raises:
            InvalidArgument: no device has this name; the message lists the known ones.
        """
        for device in self.devices:
            if device.name == name:
                return device
        known = ", ".join(device.name for device in self.devices)
        raise InvalidArgument(f"device: {name!r} is unknown, known are {known}")

    def _graph_device(self, extension: str) -> Device | None:
        """The device for whole files: a known one, else the engine of the format if installed and permitted.

        An engine that is started for this is not added to `devices`, so no other model is placed on it.

        Raises:
            Closed: this is closed.
        """
        self._check_open()
        for device in self.devices:
            if any(each.name == extension for each in device.extensions):
                return device
        executor = GRAPH_ENGINES[extension]
        with self._lock:
            if executor in self._further:
                return self._further[executor]
            if self._settings.cpu_only or not (is_installed(executor) and self._may_be(executor)):
                return None
            return self._keep_locked(self._engine(executor))

    @contextmanager
    def _contenders(self) -> Iterator[list[Device]]:
        """Yield engines to try on a whole model, those in `devices` first; none if drivers run.

        Compilations at the same time try the same engines, so each is launched once, however often callers
        give up and try again. When the last of these contexts ends, engines that neither are in `devices` nor
        were passed to `_keep` are closed.
        """
        found: list[Device] = [d for d in self._drivers if isinstance(d, EngineDevice)]
        with ExitStack() as trials:
            if self._settings.cpu_only or len(found) < len(self._drivers):
                found.clear()
            elif any(executor == AUTO for _, executor in self._settings.engines):
                known = [d.executor for d in self._drivers if isinstance(d, EngineDevice)]
                for executor in ENGINES:
                    if executor in known or not (is_installed(executor) and self._may_be(executor)):
                        continue
                    try:
                        found.append(trials.enter_context(self._trial(executor)))
                    except NnburstError as error:
                        logger.warning("device %s is left out: %s", executor, error)
            yield found

    @contextmanager
    def _trial(self, executor: str) -> Iterator[EngineDevice]:
        """Yield the engine of an executor: the one that was kept or is tried now, else a new one."""
        with self._lock:
            tried = {device.executor: device for device in self._trials}
            device = self._further.get(executor) or tried.get(executor) or self._engine(executor)
            self._trials[device] = self._trials.get(device, 0) + 1
        try:
            yield device
        finally:
            with self._lock:
                self._trials[device] -= 1
                is_last = not self._trials[device]
                if is_last:
                    del self._trials[device]
                ends = is_last and not self._has(device)
            if ends:
                device.close()

    def _keep(self, device: Device) -> Device:
        """Keep one of `_contenders` until the manager is closed; return it, or its equal kept before."""
        if self._has(device) or not isinstance(device, EngineDevice):
            return device
        with self._lock:
            return self._keep_locked(device)

    def _keep_locked(self, device: EngineDevice) -> EngineDevice:
        for each in device.extensions:
            TYPES.register(each, device.name)
        return self._further.setdefault(device.executor, device)

    def _engine(self, executor: str) -> EngineDevice:
        return EngineDevice(executor, executor, self._settings.feature_level)

    def _has(self, device: object) -> bool:
        """Whether a device belongs to this manager."""
        return any(device is known for known in (*self.devices, *self._further.values()))

    def _check_devices(self, devices: Sequence[Device | None]) -> list[Device]:
        """Check an explicit list of devices (RT:C1, M13).

        Raises:
            UnexpectedNull: the list or an entry is None.
            InvalidArgument: the list is empty, or has a device twice or one of another manager; BAD_DATA.
        """
        if devices is None or any(device is None for device in devices):
            raise UnexpectedNull("devices: the list or an entry is None")
        listed = [device for device in devices if device is not None]
        if not listed:
            raise InvalidArgument("devices: the list is empty")
        for position, device in enumerate(listed):
            if not self._has(device):
                raise InvalidArgument(
                    f"devices[{position}]: {device!r} is not a device of this manager"
                )
            if any(device is other for other in listed[:position]):
                raise InvalidArgument(f"devices[{position}]: {device.name} is listed twice")
        return listed

    def _release(self) -> None:
        for device in (*self.devices, *self._further.values()):
            device.close()


def _unlock_in_child() -> None:
    """Give a forked child a lock of its own: another thread may have been making its parent's manager."""
    Manager._one_lock = threading.RLock()


os.register_at_fork(after_in_child=_unlock_in_child)


@contextmanager
def process_manager(manager: Manager) -> Iterator[None]:
    """Make `manager` the manager of this process within a `with` statement: for tests and benchmarks."""
    before, Manager._one = Manager._one, manager
    try:
        yield
    finally:
        Manager._one = before


def close_process_manager() -> None:
    """Close the manager of this process, if there is one."""
    if Manager._one is not None:
        Manager._one.close()


def _sockets() -> list[Path]:
    """The sockets in the directory of this user's drivers, sorted by name."""
    try:
        return sorted(directory().glob(f"*{SUFFIX}"))
    except NnburstError as error:
        logger.warning("drivers that run are not looked for: %s", error)
        return []
