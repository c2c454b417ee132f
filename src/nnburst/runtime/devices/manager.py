"""Manager: the devices of this process."""

from __future__ import annotations

import os
import threading
from collections.abc import Sequence
from typing import ClassVar

from nnburst.hal.errors import InvalidArgument, UnexpectedNull
from nnburst.runtime.devices.cpu_device import CpuDevice
from nnburst.runtime.devices.device import Device
from nnburst.runtime.planning.plan import PartitioningMode
from nnburst.runtime.runtime_object import RuntimeObject


class Manager(RuntimeObject):
    """The devices that models can be placed on, the CPU last (RT:D1). Thread-safe; one for each process.

    Attributes:
        cpu: `nnapi-reference`.
        partitioning: the mode of compilations without an explicit list (RT:P1).
    """

    _one: ClassVar[Manager | None] = None
    _one_lock: ClassVar[threading.Lock] = threading.Lock()

    def __init__(
        self,
        devices: Sequence[Device] | None = None,
        *,
        partitioning: PartitioningMode = PartitioningMode.WITH_FALLBACK,
    ) -> None:
        """Discover the devices, or take those given and the CPU behind them."""
        super().__init__()
        self.cpu = CpuDevice()
        self.partitioning = partitioning
        self._devices: list[Device] = [*(devices or ()), self.cpu]

    @classmethod
    def of_process(cls) -> Manager:
        """The manager of this process, made when it is first asked for."""
        with cls._one_lock:
            if cls._one is None or cls._one.closed or cls._one._process != os.getpid():
                cls._one = cls()
            return cls._one

    @property
    def devices(self) -> list[Device]:
        """All devices, the CPU last."""
        return list(self._devices)

    def device(self, name: str) -> Device:
        """The device called `name`.

        Raises:
            InvalidArgument: there is none.
        """
        for device in self._devices:
            if device.name == name:
                return device
        known = ", ".join(device.name for device in self._devices)
        raise InvalidArgument(f"device: there is no {name!r}; there are {known}")

    def has(self, device: object) -> bool:
        """Whether it is one of the manager's."""
        return any(device is known for known in self._devices)

    def check_devices(self, devices: Sequence[Device | None]) -> list[Device]:
        """An explicit list of devices (RT:C1, M13).

        Raises:
            UnexpectedNull: the list or an entry is None.
            InvalidArgument: it is empty, or has a device twice or one that is not of this manager; BAD_DATA.
        """
        if devices is None or any(device is None for device in devices):
            raise UnexpectedNull("devices: the list or an entry is None")
        listed = [device for device in devices if device is not None]
        if not listed:
            raise InvalidArgument("devices: the list is empty")
        for position, device in enumerate(listed):
            if not self.has(device):
                raise InvalidArgument(
                    f"devices[{position}]: {device!r} is no device of the manager's"
                )
            if any(device is other for other in listed[:position]):
                raise InvalidArgument(f"devices[{position}]: {device.name} is listed twice")
        return listed

    def _free(self) -> None:
        for device in self._devices:
            device.close()
