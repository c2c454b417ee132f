"""Calls on compilations."""

from __future__ import annotations

from collections.abc import Sequence

from nnburst.capi import addresses
from nnburst.capi.interface.constants import NANOSECOND
from nnburst.hal.limits import BYTE_SIZE_OF_CACHE_TOKEN
from nnburst.runtime.devices.device import Device
from nnburst.runtime.objects.burst import Burst
from nnburst.runtime.objects.compilation import Compilation
from nnburst.runtime.objects.model import Model
from nnburst.runtime.planning.plan import Direction


def compilation_create(model: Model) -> Compilation:
    """See the table."""
    return Compilation(model)


def compilation_create_for_devices(
    model: Model, devices: Sequence[Device], _count: int
) -> Compilation:
    """See the table."""
    return Compilation(model, devices)


def compilation_set_caching(compilation: Compilation, folder: int, token: int) -> None:
    """See the table."""
    compilation.set_caching(
        addresses.string(folder), bytes(addresses.content(token, BYTE_SIZE_OF_CACHE_TOKEN))
    )


def compilation_set_preference(compilation: Compilation, preference: int) -> None:
    """See the table."""
    compilation.preference = preference


def compilation_set_priority(compilation: Compilation, priority: int) -> None:
    """See the table."""
    compilation.priority = priority


def compilation_set_timeout(compilation: Compilation, duration_ns: int) -> None:
    """See the table."""
    compilation.timeout = duration_ns * NANOSECOND


def compilation_finish(compilation: Compilation) -> None:
    """See the table."""
    compilation.finish()


def compilation_get_preferred_memory_alignment_for_input(
    compilation: Compilation, index: int, place: int
) -> None:
    """See the table."""
    addresses.store(
        "uint32_t", place, compilation.memory_preference(Direction.INPUT, index).alignment
    )


def compilation_get_preferred_memory_padding_for_input(
    compilation: Compilation, index: int, place: int
) -> None:
    """See the table."""
    addresses.store(
        "uint32_t", place, compilation.memory_preference(Direction.INPUT, index).padding
    )


def compilation_get_preferred_memory_alignment_for_output(
    compilation: Compilation, index: int, place: int
) -> None:
    """See the table."""
    addresses.store(
        "uint32_t", place, compilation.memory_preference(Direction.OUTPUT, index).alignment
    )


def compilation_get_preferred_memory_padding_for_output(
    compilation: Compilation, index: int, place: int
) -> None:
    """See the table."""
    addresses.store(
        "uint32_t", place, compilation.memory_preference(Direction.OUTPUT, index).padding
    )


def compilation_add_extension_attribute(
    compilation: Compilation, name: int, number: int, data: int, length: int
) -> None:
    """See the table."""
    compilation.add_extension_attribute(
        addresses.string(name), number, addresses.optional(data, length) or b""
    )


def burst_create(compilation: Compilation) -> Burst:
    """See the table."""
    return compilation.burst()
