"""Calls on executions."""

from __future__ import annotations

from collections.abc import Sequence
from typing import cast

from nnburst.capi import addresses
from nnburst.capi.drafts import DRAFTS
from nnburst.capi.fast_path import FAST_PATH
from nnburst.capi.interface.constants import NANOSECOND
from nnburst.capi.living import LIVING
from nnburst.hal.enums import DurationCode
from nnburst.hal.errors import OutputInsufficientSize
from nnburst.hal.limits import NO_TIMING
from nnburst.runtime.objects.burst import Burst
from nnburst.runtime.objects.compilation import Compilation
from nnburst.runtime.objects.event import Event
from nnburst.runtime.objects.execution import Execution
from nnburst.runtime.objects.memory import Memory


def execution_create(compilation: Compilation) -> Execution:
    """See the table."""
    execution = compilation.execution()
    DRAFTS.offer(LIVING.handle(compilation), execution)
    return execution


def execution_set_input(
    execution: Execution, index: int, kind: int, buffer: int, length: int
) -> None:
    """See the table."""
    execution.set_input(
        index, addresses.optional(buffer, length), type=addresses.operand_type(kind)
    )


def execution_set_input_from_memory(
    execution: Execution, index: int, kind: int, memory: Memory, offset: int, length: int
) -> None:
    """See the table."""
    execution.set_input_from_memory(
        index, memory, offset, length, type=addresses.operand_type(kind)
    )


def execution_set_output(
    execution: Execution, index: int, kind: int, buffer: int, length: int
) -> None:
    """See the table."""
    execution.set_output(
        index, addresses.optional(buffer, length), type=addresses.operand_type(kind)
    )


def execution_set_output_from_memory(
    execution: Execution, index: int, kind: int, memory: Memory, offset: int, length: int
) -> None:
    """See the table."""
    execution.set_output_from_memory(
        index, memory, offset, length, type=addresses.operand_type(kind)
    )


def execution_start_compute(execution: Execution) -> Event:
    """See the table."""
    FAST_PATH.disable(LIVING.handle(execution))
    return execution.start()


def execution_compute(execution: Execution) -> None:
    """See the table."""
    execution.compute()
    if execution.reusable:
        burst = execution._own_burst()
        if burst is not None:
            FAST_PATH.offer(LIVING.handle(execution), execution, burst, 0)


def execution_burst_compute(execution: Execution, burst: Burst) -> None:
    """See the table."""
    execution.burst_compute(burst)
    if execution.reusable:
        FAST_PATH.offer(LIVING.handle(execution), execution, burst, LIVING.handle(burst))
    else:
        DRAFTS.lend(LIVING.handle(burst), burst, execution)


def execution_start_compute_with_dependencies(
    execution: Execution, events: Sequence[Event], _count: int, duration_ns: int
) -> Event:
    """See the table."""
    FAST_PATH.disable(LIVING.handle(execution))
    return execution.start_after(events, duration_ns * NANOSECOND)


def execution_get_output_operand_rank(execution: Execution, index: int, rank: int) -> None:
    """See the table. NNAPI: RT:E7, written also for an output that was too small."""
    try:
        addresses.store("uint32_t", rank, execution.output_rank(index))
    except OutputInsufficientSize as error:
        addresses.store("uint32_t", rank, len(error.output_shapes[0].dimensions))
        raise


def execution_get_output_operand_dimensions(
    execution: Execution, index: int, dimensions: int
) -> None:
    """See the table. NNAPI: RT:E7, written also for an output that was too small."""
    try:
        addresses.store_all("uint32_t", dimensions, execution.output_dimensions(index))
    except OutputInsufficientSize as error:
        addresses.store_all("uint32_t", dimensions, error.output_shapes[0].dimensions)
        raise


def execution_set_measure_timing(execution: Execution, measure: int) -> None:
    """See the table."""
    execution.measure_timing = bool(measure)


def execution_get_duration(execution: Execution, code: int, duration: int) -> None:
    """See the table. NNAPI: RT:E8, all ones if unknown, for whatever reason."""
    addresses.store("uint64_t", duration, NO_TIMING)
    found = execution.duration(cast("DurationCode", code))
    if found is not None:
        addresses.store("uint64_t", duration, found)


def execution_set_timeout(execution: Execution, duration_ns: int) -> None:
    """See the table."""
    execution.timeout = duration_ns * NANOSECOND


def execution_set_loop_timeout(execution: Execution, duration_ns: int) -> None:
    """See the table."""
    execution.loop_timeout = duration_ns * NANOSECOND


def execution_enable_input_and_output_padding(execution: Execution, enable: int) -> None:
    """See the table."""
    execution.padding = bool(enable)


def execution_set_reusable(execution: Execution, reusable: int) -> None:
    """See the table."""
    execution.reusable = bool(reusable)


def execution_add_extension_attribute(
    execution: Execution, name: int, number: int, data: int, length: int
) -> None:
    """See the table."""
    execution.add_extension_attribute(
        addresses.string(name), number, addresses.optional(data, length) or b""
    )
