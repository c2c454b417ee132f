"""The actor of one node: keeps a service, watches its driver, and answers where it is."""

from __future__ import annotations

import os
import time
from collections.abc import Mapping, Sequence
from typing import Final

import ray

from nnburst.client.connect import connect
from nnburst.client.resilient.resilient_device import ResilientDevice
from nnburst.hal.errors import DeadObject, DeviceUnavailable
from nnburst.ray.place import Place, boot_id
from nnburst.ray.service import Service, name_of, remove_dead

#: Seconds that the first start of a service may take, and between looks whether it is there.
_PATIENCE: Final = 120.0
_PAUSE: Final = 0.02


class Host:
    """Control plane only: no tensor passes it. Ray makes one per node and calls its methods one at a time."""

    def __init__(
        self, models: Mapping[str, str], executor: str, host: str, words: Sequence[str]
    ) -> None:
        """Start the service and connect to its driver.

        Args:
            models: for each name a file on this node, or `module:attribute`.
            executor: as for `nnburst serve`.
            host: at which gRPC listens; empty is the node's address.
            words: further ones for `nnburst serve`.
        """
        address = host or ray.util.get_node_ip_address()
        context = ray.get_runtime_context()
        self._node = context.get_node_id()
        remove_dead()
        name = name_of(context.get_actor_id())
        self._service = Service(name, models, executor, address, words)
        self._device = self._connected()

    def _connected(self) -> ResilientDevice:
        """Its driver, which has yet to take its name; Ray gives an actor up whose creation raises."""
        deadline = time.monotonic() + _PATIENCE
        while True:
            try:
                return ResilientDevice(lambda: connect(self._service.address))
            except (DeadObject, DeviceUnavailable):
                if time.monotonic() > deadline:
                    raise
                time.sleep(_PAUSE)

    def where(self) -> Place:
        """Where the service is; a driver that has died is connected to again first.

        Raises:
            DeadObject: it is on its way back.
        """
        _ = self._device.current
        return Place(
            self._node,
            boot_id(),
            self._service.address,
            self._service.grpc,
            self._service.pid,
            os.getpid(),
        )

    def recoveries(self) -> int:
        """How often the driver was connected to again."""
        return self._device.recoveries

    def close(self) -> None:
        """End the service."""
        self._device.close()
        self._service.close()
