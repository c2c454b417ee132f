"""Which devices CTS has: those of the environment, or one of the sets that it is to hold with."""

from __future__ import annotations

from pathlib import Path
from typing import Final

import msgspec

from nnburst.driver.model.device import CapabilitiesFile
from nnburst.hal.enums import OperandType
from nnburst.hal.types import PerformanceInfo, non_extension_operand_performance

#: Cost of the two drivers that each refuse half of what they could do, by name; the CPU's is 1.
_HALVES: Final = {"sample_a": 0.5, "sample_b": 0.6}
#: Set to the variables that ask for it.
DEVICES: Final = {
    "cpu": {"NNBURST_CPUONLY": "1"},
    "litert": {"NNBURST_DEVICES": "litert"},
    "halves": {
        "NNBURST_DEVICES": ",".join(f"{name}=reference" for name in _HALVES),
        "NNBURST_REFUSE_HALF": "1",
    },
}


def environment(devices: str, folder: Path) -> dict[str, str]:
    """Variables of processes that have one of the sets, and no driver that runs on this machine.

    Args:
        devices: a key of `DEVICES`.
        folder: an empty one, for configuration and sockets; its path is short.
    """
    config, runtime = folder / "config", folder / "run"
    files = config / "nnburst" / "capabilities"
    files.mkdir(parents=True)
    runtime.mkdir(mode=0o700)
    for name, cost in _HALVES.items():
        (files / f"{name}.json").write_bytes(msgspec.json.encode(_capabilities(cost)))
    return {
        **DEVICES[devices],
        "XDG_CONFIG_HOME": str(config),
        "XDG_RUNTIME_DIR": str(runtime),
    }


def _capabilities(cost: float) -> CapabilitiesFile:
    info = PerformanceInfo(cost, cost)
    operands = {
        OperandType(entry.type).name: entry.info
        for entry in non_extension_operand_performance(info)
    }
    return CapabilitiesFile(operands, info, info, info, info)
