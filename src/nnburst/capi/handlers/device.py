"""Calls on the list of devices, and on one of them."""

from __future__ import annotations

from typing import Any, Final

from nnburst._native import ffi
from nnburst.capi import addresses
from nnburst.capi.interface.arguments import HandleKind
from nnburst.capi.interface.constants import feature_level
from nnburst.capi.living import LIVING
from nnburst.hal.errors import InvalidArgument
from nnburst.runtime.devices.device import Device
from nnburst.runtime.devices.manager import Manager

#: Strings that programs hold pointers to, as long as the process lives.
_strings: Final[dict[str, Any]] = {}
_handles: Final[dict[int, int]] = {}


def _string(text: str) -> int:
    if text not in _strings:
        _strings[text] = ffi.new("char[]", text.encode())
    return int(ffi.cast("uintptr_t", _strings[text]))


def get_device_count(count: int) -> None:
    """See the table."""
    addresses.store("uint32_t", count, len(Manager.of_process().devices))


def get_device(index: int, place: int) -> None:
    """See the table. NNAPI: a device has one handle for all callers."""
    devices = Manager.of_process().devices
    if index >= len(devices):
        raise InvalidArgument(f"devIndex: {index} of {len(devices)} devices")
    device = devices[index]
    if id(device) not in _handles:  # the list keeps them as long as the process lives
        _handles[id(device)] = LIVING.add(HandleKind.Device, device)
    addresses.store("uint64_t", place, _handles[id(device)])


def device_get_name(device: Device, name: int) -> None:
    """See the table."""
    addresses.store("uint64_t", name, _string(device.name))


def device_get_type(device: Device, kind: int) -> None:
    """See the table."""
    addresses.store("int32_t", kind, int(device.type))


def device_get_version(device: Device, version: int) -> None:
    """See the table."""
    addresses.store("uint64_t", version, _string(device.version_string))


def device_get_feature_level(device: Device, level: int) -> None:
    """See the table."""
    addresses.store("int64_t", level, feature_level(int(device.feature_level)))


def device_wait(device: Device) -> None:
    """See the table."""
    device.wait()


def device_get_extension_support(device: Device, name: int, supported: int) -> None:
    """See the table."""
    addresses.store("uint8_t", supported, int(device.supports_extension(addresses.string(name))))
