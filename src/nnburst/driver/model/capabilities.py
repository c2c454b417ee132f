"""Reads and writes the file with a device's reported speed, and falls back to the numbers that it ships.

An administrator's file counts most, then the one that `nnburst bench capabilities` measured, then the
executor's own; without any, all numbers are 1. They are ratios to the reference executor on this machine;
lower is better. They are read once, when the driver starts, and are the same at every start until the file is
written.
"""

from __future__ import annotations

import logging
import math
from pathlib import Path
from typing import Any, Final
from urllib.parse import quote

import msgspec

from nnburst.control.address import (
    config_directory,
    read_regular_file,
    replace_file,
    state_directory,
)
from nnburst.hal.enums import OperandType
from nnburst.hal.errors import GeneralFailure, InvalidArgument
from nnburst.hal.types import (
    Capabilities,
    OperandPerformance,
    PerformanceInfo,
    non_extension_operand_performance,
)
from nnburst.hal.validation.values import validate_capabilities

log = logging.getLogger(__name__)

_AS_THE_REFERENCE: Final = PerformanceInfo(1.0, 1.0)
#: The report of a device that was not measured: as good as the reference executor at everything.
UNMEASURED: Final = Capabilities(
    _AS_THE_REFERENCE,
    _AS_THE_REFERENCE,
    non_extension_operand_performance(_AS_THE_REFERENCE),
    _AS_THE_REFERENCE,
    _AS_THE_REFERENCE,
)
#: Longest file that is read.
_MAX_BYTES: Final = 1 << 20


class CapabilitiesFile(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A file of capabilities, in JSON. Types that `operands` does not list count as infinitely slow.

    Attributes:
        operands: by the names of OperandType.
        relaxed_scalar: float32 that may be computed as float16, scalars.
        relaxed_tensor: the same for tensors.
        if_: overhead of IF ("if" in the file).
        while_: overhead of WHILE ("while" in the file).
        version_string: of the device that was measured; the file is ignored if another version runs.
            Empty in a file that counts for all.
        measured: how, for people.
    """

    operands: dict[str, PerformanceInfo]
    relaxed_scalar: PerformanceInfo
    relaxed_tensor: PerformanceInfo
    if_: PerformanceInfo = msgspec.field(default=_AS_THE_REFERENCE, name="if")
    while_: PerformanceInfo = msgspec.field(default=_AS_THE_REFERENCE, name="while")
    version_string: str = ""
    measured: dict[str, Any] = msgspec.field(default_factory=dict)

    def capabilities(self) -> Capabilities:
        """The file's contents.

        Raises:
            InvalidArgument: validation:S3: a type is not known or has no performance, or a number is not
                positive and finite.
        """
        unknown = self.operands.keys() - OperandType.__members__.keys()
        if unknown:
            raise InvalidArgument(f"validation:S3: operands: type {min(unknown)!r} is unknown")
        table = (
            OperandPerformance(OperandType[name], info) for name, info in self.operands.items()
        )
        found = Capabilities(
            self.relaxed_scalar,
            self.relaxed_tensor,
            tuple(sorted(table, key=lambda entry: entry.type)),
            self.if_,
            self.while_,
        )
        validate_capabilities(found)
        named = (self.relaxed_scalar, self.relaxed_tensor, self.if_, self.while_)
        for info in (*named, *self.operands.values()):
            if not (math.isfinite(info.exec_time) and math.isfinite(info.power_usage)):
                raise InvalidArgument("validation:S3: a number is not finite")
        return found


_decode: Final = msgspec.json.Decoder(CapabilitiesFile).decode


def capabilities_files(device: str) -> list[Path]:
    """Paths where a device's capabilities may lie: an administrator's file before a measured one."""
    name = f"{quote(device, safe='')}.json"
    return [folder() / "capabilities" / name for folder in (config_directory, state_directory)]


def load_capabilities(
    device: str,
    version_string: str,
    shipped: Path | None = None,
    reported: Capabilities = UNMEASURED,
) -> Capabilities:
    """The capabilities of a device. A log line names the file that counts, if one does.

    Args:
        device: its name.
        version_string: its version.
        shipped: file that comes with its executor, for machines that were not measured.
        reported: what counts if no file does.
    """
    files = [] if shipped is None else [shipped]
    try:
        files = capabilities_files(device) + files
    except GeneralFailure as error:
        log.debug("no folder of capabilities is read: %s", error)
    for path in files:
        try:
            found = _read(path, version_string)
        except FileNotFoundError:
            continue
        except (InvalidArgument, msgspec.MsgspecError, OSError) as error:
            log.warning("the capabilities in %s are ignored: %s", path, error)
            continue
        if found is not None:
            log.info("%s: capabilities of %s", device, path)
            return found
    return reported


def _read(path: Path, version_string: str) -> Capabilities | None:
    content = read_regular_file(path, _MAX_BYTES + 1)
    if len(content) > _MAX_BYTES:
        raise InvalidArgument(f"more than {_MAX_BYTES} bytes")
    found = _decode(content)
    if found.version_string not in ("", version_string):
        log.info("the capabilities in %s are of %s: they are ignored", path, found.version_string)
        return None
    return found.capabilities()


def store_capabilities(device: str, measured: CapabilitiesFile) -> Path:
    """Store measured numbers for drivers that start from now on; returns the file's path.

    Raises:
        InvalidArgument: validation:S3.
        GeneralFailure: no folder can hold it.
        OSError: it cannot be written.
    """
    measured.capabilities()
    path = capabilities_files(device)[-1]
    replace_file(path, msgspec.json.format(msgspec.json.encode(measured)) + b"\n")
    return path
