"""AskedDevice: a device as planning asks it, with the pools of one model."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from nnburst.client.memory.memory import Memory as Pool
from nnburst.hal.model import Model
from nnburst.runtime.devices.device import Device
from nnburst.runtime.devices.refuse_half import without_half


class AskedDevice:
    """A candidate of planning's; see `nnburst.runtime.planning.candidate`.

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
            found = without_half(self.name, model, found)
        self.supports_some |= any(found)
        return found
