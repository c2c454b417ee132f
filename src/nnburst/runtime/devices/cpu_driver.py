"""CpuDriver: `nnapi-reference` in a driver of its own."""

from __future__ import annotations

from typing import Final

from nnburst.hal.enums import FeatureLevel
from nnburst.runtime.devices.cpu_device import CPU_NAME, CpuDevice
from nnburst.runtime.devices.engine_device import EngineDevice


class CpuDriver(EngineDevice):
    """The reference executor in another process: a crash there is not the program's. Thread-safe.

    What the CPU device reports of itself stays the same; tensors without elements fail, as with any
    driver.
    """

    is_cpu: Final = True  # type: ignore[misc]
    capabilities = CpuDevice.capabilities
    cache_files = CpuDevice.cache_files
    extensions = ()

    def __init__(self, feature_level: FeatureLevel = FeatureLevel.AIDL_V4) -> None:
        """Launched by the first call that needs it."""
        super().__init__(CPU_NAME, "reference", feature_level)

    supported_operations = CpuDevice.supported_operations
