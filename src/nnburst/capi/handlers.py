"""Executes the functions of the C interface that take more than one call of the framework.

Each handler is named after its function. It gets the object of each handle; it gets numbers and addresses as
the program passed them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final, cast

from nnburst.capi import marshalling
from nnburst.capi.constants import NANOSECOND, feature_level
from nnburst.capi.functions import HandleKind
from nnburst.capi.marshalling import HANDLES
from nnburst.capi.native_executions import FAST_PATH, NATIVE_EXECUTIONS
from nnburst.hal.enums import DurationCode
from nnburst.hal.errors import InvalidArgument, OutputInsufficientSize
from nnburst.hal.limits import NO_TIMING
from nnburst.runtime.devices.device import Device
from nnburst.runtime.devices.manager import Manager
from nnburst.runtime.objects.burst import Burst
from nnburst.runtime.objects.compilation import Compilation
from nnburst.runtime.objects.event import Event
from nnburst.runtime.objects.execution import Execution, NativeView
from nnburst.runtime.planning.plan import Direction

# -- device ----------------------------------------------------------------------------------------


#: The handle of each device of this process by its id.
_handles: Final[dict[int, int]] = {}


def get_device_count(count: int) -> None:
    """See the table."""
    marshalling.store("uint32_t", count, len(Manager.of_process().devices))


def get_device(index: int, place: int) -> None:
    """See the table. NNAPI: a device has one handle for all callers."""
    devices = Manager.of_process().devices
    if index >= len(devices):
        raise InvalidArgument(f"devIndex: {index} of {len(devices)} devices")
    device = devices[index]
    if id(device) not in _handles:  # the list keeps them as long as the process lives
        _handles[id(device)] = HANDLES.add(HandleKind.Device, device)
    marshalling.store("uint64_t", place, _handles[id(device)])


def device_get_feature_level(device: Device, level: int) -> None:
    """See the table."""
    marshalling.store("int64_t", level, feature_level(int(device.feature_level)))


# -- compilation -----------------------------------------------------------------------------------


def _memory_preference(direction: Direction, name: str) -> Callable[[Compilation, int, int], None]:
    """Make the handler that stores the alignment or the padding that devices prefer for an argument."""

    def store(compilation: Compilation, index: int, place: int) -> None:
        found = compilation.memory_preference(direction, index)
        marshalling.store("uint32_t", place, getattr(found, name))

    return store


compilation_get_preferred_memory_alignment_for_input = _memory_preference(
    Direction.INPUT, "alignment"
)
compilation_get_preferred_memory_padding_for_input = _memory_preference(Direction.INPUT, "padding")
compilation_get_preferred_memory_alignment_for_output = _memory_preference(
    Direction.OUTPUT, "alignment"
)
compilation_get_preferred_memory_padding_for_output = _memory_preference(
    Direction.OUTPUT, "padding"
)


def compilation_add_extension_attribute(
    target: Compilation | Execution, name: int, code: int, data: int, length: int
) -> None:
    """See the table. An attribute without a value has no bytes."""
    value = marshalling.optional(data, length) or b""
    target.add_extension_attribute(marshalling.string(name), code, value)


execution_add_extension_attribute = compilation_add_extension_attribute


# -- execution -------------------------------------------------------------------------------------


def execution_create(compilation: Compilation) -> Execution:
    """See the table."""
    execution = compilation.execution()
    NATIVE_EXECUTIONS.offer(HANDLES.handle(compilation), execution)
    return execution


def execution_start_compute(execution: Execution) -> Event:
    """See the table."""
    FAST_PATH.disable(HANDLES.handle(execution))
    event = execution.start()
    if not execution.reusable:
        NATIVE_EXECUTIONS.computed(execution)
    return event


def execution_compute(execution: Execution) -> None:
    """See the table."""
    execution.compute()
    if execution.reusable:
        burst = NativeView(execution).own_burst()
        if burst is not None:
            FAST_PATH.offer(HANDLES.handle(execution), execution, burst, 0)
    else:
        NATIVE_EXECUTIONS.computed(execution)


def execution_burst_compute(execution: Execution, burst: Burst) -> None:
    """See the table."""
    execution.burst_compute(burst)
    if execution.reusable:
        FAST_PATH.offer(HANDLES.handle(execution), execution, burst, HANDLES.handle(burst))
    else:
        NATIVE_EXECUTIONS.cache(HANDLES.handle(burst), burst, execution)


def execution_start_compute_with_dependencies(
    execution: Execution, events: Sequence[Event], _count: int, duration_ns: int
) -> Event:
    """See the table."""
    FAST_PATH.disable(HANDLES.handle(execution))
    event = execution.start_after(events, duration_ns * NANOSECOND)
    if not execution.reusable:
        NATIVE_EXECUTIONS.computed(execution)
    return event


def execution_get_output_operand_rank(execution: Execution, index: int, rank: int) -> None:
    """See the table. NNAPI: RT:E7, written also for an output that was too small."""
    try:
        marshalling.store("uint32_t", rank, execution.output_rank(index))
    except OutputInsufficientSize as error:
        marshalling.store("uint32_t", rank, len(error.output_shapes[0].dimensions))
        raise


def execution_get_output_operand_dimensions(
    execution: Execution, index: int, dimensions: int
) -> None:
    """See the table. NNAPI: RT:E7, written also for an output that was too small."""
    try:
        marshalling.store_all("uint32_t", dimensions, execution.output_dimensions(index))
    except OutputInsufficientSize as error:
        marshalling.store_all("uint32_t", dimensions, error.output_shapes[0].dimensions)
        raise


def execution_get_duration(execution: Execution, code: int, duration: int) -> None:
    """See the table. NNAPI: RT:E8, all ones if unknown, for whatever reason."""
    marshalling.store("uint64_t", duration, NO_TIMING)
    found = execution.duration(cast("DurationCode", code))
    if found is not None:
        marshalling.store("uint64_t", duration, found)
