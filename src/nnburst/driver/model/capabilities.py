"""A device's reported speed: as a person wrote, `nnburst bench capabilities` measured, or it ships; or 1.

All numbers are ratios to the reference executor on this machine; lower is better (`hal.capabilities`).
They are read once, when the driver starts, and are the same at every start until the file is written.
"""

from __future__ import annotations

import logging
import math
import os
from pathlib import Path
from typing import Any, Final
from urllib.parse import quote

import msgspec

from nnburst.compat.layouts.performance import non_extension_operand_performance
from nnburst.control.user_files import config_directory, state_directory
from nnburst.hal.capabilities import Capabilities, OperandPerformance, PerformanceInfo
from nnburst.hal.enums import OperandType
from nnburst.hal.errors import GeneralFailure, InvalidArgument
from nnburst.hal.validation.values import validate_capabilities

log = logging.getLogger(__name__)

_AS_THE_REFERENCE: Final = PerformanceInfo(1.0, 1.0)
#: What a device reports before it was measured: as good as the reference executor at everything.
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
    """Where a device's capabilities may lie: what a person wrote counts more than what was measured."""
    name = f"{quote(device, safe='')}.json"
    return [folder() / "capabilities" / name for folder in (config_directory, state_directory)]


def load_capabilities(
    device: str, version_string: str, shipped: Path | None = None
) -> Capabilities:
    """The capabilities of a device; UNMEASURED if no file counts. A log line names the one that does.

    Args:
        device: its name.
        version_string: its version.
        shipped: file that comes with its executor, for machines that were not measured.
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
    return UNMEASURED


def _read(path: Path, version_string: str) -> Capabilities | None:
    with path.open("rb") as file:
        content = file.read(_MAX_BYTES + 1)
    if len(content) > _MAX_BYTES:
        raise InvalidArgument(f"more than {_MAX_BYTES} bytes")
    found = _decode(content)
    if found.version_string not in ("", version_string):
        log.info("the capabilities in %s are of %s: they are ignored", path, found.version_string)
        return None
    return found.capabilities()


def store_capabilities(device: str, measured: CapabilitiesFile) -> Path:
    """Remember what was measured, for drivers that start from now on; where it lies.

    Raises:
        InvalidArgument: validation:S3.
        GeneralFailure: there is no place for it.
        OSError: it cannot be written.
    """
    measured.capabilities()
    path = capabilities_files(device)[-1]
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}.{os.urandom(8).hex()}")
    try:
        temporary.write_bytes(msgspec.json.format(msgspec.json.encode(measured)) + b"\n")
        os.replace(temporary, path)  # noqa: PTH105 - drivers see the old file or the new one
    finally:
        temporary.unlink(missing_ok=True)
    return path
