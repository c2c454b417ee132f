"""ResilientDevice: a device that outlives its driver.

    device = nnburst.ResilientDevice(lambda: nnburst.connect("kws"))
    prepared = device.prepare(model)
    with prepared.open_burst() as burst:
        bound = burst.bind()
        bound.run()        # the driver dies here: DeadObject, once
        bound.run()        # a new driver, the model prepared again, the same arrays

NNAPI: utils/common ResilientDevice.cpp. DEVIATES: there only devices recover and prepared models stay dead;
here the whole chain does, so that a program has to handle one error and nothing else.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from nnburst.client.device import Device
from nnburst.client.memory.carried_pools import CarriesPools
from nnburst.client.memory.memory import Memory
from nnburst.client.prepared_model import PreparedModel
from nnburst.client.resilient.recovery import InvalidDevice, Recoverable
from nnburst.client.resilient.resilient_prepared_model import ResilientPreparedModel
from nnburst.hal.closing import Closing
from nnburst.hal.model import Model


class ResilientDevice(Closing):
    """A device that is connected to again when its driver has died. Thread-safe. A context manager.

    Pools belong to the client, so they and the arrays in them outlive the driver.
    """

    _instead = "make one in the other process, from the same function"

    def __init__(self, connect: Callable[[], Device]) -> None:
        """Connect for the first time.

        Args:
            connect: makes a device: `nnburst.connect(name)` or `nnburst.launch(executor)`. It is called again
                for every driver that has died, on the thread that finds the driver dead.

        Raises:
            NnburstError: as `connect` does.
        """
        first = connect()
        self._connect = connect
        self._facts = _facts(first)
        self._devices = Recoverable(first, self._again)

    @property
    def current(self) -> Device:
        """The device as it is now; a dead one is connected to again first.

        Raises:
            DeadObject: no driver serves it now.
            GeneralFailure: what came back is another device; final.
            Closed: `close` was called.
        """
        return self._devices.get()

    @property
    def recoveries(self) -> int:
        """How often it was connected to again."""
        return self._devices.recoveries

    @property
    def is_alive(self) -> bool:
        """Whether the driver is there now."""
        return self._devices.last.is_alive

    def prepare(
        self,
        model: Model | CarriesPools,
        *,
        pools: Sequence[Memory] = (),
        **options: Any,  # noqa: ANN401 - those of Device.prepare
    ) -> ResilientPreparedModel:
        """Prepare a model, now and for every driver that comes after; see `Device.prepare`.

        Args:
            model: kept, so that it can be prepared again.
            pools: kept, too, and not to be closed before the prepared model.
            options: as for `Device.prepare`.

        Raises:
            NnburstError: as for `Device.prepare`.
        """
        return ResilientPreparedModel(
            self._devices, lambda device: device.prepare(model, pools=pools, **options)
        )

    def prepare_by(self, prepare: Callable[[Device], PreparedModel]) -> ResilientPreparedModel:
        """A prepared model that `prepare` makes, now and for every driver that comes after.

        Args:
            prepare: given a device, prepares a model on it; called on any thread that finds the driver dead.
        """
        return ResilientPreparedModel(self._devices, prepare)

    def supported_operations(
        self, model: Model | CarriesPools, *, pools: Sequence[Memory] = (), timeout: float = 30.0
    ) -> list[bool]:
        """See `Device.supported_operations`."""
        return self._devices.call(
            lambda device: device.supported_operations(model, pools=pools, timeout=timeout)
        )

    def allocate(self, size: int) -> Memory:
        """See `Device.allocate`; the pool stays usable when the driver dies."""
        return self.current.allocate(size)

    def close(self) -> None:
        """End the connection; twice is fine."""
        self._devices.close()

    def _again(self, _dead: Device) -> Device:
        """Connect once more, to the same device.

        Raises:
            InvalidDevice: what answers differs from what was there before (device:§7).
        """
        device = self._connect()
        try:
            facts = _facts(device)
        except BaseException:
            device.close()
            raise
        for name, before in self._facts.items():
            if facts[name] != before:
                device.close()
                raise InvalidDevice(
                    f"the device came back different: its {name} was {before}, now {facts[name]}"
                )
        return device


def _facts(device: Device) -> dict[str, object]:
    """What must not change when a service comes back."""
    return {
        "name": device.name,
        "version_string": device.version_string,
        "feature_level": device.feature_level,
        "type": device.type,
        "extensions": device.supported_extensions(),
        "capabilities": device.capabilities,
        "number_of_cache_files_needed": device.number_of_cache_files_needed,
    }
